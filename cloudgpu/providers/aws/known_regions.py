"""Remembers for a day which regions an account of AWS has, so that not every pass of the reaper asks.

What is remembered hides no machine of ours. Only passes use it; a nightly pass, a launch and a look that a user
asks for (`ls --refresh`) ask anew, and so renew it. The regions in which the ledger has machines are
listed with it, and where one of its regions does not answer, AWS is asked at once which there are. It is kept by the
key, which belongs to one account for ever (`account_number`): another account never finds it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.aws.account_number import Credentials, drop_old, name_of_key
from cloudgpu.providers.aws.ids import REGION
from cloudgpu.providers.shared.account import write_file

VALID_FOR = timedelta(days=1)
_APART = ("cn-", "us-gov-", "us-iso", "eu-isoe-", "eusc-")  # partitions: their accounts have no region of another one


class RegionClient(Credentials, Protocol):
    """An account's client, as far as its regions are remembered."""

    clock: Callable[[], datetime]


def read_regions(aws: RegionClient) -> list[str] | None:
    """Return all regions that AWS named within the last day for this key; None where it did not, or for a bad file."""
    with suppress(OSError, ValueError, KeyError, TypeError, CloudgpuError):
        found = json.loads(_file(aws).read_text(encoding="ascii"))
        names, age = [str(one) for one in found["regions"]], aws.clock().timestamp() - float(found["at"])
        whole = names and all(REGION.fullmatch(one) for one in names)
        return names if whole and 0 <= age < VALID_FOR.total_seconds() else None
    return None


def write(aws: RegionClient, names: Sequence[str]) -> None:
    """Remember these; a disk that takes nothing is no error: they are asked for again."""
    with suppress(OSError, CloudgpuError):
        file = _file(aws)
        write_file(file, json.dumps({"at": aws.clock().timestamp(), "regions": list(names)}))
        drop_old(file.parent)


def may_be_of(home_region: str, name: str) -> bool:
    """Say whether a region can be one of the account with this home: of the same partition (AWS, China, GovCloud)."""
    return bool(REGION.fullmatch(name)) and _partition(home_region) == _partition(name)


def _partition(name: str) -> str:
    return next((one for one in _APART if name.startswith(one)), "")


def _file(aws: RegionClient) -> Path:
    return aws.home / "regions" / name_of_key(aws)
