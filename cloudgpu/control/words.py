"""What a user wishes, word by word, checked before anything is asked of a provider."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from cloudgpu.config.files.text import shown
from cloudgpu.config.settings import LONGEST
from cloudgpu.core.model.launch import Setup
from cloudgpu.core.model.offers import Want
from cloudgpu.core.values.naming import NAME, NAME_RULE, tag_value
from cloudgpu.errors import InvalidRequest

_USUAL = Setup()


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user typed, checked word by word, before anything is asked of a provider."""

    want: Want
    setup: Setup = _USUAL
    spot: bool | None = None  # None: the market of the settings
    account: str | None = None
    provider: str | None = None
    name: str | None = None
    key: str | None = None
    new: bool = False
    template: str | None = None
    policy: str | None = None
    lease: timedelta | None = None
    renew_until: timedelta | None = None
    owner: str | None = None
    project: str | None = None
    override: str | None = None  # why it may pass a budget


def check_words(wish: Wish) -> None:
    """Raise InvalidRequest for the first word that cannot be meant."""
    _check_name(wish.name)
    _check_key(wish.key, new=wish.new)
    check_line("--owner", wish.owner)
    check_line("--project", wish.project)
    check_reason(wish.override)
    for option, text in {
        "--provider": wish.provider,
        "--account": wish.account,
        "--template": wish.template,
        "--policy": wish.policy,
        "--instance-type": wish.want.instance_type,
        "--region": wish.want.region,
        "--zone": wish.want.zone,
        "--image": wish.setup.image,
        "--subnet": wish.setup.network.subnet,
        "--security-group": wish.setup.network.security_group,
    }.items():
        if text is not None and not text.strip():  # an unset variable in a script, say: never "anything will do"
            way_out = f"Name one, or leave {option} out."
            raise InvalidRequest(f"{option} is empty.", field=option, value=text, next=way_out)


def _check_name(name: str | None) -> None:
    if name is None or NAME.fullmatch(name):
        return
    raise InvalidRequest(
        f"{shown(name)!r} cannot be a machine's name: {NAME_RULE}.",
        field="--name",
        value=name,
        next="Choose a name like brave-otter, or leave it out.",
    )


def _check_key(key: str | None, *, new: bool) -> None:
    if key is None:
        return
    if not key or tag_value(key) != key or key.startswith("auto-"):
        raise InvalidRequest(
            f"{shown(key)!r} cannot be a launch key: use 1 to 63 of a-z, 0-9, _ and -, not beginning with auto-.",
            field="--key",
            value=key,
            next="For example --key experiment-7",
        )
    if new:
        raise InvalidRequest(
            "--new and --key contradict each other: a key stands for one machine.",
            field="--new",
            value=key,
            next="Leave one of them out.",
        )


def check_reason(reason: str | None) -> str | None:
    """Return the reason of an override; raise InvalidRequest for one that is no line of text: somebody will read it."""
    check_line("--override", reason)
    return reason and reason.strip()


def check_line(option: str, text: str | None) -> None:
    """Refuse what could not stand on one line of a table, or would colour a terminal."""
    if text is None or (text.strip() and text.isprintable() and len(text) <= LONGEST):
        return
    raise InvalidRequest(
        f"{option} has to be one line of 1 to {LONGEST} characters, not {shown(text)}.",
        field=option,
        value=shown(text),
        next=f"Write it in plain text, or leave {option} out.",
    )
