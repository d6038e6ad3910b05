"""Estimates how much can be copied from a spot machine between its interruption notice and its end. Pure.

docs/machine.md says, with sources, how long before its end a cloud gives notice, and how often the machine polls for
it. At worst, a last copy begins after the machine's next poll, the agent's next one and the watcher's, one after
another.
"""

from __future__ import annotations

from dataclasses import dataclass

ASSUMED_RATE = 5_000_000  # bytes a second, 40 Mbit/s: a usual connection at home, where nothing was measured yet
POLL_S = 5  # between two polls of a job by `run` in the foreground


@dataclass(frozen=True, slots=True)
class SpotNotice:
    """A cloud's interruption notice: `seconds` before the end; the agent has seen it after `seen_s` at most."""

    seconds: int
    seen_s: int

    @property
    def copy_after_s(self) -> int:
        """Seconds from the notice to the begin of a last copy, at worst, with `run` in the foreground."""
        return self.seen_s + POLL_S


NOTICES = {
    "aws": SpotNotice(120, 5 + 10),  # the machine's lease script polls every 5 s, its agent every 10 s
    "gcp": SpotNotice(30, 5 + 10),
    "azure": SpotNotice(30, 5 + 10),
}


@dataclass(frozen=True, slots=True)
class MeasuredCopies:
    """Measurements of a job's copies: bytes a second, size of the last complete checkpoint, of all results; or None."""

    bytes_per_s: float | None = None
    checkpoint_bytes: int | None = None
    results_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SpotNoticeFit:
    """How many bytes can be copied within a notice at `bytes_per_s`, measured on `measured_on` (None: assumed).

    `previous_bytes` is the size of the last checkpoint of `previous_job`, an earlier job of that name, if one has run.
    """

    notice: SpotNotice
    bytes_per_s: float
    measured_on: str | None
    previous_bytes: int | None
    previous_job: str

    @property
    def copyable_bytes(self) -> int:
        """How much is copied between the begin of a last copy and the end of the machine."""
        return int(self.bytes_per_s * max(0, self.notice.seconds - self.notice.copy_after_s))

    @property
    def previous_fits(self) -> bool | None:
        """Whether the last checkpoint fits; None if none is known."""
        return None if self.previous_bytes is None else self.previous_bytes <= self.copyable_bytes


def notice_fit(
    provider: str, rate: float | None, measured_on: str | None, previous_bytes: int | None, previous_job: str
) -> SpotNoticeFit | None:
    """Return what fits the notice of a provider's spot machines; None for one whose notice is not known.

    `rate` is the bytes a second measured on the machine type `measured_on`, None for none; `previous_bytes` is the size
    of the last checkpoint of `previous_job`.
    """
    notice = NOTICES.get(provider)
    if notice is None:
        return None
    is_measured = rate is not None and rate > 0
    return SpotNoticeFit(
        notice,
        rate if rate and is_measured else ASSUMED_RATE,
        measured_on if is_measured else None,
        previous_bytes,
        previous_job,
    )
