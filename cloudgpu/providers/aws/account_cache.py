"""What AWS has said of an account, kept in files by the key of its credentials: its id, and which regions it has.

A key belongs to one account for ever, so another account never finds what is kept. The id stands in for AWS where that
does not answer.

The regions are kept for a day, so that not every pass of the reaper asks. They hide no machine of ours. Only passes use
them; a nightly pass, a launch and a look that a user asks for (`ls --refresh`) ask anew, and so renew them. The regions
in which the ledger has machines are listed with them, and where one of these regions does not answer, AWS is asked at
once which there are.
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
KEPT_S = 30 * 24 * 3600.0  # seconds that what is known of a key is kept at least
REGIONS_VALID_FOR = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class AccountCache:
    """The files of one configured account; `access_key` returns the public part of its credentials of now."""

    home: Path
    access_key: Callable[[], str]

    def account_id(self, query: Callable[[], str]) -> str:
        """Return the account (12 digits) of the credentials of now, as `query` (GetCallerIdentity of STS) returns it.

        That needs no permission, and works even where a policy denies it (AWS STS API Reference, GetCallerIdentity).
        Where STS does not answer, it is what it said of the very same key before: a key never changes its account. A
        region that is silent would keep cloudgpu from ending machines in all others else.
        """
        try:
            found = query()
        except ProviderUnavailable:
            kept = _read_account_id(self._file("accounts"))
            if kept is None:
                raise
            return kept
        with suppress(OSError):  # a full disk, say: then it is asked again
            file = self._file("accounts")
            if _read_account_id(file) != found:
                _write(file, found)
        return found

    def read_regions(self, now: datetime) -> list[str] | None:
        """Return all regions that AWS named in the last day for this key; None where it did not, or for a bad file."""
        with suppress(OSError, ValueError, KeyError, TypeError, CloudgpuError):
            found = json.loads(self._file("regions").read_text(encoding="ascii"))
            names, age_s = [str(one) for one in found["regions"]], now.timestamp() - float(found["at"])
            is_valid = names and all(REGION.fullmatch(one) for one in names)
            return names if is_valid and 0 <= age_s < REGIONS_VALID_FOR.total_seconds() else None
        return None

    def write_regions(self, names: Sequence[str], now: datetime) -> None:
        """Keep these; a disk that takes nothing is no error: they are asked for again."""
        with suppress(OSError, CloudgpuError):
            _write(self._file("regions"), json.dumps({"at": now.timestamp(), "regions": list(names)}))

    def _file(self, directory: str) -> Path:
        return self.home / directory / digest(self.access_key())[:16]


def _read_account_id(file: Path) -> str | None:
    """Return the account that a file tells, None where it tells none."""
    with suppress(OSError, UnicodeDecodeError):
        found = file.read_text(encoding="ascii").strip()
        return found if ACCOUNT_ID.fullmatch(found) else None
    return None


def _write(file: Path, text: str) -> None:
    """Write a file, and remove those of old keys: a login makes a key every few hours. One in use is asked again."""
    write_file(file, text)
    for one in file.parent.iterdir():
        if time.time() - one.stat().st_mtime > KEPT_S:
            one.unlink(missing_ok=True)
