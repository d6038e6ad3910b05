"""Which AWS account credentials belong to: asked of AWS, and remembered by key for when it does not answer."""

from __future__ import annotations

import re
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Protocol

from cloudgpu.core.values.naming import digest
from cloudgpu.errors import ProviderUnavailable
from cloudgpu.providers.aws.ids import AwsOptions
from cloudgpu.providers.shared.account import write_file

NUMBER = re.compile(r"[0-9]{12}")
REMEMBERED_S = 30 * 24 * 3600.0  # seconds that the account of a key is remembered at least


class Credentials(Protocol):
    """An account's client (`cloudgpu.providers.aws.client.Aws`), as far as its owner is asked for."""

    account: str
    options: AwsOptions
    home: Path

    def client(self, service: str, region: str) -> Any:
        """Return the client of a service in a region."""

    def calling(self, action: str, region: str) -> AbstractContextManager[None]:
        """Let the errors of a call out in our own words."""

    def access_key(self) -> str:
        """Return the public part of the credentials."""

    def account_id(self) -> str:
        """Return the number of the account, asked once."""


def number(aws: Credentials) -> str:
    """Return the account (12 digits) of the credentials of now: one call, GetCallerIdentity.

    It needs no permission, and works even where a policy denies it (AWS STS API Reference, GetCallerIdentity). Where
    STS does not answer, it is what it said of the very same key before: a key never changes its account. A region that
    is silent would keep cloudgpu from ending machines in all others else.
    """
    try:
        found = _ask_sts(aws)
    except ProviderUnavailable:
        known = _read_account(_of_key(aws))
        if known is None:
            raise
        return known
    with suppress(OSError):  # a full disk, say: then it is asked again
        file = _of_key(aws)
        if _read_account(file) != found:
            write_file(file, found)
            drop_old(file.parent)
    return found


def _ask_sts(aws: Credentials) -> str:
    home = aws.options.home_region
    with aws.calling("GetCallerIdentity", home):
        found = str(aws.client("sts", home).get_caller_identity()["Account"])
    if not NUMBER.fullmatch(found):
        raise ProviderUnavailable(f"STS says that the account is {found!r}, which is not a number of an account.")
    return found


def _of_key(aws: Credentials) -> Path:
    return aws.home / "accounts" / name_of_key(aws)


def name_of_key(aws: Credentials) -> str:
    """Return what files are called that say something of the account of these credentials: a key has one for ever."""
    return digest(aws.access_key())[:16]


def _read_account(file: Path) -> str | None:
    """Return the account that a file tells, None where it tells none."""
    with suppress(OSError, UnicodeDecodeError):
        found = file.read_text(encoding="ascii").strip()
        return found if NUMBER.fullmatch(found) else None
    return None


def drop_old(directory: Path) -> None:
    """Remove what was written long ago: a login makes a new key every few hours. A key that lasts is asked again."""
    for file in directory.iterdir():
        if time.time() - file.stat().st_mtime > REMEMBERED_S:
            file.unlink(missing_ok=True)
