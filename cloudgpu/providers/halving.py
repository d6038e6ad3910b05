"""Asks for many things in one call, and halves a call that is refused until the one at fault is alone.

A cloud refuses a call about forty machines whole when one of them cannot be stopped. Halved, one at fault costs at
most 2 x ceil(log2 n) calls more, and the others are stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, log2

from cloudgpu.errors import AuthFailed, CloudgpuError, EndRefused, InstanceNotFound, InvalidRequest

Refused = dict[str, CloudgpuError]
_ABOUT_ONE = (
    InvalidRequest,
    InstanceNotFound,
    AuthFailed,
    EndRefused,
)  # others (no answer, throttled) are about the whole call


def halved(ids: Sequence[str], ask: Callable[[Sequence[str]], None]) -> Refused:
    """Ask about all of `ids`, in halves where that is refused; return why not, by id, for those that were not asked.

    `ask` raises what the provider says of a whole call. A permission may be missing for one machine (it depends on
    tags): such a refusal is halved too, until more calls were denied in a row than one machine can be the cause of.
    """
    return _Halving(ask, 2 * ceil(log2(max(2, len(ids)))) + 1).asked(list(ids))


class _Halving:
    """One run: the denials since a call was taken, and how many of them are enough."""

    def __init__(self, ask: Callable[[Sequence[str]], None], enough: int) -> None:
        self._ask = ask
        self._enough = enough
        self._denied: list[AuthFailed] = []

    def asked(self, ids: Sequence[str]) -> Refused:
        """Ask about these; return those that were refused."""
        if not ids or len(self._denied) >= self._enough:
            return dict.fromkeys(ids, self._denied[-1]) if ids else {}
        try:
            self._ask(ids)
        except CloudgpuError as fault:
            return self._parted(ids, fault)
        self._denied.clear()
        return {}

    def _parted(self, ids: Sequence[str], fault: CloudgpuError) -> Refused:
        if isinstance(fault, AuthFailed):
            self._denied.append(fault)
        if len(ids) == 1 or not isinstance(fault, _ABOUT_ONE):
            return dict.fromkeys(ids, fault)
        half = len(ids) // 2
        return {**self.asked(ids[:half]), **self.asked(ids[half:])}
