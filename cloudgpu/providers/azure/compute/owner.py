"""Which subscription a machine was launched in, kept beside it: another one proves nothing about its end."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.errors import AuthFailed

if TYPE_CHECKING:
    from pathlib import Path

    from cloudgpu.providers.azure.client import Azure


def remember(azure: Azure, group: str) -> None:
    """Write down in which subscription the machine of a group is launched, before anything is sent for it."""
    file = _file(azure, group)
    if file.exists():
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = file.with_name(f".{group}.{os.getpid()}-{threading.get_ident()}")  # nobody reads half of one
    part.write_text(f"{azure.subscription}\n", encoding="ascii")
    part.replace(file)


def check(azure: Azure, group: str) -> None:
    """Raise AuthFailed where the account's subscription is another one now than the machine was launched in.

    Azure answers there as for a machine that there is not. No call; a machine that was not launched from here is not
    known.
    """
    try:
        before = _file(azure, group).read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return
    now = azure.subscription
    if now.lower() != before.lower():
        raise AuthFailed(
            f"{group} was launched in the subscription {before}, and the account {azure.account} is of {now} now: "
            "whether it still runs is not known.",
            field="subscription",
            value=now,
            next=f"Use the subscription {before} again, or give {now} an account of its own in config.toml.",
        )


def forget(azure: Azure, group: str) -> None:
    """Forget it: the machine's end is proved in its own subscription."""
    _file(azure, group).unlink(missing_ok=True)


def elsewhere(azure: Azure) -> list[Unanswered]:
    """Return the machines that were launched in another subscription than the account's of now: nobody asks there."""
    there = sorted(one.name for one in (azure.home / "owners").glob("cloudgpu-*"))
    found = []
    for group in there:
        try:
            check(azure, group)
        except AuthFailed as fault:
            found.append(Unanswered(group, f"{fault.message} {fault.next}"))
    return found


def _file(azure: Azure, group: str) -> Path:
    return azure.home / "owners" / group
