"""What this process is changing now, as sentences for a user who interrupts it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

MAX_SENTENCES = 3
_abort_messages: dict[object, str] = {}
_anything_finished: list[bool] = []  # not empty once a block of `on_abort` has ended
_final_message: list[str] = []


@contextmanager
def on_abort(message: str) -> Iterator[None]:
    """Show `message` if this block is interrupted: a whole sentence on what may be left, and what to do.

    If the block ends in another way, its own answer or error is shown.
    """
    block = object()
    _abort_messages[block] = message
    try:
        yield
    except Exception:
        _leave_block(block)
        raise
    _leave_block(block)


def unproved_sentence(name: str, what: str) -> str:
    """Return the sentence on a machine whose end or stop (`what`) is requested, and not confirmed by its provider."""
    return f"The {what} of {name} is not proved: it may still be billed. Run the same command again to finish it."


def unfinished_end_sentence(name: str, what: str = "end") -> str:
    """Return the sentence on a machine or cluster whose end (or stop, `what`) is requested and not finished."""
    return f"The next run of cloudgpu reap finishes the {what} of {name}; cloudgpu start {name} cancels it."


def postponed_end_sentence(name: str, what: str) -> str:
    """Return the sentence on a machine whose end or stop (`what`) is recorded, as its provider does not answer now."""
    finished = f"the first run of cloudgpu reap that reaches {name} finishes it"
    return f"Its {what} is requested: {finished}; until then cloudgpu hold {name} 1h cancels it."


def set_final_message(message: str) -> None:
    """Make `abort_message` return this sentence, since the interrupted action was cleaned up."""
    _abort_messages.clear()
    _final_message[:] = [message]


def abort_message() -> str:
    """Return the sentence for a command that was interrupted now."""
    if _final_message:
        return _final_message[0]
    sentences = list(dict.fromkeys(_abort_messages.copy().values()))
    if sentences:
        more = (
            f" {len(sentences) - MAX_SENTENCES} more machines are in the same state."
            if len(sentences) > MAX_SENTENCES
            else ""
        )
        return f"Interrupted. {' '.join(sentences[:MAX_SENTENCES])}{more}"
    if _anything_finished:
        return "Interrupted. What was done before this is finished and recorded; cloudgpu ls shows it."
    return "Interrupted; no machine was changed."


def _leave_block(block: object) -> None:
    _abort_messages.pop(block, None)
    _anything_finished[:] = [True]
