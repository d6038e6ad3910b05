"""Which AWS account a machine was launched in, kept beside it: other credentials prove nothing about its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.errors import AuthFailed

if TYPE_CHECKING:
    from pathlib import Path

    from cloudgpu.providers.aws.client import Aws


def remember(aws: Aws, own: str, number: str) -> None:
    """Write down in which AWS account (12 digits) a machine was launched."""
    file = _file(aws, own)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.write_text(f"{number}\n", encoding="ascii")


def check(aws: Aws, own: str) -> None:
    """Raise AuthFailed where the credentials of now are another account's than the machine `own` was launched with.

    AWS answers for a machine of another account as for one that there is not. One call (GetCallerIdentity, which
    needs no permission); none for a machine that was not launched from here.
    """
    try:
        number = _file(aws, own).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return
    with aws.said("sts:GetCallerIdentity", aws.options.home_region):
        now = aws.client("sts", aws.options.home_region).get_caller_identity()["Account"]
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
