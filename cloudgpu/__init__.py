"""cloudgpu: rents GPU machines in one command, within budgets, and compares renting them with buying a desktop.

The library is `connect()`, `Cloudgpu` and the errors. Importing it imports only these: a call imports what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.errors import (
    AnswerTimeout,
    AuthFailed,
    BudgetRefused,
    CloudgpuError,
    EndRefused,
    Frozen,
    InstanceNotFound,
    InvalidRequest,
    LaunchUncertain,
    LedgerDenied,
    LedgerMoved,
    LedgerUnavailable,
    LockBusy,
    MissingExtra,
    NoCapacity,
    NotReachableHere,
    ProviderUnavailable,
    QuotaExceeded,
    RateLimited,
    RoleNeeded,
    StopUnproved,
    Unreachable,
    WrongHostKey,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from cloudgpu.control.api.client import Cloudgpu

__version__ = "0.1.0"
__all__ = [
    "AnswerTimeout",
    "AuthFailed",
    "BudgetRefused",
    "Cloudgpu",
    "CloudgpuError",
    "EndRefused",
    "Frozen",
    "InstanceNotFound",
    "InvalidRequest",
    "LaunchUncertain",
    "LedgerDenied",
    "LedgerMoved",
    "LedgerUnavailable",
    "LockBusy",
    "MissingExtra",
    "NoCapacity",
    "NotReachableHere",
    "ProviderUnavailable",
    "QuotaExceeded",
    "RateLimited",
    "RoleNeeded",
    "StopUnproved",
    "Unreachable",
    "WrongHostKey",
    "connect",
]


def connect(
    *,
    home: Path | str | None = None,
    environ: Mapping[str, str] | None = None,
    tell: Callable[[str], None] | None = None,
    clock: Callable[[], datetime] | None = None,
) -> Cloudgpu:
    """Return the command line as methods of five parts: `machines`, `jobs`, `money`, `automation`, `advice`.

    Settings, ledger and machines are those of the command line. It never asks: a call of `up`, `stop` or `down` is
    consent to what it spends or destroys. `home` is the directory of everything (absolute; else CLOUDGPU_HOME of
    `environ`, else the platform's place); `tell` gets a sentence per stage; `clock` returns the time, as aware UTC.
    No network call, no file. Raises InvalidRequest for the settings, LedgerUnavailable for an unreadable ledger.
    """
    from cloudgpu.control.api.client import open_client

    return open_client(home=home, environ=environ, tell=tell, clock=clock)


if not TYPE_CHECKING:  # for type checkers the import above defines it, and a misspelt name stays an error

    def __getattr__(name: str) -> object:
        """Import the class only when somebody names it."""
        if name != "Cloudgpu":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from cloudgpu.control.api.client import Cloudgpu

        return Cloudgpu
