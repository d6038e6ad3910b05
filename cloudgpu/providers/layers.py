"""The layers that end a machine, in the words of the plan: the same for every cloud whose machines boot our data."""

from __future__ import annotations

AGENT = "the agent on the machine (idle time, lease; it renews while somebody works)"
TIMER = (
    "a timer on the machine, apart from the agent, that reads the lease from the machine's own tags and powers it off"
)


def in_the_cloud(what: str, does: str) -> str:
    """Return the sentence about a timer on the cloud's side: `what` it is, and what it `does` to the machine."""
    return f"a timer in the cloud, {what}, {does} it at its renew-until when everything else is dead"
