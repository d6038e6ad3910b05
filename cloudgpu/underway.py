"""What this process is about to change, in the words that a user needs who interrupts it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

NAMED = 3  # of many ends that are under way at once
_now: dict[object, str] = {}
_done: list[bool] = []
_settled: list[str] = []


@contextmanager
def on_abort(left: str) -> Iterator[None]:
    """Let an interruption of this block say what may be `left`: a whole sentence, with the way out.

    What ends in any other way is said by its own answer or error.
    """
    mark = object()
    _now[mark] = left
    try:
        yield
    except Exception:
        _ended(mark)
        raise
    _ended(mark)


def unproved(what: str, name: str) -> str:
    """Return what is said of a stop or an end that is not proved yet."""
    return f"The {what} of {name} is not proved: it may still be billed. Run the same command again to finish it."


def unfinished_end(name: str) -> str:
    """Return what becomes of a machine or cluster whose end is recorded as requested, if nobody finishes it."""
    return f"The next run of cloudgpu reap finishes the end of {name}; cloudgpu start {name} takes it back."


def settled(message: str) -> None:
    """Have `left` return this sentence: whatever was interrupted was put right since."""
    _now.clear()
    _settled[:] = [message]


def left() -> str:
    """Return the sentence for a command that was interrupted now."""
    if _settled:
        return _settled[0]
    found = list(dict.fromkeys(_now.copy().values()))
    if found:
        more = f" {len(found) - NAMED} more machines are in the same state." if len(found) > NAMED else ""
        return f"Interrupted. {' '.join(found[:NAMED])}{more}"
    if _done:
        return "Interrupted. What was done before this is finished and recorded; cloudgpu ls shows it."
    return "Interrupted; no machine was changed."


def _ended(mark: object) -> None:
    _now.pop(mark, None)
    _done[:] = [True]
