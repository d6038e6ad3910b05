"""cloudgpu: rents GPU machines in one command, within budgets, and compares renting them with buying a desktop.

The library is `connect()`, the class `Cloudgpu` and the errors. Importing it imports only the errors: what a call
needs is imported by the call.
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

    Settings, ledger and machines are those of the command line. The library never asks: calling `up`, `stop` or `down`
    is consent to what it spends or destroys. `home` is where everything is kept (an absolute path; else CLOUDGPU_HOME
    of `environ`, else the platform's place); `environ` replaces the environment variables; `tell` is called with
    one sentence of progress per stage; `clock` returns the time, as aware UTC. Makes no network call and no file.
    Raises InvalidRequest for errors in the settings and LedgerUnavailable for a ledger that cannot be read.
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
