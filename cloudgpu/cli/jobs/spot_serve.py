"""`cloudgpu spot serve`: a policy as JSON lines on standard input and output, for other programs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def command(
    policy: Annotated[
        str, typer.Argument(metavar="POLICY", help="on-demand, greedy, uniform-progress or adaptive.")
    ] = "adaptive",
) -> None:
    """Answer what a spot policy would do: one JSON line in, one JSON line out, until the input ends.

    {"op": "reset", "job": {...}} begins a job, {"op": "decide", "state": {...}} is answered with an action and a zone.
    A line that is wrong is answered with {"error": "..."}, and the next one counts. Reads no settings and no ledger.
    """
    from cloudgpu.cli.progress import end
    from cloudgpu.core.spot.policies import POLICIES
    from cloudgpu.core.spot.serving import Serving
    from cloudgpu.core.values.naming import unknown_word

    if policy not in POLICIES:
        raise unknown_word(f"There is no spot policy {policy!r}", policy, POLICIES, field="POLICY")
    end()  # nothing is drawn over what is typed
    serving = Serving(POLICIES[policy])
    for line in sys.stdin.buffer:
        if line.strip():
            sys.stdout.write(f"{serving.answer(line)}\n")
            sys.stdout.flush()
