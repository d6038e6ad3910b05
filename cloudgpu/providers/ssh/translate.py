"""Translates a host's answers to offers and `Instance`; decides nothing.

`facts` is the answer to the request `facts`: the host's hardware, and who uses its GPUs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import TAG_EXPIRES, Address, Instance, State
from cloudgpu.core.model.offers import Accelerator, Basis, MachineConfiguration, Market, Price, Requirements, same_gpu
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import digest
from cloudgpu.providers import electricity
from cloudgpu.providers.ssh.options import Host

PROVIDER = "ssh"
STOP_EFFECT = "ends what cloudgpu started there and keeps ~/.cloudgpu; the machine itself stays on"
END_EFFECT = "What cloudgpu started there ends, and what it installed there is removed. Your own files stay."
_ID = re.compile(r"([a-z][a-z0-9-]{0,39})\.[0-9a-f]{16}")
_MIB_PER_GIB = 1024


def files_written(name: str, *, template: bool) -> tuple[str, ...]:
    """Return what a launch writes in the home of a host, and what becomes of it."""
    directories = "~/.cloudgpu (the agent, packages, Jupyter's own files) and a line in ~/.ssh/authorized_keys"
    work_note = f"~/cloudgpu-{name} gets what the template's script makes; down keeps only what you changed or added"
    return (f"writes {directories}; down removes both", *[work_note] * template)


def instance_id(host: str, token: str) -> str:
    """Return the instance id that follows from a host's name and a launch token."""
    return f"{host}.{digest('ssh instance', token)[:16]}"


def identity(host: Host, user: str, known_key: str, facts: Mapping[str, Any]) -> AccountIdentity:
    """Return which computer, user and home answered; without a machine id its host key and name stand for that."""
    computer = facts["computer"] or f"{key_digest(known_key)}:{facts['name']}"
    return AccountIdentity(
        "ssh host", f"{computer}/{facts['uid']}{quote(facts['home'])}", f"{facts['name']} (user {user}, at {host.host})"
    )


def key_digest(public_key: str) -> str:
    """Return a digest of a public key, without its comment."""
    return digest("ssh host key", *public_key.split()[:2])[:32]


def host_of(id_: str) -> str | None:
    """Return the name of the host that an instance id belongs to; None for any other text."""
    match = _ID.fullmatch(id_)
    return match[1] if match else None


def available(account: str, host: Host, facts: Mapping[str, Any], requirements: Requirements) -> MachineConfiguration:
    """Return the host as an offer; GPUs in the settings win over those that `nvidia-smi` reports there.

    Where the request names a GPU, a part of the host's GPUs is offered, if `nvidia-smi` reports each.
    """
    gpus = _machine_gpus(host, facts, requirements)
    return MachineConfiguration(
        provider=PROVIDER,
        account=account,
        region=host.name,
        zone=host.name,
        instance_type=host.name,
        market=Market.ON_DEMAND,
        accelerators=gpus,
        vcpus=facts["cpus"],
        memory_gib=facts["memory_gib"],
        stop_effect=STOP_EFFECT,
        after=tuple(_reasons_to_try_others_first(host, facts, gpus, requirements)),
        gpus_now=_gpus_now(facts, gpus),
    )


def _machine_gpus(host: Host, facts: Mapping[str, Any], requirements: Requirements) -> tuple[Accelerator, ...]:
    """Return the GPUs that a machine gets: as many as requested where the host has more, else all."""
    configured = (Accelerator(host.gpu, host.gpu_count, host.gpu_memory_gib),) if host.gpu else ()
    all_gpus = configured or _measured_gpus(facts["gpus"])
    total = sum(gpu.count for gpu in all_gpus)
    if requirements.gpu is None or len(facts["gpus"]) != total:
        return all_gpus
    fitting = [gpu for gpu in all_gpus if same_gpu(gpu.name, requirements.gpu) and gpu.count >= requirements.gpu_count]
    partial = [
        replace(gpu, count=requirements.gpu_count, out_of=total) for gpu in fitting if requirements.gpu_count < total
    ]
    return tuple(partial[:1]) or all_gpus


def _reasons_to_try_others_first(
    host: Host, facts: Mapping[str, Any], gpus: Sequence[Accelerator], requirements: Requirements
) -> Iterator[str]:
    """Yield why other hosts are to be tried before this one."""
    if facts["holder"]:
        yield f"{host.name} is in use by {facts['holder']}: it has one machine at a time"
    used_count = sum(1 for gpu in facts["used"] or () if gpu["taken"])
    free_count, needed = len(facts["gpus"]) - used_count, sum(gpu.count for gpu in gpus)
    if used_count and free_count < needed:
        total = len(facts["gpus"])
        used_gpus = "its GPU" if total == 1 else f"{used_count} of its {total} GPUs"
        refusal_note = f", and it refuses while fewer than {needed} are free" if requirements.gpu else ""
        yield f"others use {used_gpus} (host {host.name}): hosts that nobody uses are tried before it{refusal_note}"
    if host.watts is None and not electricity.assumed_draw(gpus).is_known:
        yield f"what the GPUs of {host.name} draw is not known: other hosts are tried before it"


