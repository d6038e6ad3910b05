"""Which AWS account credentials belong to, and a machine was launched in: others prove nothing about its end."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cloudgpu.core.names import digest
from cloudgpu.errors import AuthFailed, ProviderUnavailable

if TYPE_CHECKING:
    from pathlib import Path

    from cloudgpu.providers.aws.client import Aws


def number(aws: Aws) -> str:
    """Return the account (12 digits) of the credentials of now: one call, GetCallerIdentity.

    It needs no permission, and works even where a policy denies it (AWS STS API Reference, GetCallerIdentity). Where
    STS does not answer, it is what it said of the very same key before: a key never changes its account. A region that
    is silent would keep cloudgpu from ending machines in all others else.
    """
    home = aws.options.home_region
    try:
        with aws.said("GetCallerIdentity", home):
            found = str(aws.client("sts", home).get_caller_identity()["Account"])
    except ProviderUnavailable:
        known = _of_key(aws)
        if not known.exists():
            raise
        return known.read_text(encoding="ascii").strip()
    with suppress(OSError):  # a full disk, say: then it is asked again
        file = _of_key(aws)
        if not file.exists():
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.write_text(f"{found}\n", encoding="ascii")
    return found


def _of_key(aws: Aws) -> Path:
    return aws.home / "accounts" / digest(aws.access_key())[:16]


def remember(aws: Aws, own: str, number: str) -> None:
    """Write down in which AWS account (12 digits) a machine was launched."""
    file = _file(aws, own)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_text(f"{number}\n", encoding="ascii")


def check(aws: Aws, own: str) -> None:
    """Raise AuthFailed where the credentials of now are another account's than the machine `own` was launched with.

    AWS answers for a machine of another account as for one that there is not. No call for a machine that was not
    launched from here.
    """
    try:
        number = _file(aws, own).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return
    now = aws.number()
    if now != number:
        raise AuthFailed(
            f"{own} was launched in the AWS account {number}, and the credentials of {aws.account} are of {now} now: "
            "whether it still runs is not known.",
            field="credentials",
            value=now,
            next=f"Use the credentials of {number} again, or give {now} an account of its own in config.toml.",
        )


def _file(aws: Aws, own: str) -> Path:
    return aws.home / "owners" / own
