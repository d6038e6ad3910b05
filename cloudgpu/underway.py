"""What this process is changing now, as sentences for a user who interrupts it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

MAX_SENTENCES = 3
_now: dict[object, str] = {}
_done: list[bool] = []
_settled: list[str] = []


@contextmanager
def on_abort(left: str) -> Iterator[None]:
    """Show `left` if this block is interrupted: a whole sentence on what may be left, and what to do.

    If the block ends in another way, its own answer or error is shown.
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
    """Return the sentence on a stop or an end that is not confirmed yet."""
    return f"The {what} of {name} is not proved: it may still be billed. Run the same command again to finish it."


def unfinished_end(name: str) -> str:
    """Return the sentence on a machine or cluster whose end is requested and not finished."""
    return f"The next run of cloudgpu reap finishes the end of {name}; cloudgpu start {name} takes it back."


def settled(message: str) -> None:
    """Have `left` return this sentence, since the interrupted action was cleaned up."""
    _now.clear()
    _settled[:] = [message]


def left() -> str:
    """Return the sentence for a command that was interrupted now."""
    if _settled:
        return _settled[0]
    sentences = list(dict.fromkeys(_now.copy().values()))
    if sentences:
        more = (
            f" {len(sentences) - MAX_SENTENCES} more machines are in the same state."
            if len(sentences) > MAX_SENTENCES
            else ""
        )
        return f"Interrupted. {' '.join(sentences[:MAX_SENTENCES])}{more}"
    if _done:
        return "Interrupted. What was done before this is finished and recorded; cloudgpu ls shows it."
    return "Interrupted; no machine was changed."


def _ended(mark: object) -> None:
    _now.pop(mark, None)
    _done[:] = [True]