def _gpus_now(facts: Mapping[str, Any], gpus: Sequence[Accelerator]) -> tuple[str, ...]:
    if facts["used"] is None:
        return ("not known: nvidia-smi has no answer there",) if gpus else ()
    return gpu_users(facts["used"]) or (("nobody uses them",) if gpus else ())


def gpu_users(used: Sequence[Mapping[str, Any]] | None) -> tuple[str, ...]:
    """Return who uses which GPU, in words."""
    return tuple(str(gpu["says"]) for gpu in used or ())


def _measured_gpus(rows: Sequence[Sequence[str]]) -> tuple[Accelerator, ...]:
    counts = Counter((name, memory_mib) for name, memory_mib, _ in rows)
    return tuple(
        Accelerator(name, count, round(int(memory_mib) / _MIB_PER_GIB, 1) if memory_mib.isdigit() else None)
        for (name, memory_mib), count in counts.items()
    )


def price(host: Host, gpus: Sequence[Accelerator], now: datetime) -> Price:
    """Return watts times tariff: by the settings, else by usual figures, which the price's basis and source say."""
    draw = electricity.assumed_draw(gpus) if host.watts is None else electricity.draw_from_setting(host.watts, gpus)
    tariff = electricity.USD_PER_KWH if host.usd_per_kwh is None else host.usd_per_kwh
    missing_keys = [key for key in ("watts", "usd_per_kwh") if getattr(host, key) is None]
    setting = f"{host.field} has no {' and no '.join(missing_keys)}" if missing_keys else host.field
    source = f"your own machine's electricity: {draw.explanation} x {tariff} $/kWh ({setting})"
    basis = Basis.ASSUMED if missing_keys else Basis.SETTING
    return Price(Money.usd(draw.watts * tariff / 1000), source, now, basis)


def metered_price(host: Host, gpus: Sequence[Accelerator], draw: electricity.PowerDraw, now: datetime) -> Price | None:
    """Return measured watts times the settings' tariff; None where those have the watts, or no tariff."""
    if not gpus or host.watts is not None or host.usd_per_kwh is None:
        return None
    source = f"your own machine's electricity: {draw.explanation}, x {host.usd_per_kwh} $/kWh ({host.field})"
    return Price(Money.usd(draw.watts * host.usd_per_kwh / 1000), source, now, Basis.MEASURED)


def instance(
    account: str, host: Host, address: Address, record: Mapping[str, Any], gpus_now: tuple[str, ...] = ()
) -> Instance:
    """Return the machine as its host reports it now, with who uses the GPUs there, where that was queried."""
    state = _state(record)
    name = host_of(str(record["id"])) or host.name  # as it was launched: others may call the same host otherwise
    since = record["ended"]["at"] if record["ended"] else record["boot_at"]
    return Instance(
        provider=PROVIDER,
        account=account,
        id=str(record["id"]),
        state=state,
        billed=state is not State.STOPPED,
        tags=_tags(record),
        region=name,
        zone=name,
        instance_type=name,
        market=Market.ON_DEMAND,
        launched_at=_time(record["launched_at"]),
        since=_time(since),
        address=address if state is State.RUNNING else None,
        accelerators=tuple(Accelerator(**gpu) for gpu in record["gpus"]),
        last_active=_epoch(record.get("last-active")),
        reason=_reason(record),
        gpus_now=gpus_now,
    )


def _state(record: Mapping[str, Any]) -> State:
    if record["wanted"] == "running":
        return State.RUNNING if record["alive"] else State.PENDING
    return State.STOPPED if record["ended"] else State.STOPPING


def _reason(record: Mapping[str, Any]) -> str | None:
    if record["ended"]:
        return str(record["ended"]["reason"])
    status = record.get("on_start.status", "0")
    if status in ("0", "running"):
        return None
    return f"on_start failed with status {status}: see ~/.cloudgpu/on_start.log there"


def _tags(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags, with the end of the lease as the agent has renewed it since."""
    tags = {str(key): str(value) for key, value in record["tags"].items()}
    renewed_expires = _epoch(record.get("expires"))
    tag_expires = _epoch(tags.get(TAG_EXPIRES))
    if renewed_expires and tag_expires and renewed_expires > tag_expires:
        tags[TAG_EXPIRES] = str(int(renewed_expires.timestamp()))
    return tags


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _epoch(text: str | None) -> datetime | None:
    try:
        return datetime.fromtimestamp(float(text), UTC) if text and text != "0" else None
    except (ValueError, OverflowError):
        return None
