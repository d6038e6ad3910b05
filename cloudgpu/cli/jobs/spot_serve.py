"""`cloudgpu spot serve`: a policy as JSON lines on standard input and output, for other programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudgpu.core.spot.situation import Policy


def command(
    policy: Annotated[
        str, typer.Argument(metavar="POLICY", help="on-demand, greedy, uniform-progress or adaptive.")
    ] = "adaptive",
) -> None:
    """Answer what a spot policy would do: one JSON line in, one JSON line out, until the input ends.

    {"op": "reset", "job": {...}} begins a job, {"op": "decide", "state": {...}} is answered with an action and a zone.
    A line that is wrong is answered with {"error": "..."}, and the next one counts. Reads no settings and no ledger.
    """
    from cloudgpu.core.spot.serving import Serving

    serving = Serving(made(policy, "POLICY"))
    for line in sys.stdin.buffer:
        if line.strip():
            sys.stdout.write(f"{serving.answer(line)}\n")
            sys.stdout.flush()


def made(name: str, field: str) -> Callable[[], Policy]:
    """Return what makes the policy of this name; raise InvalidRequest for an unknown one."""
    from difflib import get_close_matches

    from cloudgpu.core.spot.policies import POLICIES
    from cloudgpu.errors import InvalidRequest

    if name in POLICIES:
        return POLICIES[name]
    near = get_close_matches(name, POLICIES, 1)
    asks = f"; did you mean {near[0]!r}?" if near else "."
    raise InvalidRequest(
        f"There is no spot policy {name!r}{asks}",
        field=field,
        value=name,
        next=f"Use one of: {', '.join(POLICIES)}.",
    )
