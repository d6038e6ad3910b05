"""The flags of cp and scp that ask for what `cloudgpu cp` always does."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import pairwise

from cloudgpu.core.values.printable import printable
from cloudgpu.errors import InvalidRequest

# What cp and scp need, or allow, for what is always done here.
NEEDLESS = {"-r", "-R", "-a", "-p", "-f", "--recursive", "--archive", "--preserve", "--force"}


def needless(args: Sequence[str], option: str) -> InvalidRequest | None:
    """Return the error for a flag of cp or scp that asks for what is always done here; None for another option."""
    if option not in NEEDLESS:
        return None
    paths = [word for before, word in pairwise(args) if not (word.startswith("-") or before in ("-o", "--output"))]
    pasted = " ".join(shlex.quote(word) if word.isprintable() else printable(word) for word in paths)
    return InvalidRequest(
        f"{option} is not needed: cp copies directories whole, and keeps permissions and times.",
        field=option,
        value=None,
        next=f"Run: cloudgpu cp {pasted}",
    )
