"""Says what still leaves a spot machine between its notice and its end. Pure.

How long before its end a cloud says that it takes a machine is in docs/machine.md, with its sources; so is how often
the machine looks. From the notice to the begin of a last copy it takes that look, the agent's next one and the
watcher's, one after the other at worst.
"""

from __future__ import annotations

from dataclasses import dataclass

ASSUMED_RATE = 5_000_000  # bytes a second, 40 Mbit/s: a usual connection at home, where nothing was measured yet
POLL_S = 5  # how often `run` in front polls its job


@dataclass(frozen=True, slots=True)
class SpotNotice:
    """What a cloud gives: `seconds` from its notice to the end, `seen_s` until the machine's agent has seen it."""

    seconds: int
    seen_s: int

    @property
    def begins_s(self) -> int:
        """Seconds until a last copy has begun, at worst, where `run` is in front."""
        return self.seen_s + POLL_S


NOTICES = {
    "aws": SpotNotice(120, 5 + 10),  # the machine's lease script polls every 5 s, its agent every 10 s
    "gcp": SpotNotice(30, 5 + 10),
    "azure": SpotNotice(30, 5 + 10),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """What was seen of the copies of a job: bytes a second, the last whole checkpoint, all results; None: nothing."""

    bytes_per_s: float | None = None
    checkpoint_bytes: int | None = None
    results_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SpotNoticeFit:
    """What fits a notice: `fits_bytes` at `bytes_per_s`, measured on `measured_on` (None: the rate is assumed).

    `previous_bytes` is the size of the last checkpoint of `previous_job`, an earlier job of that name, if one has run.
    """

    notice: SpotNotice
    bytes_per_s: float
    measured_on: str | None
    previous_bytes: int | None
    previous_job: str

    @property
    def fits_bytes(self) -> int:
        """How much is copied between the begin of a last copy and the end of the machine."""
        return int(self.bytes_per_s * max(0, self.notice.seconds - self.notice.begins_s))

    @property
    def previous_fits(self) -> bool | None:
        """Whether the last checkpoint would; None where none is known."""
        return None if self.previous_bytes is None else self.previous_bytes <= self.fits_bytes


def fit_of(
    provider: str, rate: float | None, on: str | None, last: int | None, previous_job: str
) -> SpotNoticeFit | None:
    """Return what fits the notice of a provider's spot machines; None for one whose notice is not known.

    `rate` is what was measured on a machine of the type `on`, None for nothing; `last` the size of a checkpoint.
    """
    notice = NOTICES.get(provider)
    if notice is None:
        return None
    measured = rate is not None and rate > 0
    return SpotNoticeFit(
        notice, rate if rate and measured else ASSUMED_RATE, on if measured else None, last, previous_job
    )
