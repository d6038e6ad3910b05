"""Translates a machine in Google's format (its JSON, `raw`) to `Instance`: pure, no call, no clock."""

from __future__ import annotations

from datetime import datetime

from cloudgpu.core.model.instances import Address, Instance, State
from cloudgpu.core.model.offers import Accelerator, Market
from cloudgpu.providers.gcp import ids
from cloudgpu.providers.gcp.client import Raw
from cloudgpu.providers.gcp.storage.resources import our_tags, parse_time
from cloudgpu.providers.machine.files import USER
from cloudgpu.providers.shared.rules import gpus_of

OLD_GPU_PREFIX = "nvidia-tesla-"  # of Google's names of GPUs that are attached to N1 machines
_STATES = {  # Compute Engine's guide, "VM instance lifecycle"
    "PENDING": State.PENDING,
    "PROVISIONING": State.PENDING,
    "STAGING": State.PENDING,
    "REPAIRING": State.PENDING,  # Google restarts it by itself
    "RUNNING": State.RUNNING,
    "PENDING_STOP": State.STOPPING,
    "STOPPING": State.STOPPING,
    "SUSPENDING": State.STOPPING,
    "DEPROVISIONING": State.STOPPING,
    "SUSPENDED": State.STOPPED,
    "TERMINATED": State.STOPPED,
}
# A machine costs from RUNNING until it is TERMINATED (the same guide; that it costs while it is STOPPING is the careful
# reading). What is pending is about to: the bill shows that time as a range (`from_running` in core.billing.rules). A
# suspended one costs the memory that it keeps (unverified).
STOPPED = "TERMINATED"  # Google's word for a machine that can be started again, and the one status that is not billed


def instance(raw: Raw, *, account: str, ssh_port: int, reason: str | None = None) -> Instance:
    """Return a machine as Google reports it, with our labels alone; `reason` is why it ended, where that is known."""
    status = str(raw.get("status", ""))
    state = _STATES.get(status, State.UNKNOWN)
    zone = ids.last_part(raw["zone"])
    name = type_name(raw)
    return Instance(
        provider="gcp",
        account=account,
        id=id_of(raw),
        state=state,
        billed=status != STOPPED,
        tags=our_tags(raw),
        region=ids.region_of(zone) or "",
        zone=zone,
        instance_type=name,
        market=Market.SPOT if is_spot(raw) else Market.ON_DEMAND,
        launched_at=parse_time(raw.get("creationTimestamp")),
        since=_since(raw, state),
        address=_address(raw, ssh_port) if state in (State.PENDING, State.RUNNING) else None,
        accelerators=accelerators(raw, name),
        last_active=None,  # it is in the guest attributes, which are read machine by machine
        reason=reason if state in (State.STOPPED, State.STOPPING) else None,
    )


def id_of(raw: Raw) -> str:
    """Return cloudgpu's id of a machine."""
    return ids.machine_id(ids.last_part(raw["zone"]), raw["name"])


def labels_of(raw: Raw) -> dict[str, str]:
    """Return all labels of a resource."""
    return dict(raw.get("labels", {}))


def type_name(raw: Raw) -> str:
    """Return a machine's type as the catalogue names it: of an N1 machine with its attached GPUs."""
    name = ids.last_part(str(raw.get("machineType", "")))
    attached = raw.get("guestAccelerators", ())
    if not name.startswith("n1-") or not attached:
        return name
    kind = ids.last_part(attached[0]["acceleratorType"]).removeprefix(OLD_GPU_PREFIX)
    return f"{name}+{kind}:{attached[0].get('acceleratorCount', 1)}"


def accelerators(raw: Raw, name: str) -> tuple[Accelerator, ...]:
    """Return the GPUs of a machine: by the catalogue, else as Google calls them."""
    return gpus_of("gcp", name) or tuple(
        Accelerator(
            ids.last_part(guest_accelerator["acceleratorType"]), int(guest_accelerator.get("acceleratorCount", 1))
        )
        for guest_accelerator in raw.get("guestAccelerators", ())
    )


def boot_disk(raw: Raw) -> Raw | None:
    """Return the attachment of a machine's system disk (deviceName, autoDelete, source); None where it has none."""
    return next((disk for disk in raw.get("disks", ()) if disk.get("boot")), None)


def has_scratch(raw: Raw) -> bool:
    """Say whether a machine has local SSD, whose data a stop loses."""
    return any(disk.get("type") == "SCRATCH" for disk in raw.get("disks", ()))


def metadata_of(raw: Raw) -> dict[str, str]:
    """Return the metadata of a machine, which it can read itself."""
    return {item["key"]: item.get("value", "") for item in raw.get("metadata", {}).get("items", ())}


def is_spot(raw: Raw) -> bool:
    """Say whether a machine is one that Google may take back."""
    scheduling = raw.get("scheduling", {})
    return bool(scheduling.get("provisioningModel") == "SPOT" or scheduling.get("preemptible"))


def _since(raw: Raw, state: State) -> datetime | None:
    """Return when the state began, where Google says it: the last start, or the last stop."""
    if state in (State.PENDING, State.RUNNING):
        return parse_time(raw.get("lastStartTimestamp")) or parse_time(raw.get("creationTimestamp"))
    return parse_time(raw.get("lastStopTimestamp")) if state is State.STOPPED else None


def _address(raw: Raw, port: int) -> Address | None:
    """Return where SSH answers: the public address, else the one in its own network."""
    for interface in raw.get("networkInterfaces", ()):
        public = (access_config.get("natIP") for access_config in interface.get("accessConfigs", ()))
        host = next(filter(None, public), None) or interface.get("networkIP")
        if host:
            return Address(host, port, USER)
    return None
