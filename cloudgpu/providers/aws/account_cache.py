"""Caches in files, by access key, what AWS answered about an account: its id, and which regions it has.

An access key belongs to one account for ever, so another account never reads these files. The cached id is used where
AWS does not answer.

The regions are cached for a day, so that not every run of the reaper asks for them. They hide no machine of ours. Only
runs of the reaper use them; a nightly run, a launch and a sync that a user asks for (`ls --refresh`) ask AWS again, and
so renew them. A listing covers the regions in which the ledger has machines too; where one of all these does not
answer, AWS is asked at once which regions there are.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cloudgpu.core.values.naming import digest
from cloudgpu.errors import CloudgpuError, ProviderUnavailable
from cloudgpu.providers.aws.ids import REGION
from cloudgpu.providers.shared.account import write_file

ACCOUNT_ID = re.compile(r"[0-9]{12}")
MIN_RETENTION_S = 30 * 24 * 3600.0  # files that were last written longer ago are removed, and AWS is asked again
REGIONS_VALID_FOR = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class AccountCache:
    """The files of one configured account below `home`; `access_key` returns the id of its present access key."""

    home: Path
    access_key: Callable[[], str]

    def account_id(self, query: Callable[[], str]) -> str:
        """Return the account (12 digits) of the present credentials, as `query` (GetCallerIdentity of STS) returns it.

        That needs no permission, and works even where a policy denies it (AWS STS API Reference, GetCallerIdentity).
        Where STS does not answer, return its earlier answer for the same access key: otherwise one region that does
        not answer would keep cloudgpu from ending machines in all others. Raises ProviderUnavailable without one.
        """
        try:
            answered_id = query()
        except ProviderUnavailable:
            cached = _read_account_id(self._file("accounts"))
            if cached is None:
                raise
            return cached
        with suppress(OSError):  # a full disk, say: then it is asked again
            file = self._file("accounts")
            if _read_account_id(file) != answered_id:
                _write(file, answered_id)
        return answered_id

    def read_regions(self, now: datetime) -> list[str] | None:
        """Return all regions that AWS named in the last day for this key; None where it did not, or for a bad file."""
        with suppress(OSError, ValueError, KeyError, TypeError, CloudgpuError):
            found = json.loads(self._file("regions").read_text(encoding="ascii"))
            names, age_s = [str(one) for one in found["regions"]], now.timestamp() - float(found["at"])
            is_valid = names and all(REGION.fullmatch(one) for one in names)
            return names if is_valid and 0 <= age_s < REGIONS_VALID_FOR.total_seconds() else None
        return None

    def write_regions(self, names: Sequence[str], now: datetime) -> None:
        """Store these regions; a full disk is no error: they are asked for again."""
        with suppress(OSError, CloudgpuError):
            _write(self._file("regions"), json.dumps({"at": now.timestamp(), "regions": list(names)}))

    def _file(self, directory: str) -> Path:
        return self.home / directory / digest(self.access_key())[:16]


def _read_account_id(file: Path) -> str | None:
    """Return the account id in a file; None where there is no file, or no id in it."""
    with suppress(OSError, UnicodeDecodeError):
        found = file.read_text(encoding="ascii").strip()
        return found if ACCOUNT_ID.fullmatch(found) else None
    return None


def _write(file: Path, text: str) -> None:
    """Write a file, and remove old ones, most of keys no longer used: a login makes a key every few hours."""
    write_file(file, text)
    for one in file.parent.iterdir():
        if time.time() - one.stat().st_mtime > MIN_RETENTION_S:
            one.unlink(missing_ok=True)
