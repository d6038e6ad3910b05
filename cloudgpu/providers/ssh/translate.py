"""From what a host answers to offers and `Instance`; decides nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from cloudgpu.core.facts import (
    TAG_EXPIRES,
    Accelerator,
    AccountIdentity,
    Address,
    Available,
    Basis,
    Instance,
    Market,
    Price,
    State,
)
from cloudgpu.core.money import ZERO, Money
from cloudgpu.core.names import digest
from cloudgpu.providers.ssh.options import Host

KIND = "ssh"
STOP_MEANS = "ends what cloudgpu started there and keeps ~/.cloudgpu; the machine itself stays on"
_ID = re.compile(r"([a-z][a-z0-9-]{0,39})\.[0-9a-f]{16}")
_MIB_PER_GIB = 1024


def writes(name: str, *, template: bool) -> tuple[str, ...]:
    """Return what a launch writes in the home of a host, and what becomes of it."""
    places = "~/.cloudgpu (the agent, packages, Jupyter's own files) and a line in ~/.ssh/authorized_keys"
    shown = f"~/cloudgpu-{name} gets what the template's script makes; down keeps only what you changed or added"
    return (f"writes {places}; down removes both", *[shown] * template)


def instance_id(host: str, token: str) -> str:
    """Return the instance id that follows from a host's name and a launch token."""
    return f"{host}.{digest('ssh instance', token)[:16]}"


def identity(host: Host, user: str, known_key: str, here: Mapping[str, Any]) -> AccountIdentity:
    """Return which computer, user and home answered; without a machine id its host key and name stand for that."""
    computer = here["computer"] or f"{key_digest(known_key)}:{here['name']}"
    words = f"{here['name']} (user {user}, at {host.host})"
    return AccountIdentity("ssh host", f"{computer}/{here['uid']}{quote(here['home'])}", words)


def key_digest(public: str) -> str:
    """Return what tells this public key from others, whatever its comment."""
    return digest("ssh host key", *public.split()[:2])[:32]


def host_of(id_: str) -> str | None:
    """Return the name of the host that an instance id belongs to; None for what is no id."""
    found = _ID.fullmatch(id_)
    return found[1] if found else None


def available(account: str, host: Host, facts: Mapping[str, Any]) -> Available:
    """Return the host as an offer; what the settings say of its GPUs wins over what `nvidia-smi` says there."""
    return Available(
        provider=KIND,
        account=account,
        region=host.name,
        zone=host.name,
        instance_type=host.name,
        market=Market.ON_DEMAND,
        accelerators=settings_gpus(host) or _measured_gpus(facts["gpus"]),
        vcpus=facts["cpus"],
        memory_gib=facts["memory_gib"],
        stop_means=STOP_MEANS,
    )


def settings_gpus(host: Host) -> tuple[Accelerator, ...]:
    """Return the GPUs that the settings name."""
    return (Accelerator(host.gpu, host.gpu_count, host.gpu_memory_gib),) if host.gpu else ()


def _measured_gpus(rows: Sequence[Sequence[str]]) -> tuple[Accelerator, ...]:
    counted = Counter((name, mib) for name, mib in rows)
    return tuple(
        Accelerator(name, count, round(int(mib) / _MIB_PER_GIB, 1) if mib.isdigit() else None)
        for (name, mib), count in counted.items()
    )


def price(host: Host, now: datetime) -> Price:
    """Return watts times tariff; zero, and said so, where the settings do not give both."""
    if host.watts is None or host.usd_per_kwh is None:
        lacking = " and ".join(key for key in ("watts", "usd_per_kwh") if getattr(host, key) is None)
        source = f"your own machine; its electricity is not counted: {host.field} has no {lacking}"
        return Price(ZERO, source, now, Basis.SETTING)
    source = f"{host.watts} W x {host.usd_per_kwh} $/kWh ({host.field}), your own machine's electricity"
    return Price(Money.usd(host.watts * host.usd_per_kwh / 1000), source, now, Basis.SETTING)


def instance(account: str, host: Host, address: Address, said: Mapping[str, Any]) -> Instance:
    """Return the machine as its host tells now."""
    state = _state(said)
    name = host_of(str(said["id"])) or host.name  # as it was launched: others may call the same host otherwise
    since = said["ended"]["at"] if said["ended"] else said["boot_at"]
    return Instance(
        provider=KIND,
        account=account,
        id=str(said["id"]),
        state=state,
        billed=state is not State.STOPPED,
        tags=_tags(said),
        region=name,
        zone=name,
        instance_type=name,
        market=Market.ON_DEMAND,
        launched_at=_time(said["launched_at"]),
        since=_time(since),
        address=address if state is State.RUNNING else None,
        accelerators=tuple(Accelerator(**gpu) for gpu in said["gpus"]),
        last_active=_epoch(said.get("last-active")),
        reason=_reason(said),
    )


def _state(said: Mapping[str, Any]) -> State:
    if said["wanted"] == "running":
        return State.RUNNING if said["alive"] else State.PENDING
    return State.STOPPED if said["ended"] else State.STOPPING


def _reason(said: Mapping[str, Any]) -> str | None:
    if said["ended"]:
        return str(said["ended"]["reason"])
    status = said.get("on_start.status", "0")
    if status in ("0", "running"):
        return None
    return f"on_start failed with status {status}: see ~/.cloudgpu/on_start.log there"


def _tags(said: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags, with the end of the lease as the agent has renewed it since."""
    found = {str(key): str(value) for key, value in said["tags"].items()}
    renewed = _epoch(said.get("expires"))
    tagged = _epoch(found.get(TAG_EXPIRES))
    if renewed and tagged and renewed > tagged:
        found[TAG_EXPIRES] = str(int(renewed.timestamp()))
    return found


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _epoch(text: str | None) -> datetime | None:
    try:
        return datetime.fromtimestamp(float(text), UTC) if text and text != "0" else None
    except (ValueError, OverflowError):
        return None
