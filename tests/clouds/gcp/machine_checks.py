"""What Google refuses to launch: types and GPUs that do not go together, schedules that contradict, full limits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from tests.clouds.gcp.errors import over_quota
from tests.clouds.gcp.model import Key, Model, Thing, linked, not_found
from tests.clouds.gcp.stock import GPU_COUNTS, GPUS, N1_LIMITS, TYPES, Type, metric_of, region_of, zones_of
from tests.clouds.rest import Refusal

SHORTEST, LONGEST = timedelta(seconds=30), timedelta(days=120)  # Limit the run time of a VM
ALL_REGIONS = "GPUS_ALL_REGIONS"
UNLIMITED = 8.0  # what a region's limits are unless a test says otherwise
ACTIONS = {"STOP", "DELETE"}
# By the beginnings of machine types ("Hyperdisk machine type support", "GPU machine types").
HYPERDISK_ALONE, NO_HYPERDISK_BALANCED = ("a3-ultragpu-", "a4-"), ("n1-", "a2-", "g2-", "e2-")


def kind_of(body: Mapping[str, Any], project: str, zone: str) -> Type:
    """Return the machine type that a launch names. Raises Refusal where that is not sold."""
    key = linked(body.get("machineType") or "", "machineTypes", project, f"zones/{zone}")
    found = TYPES.get(key.name)
    if key.scope != f"zones/{zone}":
        raise Refusal("invalid", f"Invalid value for field 'resource.machineType': '{body.get('machineType')}'.")
    if found is None or zone not in found.zones:
        raise not_found(key)
    return found


def gpus_of(body: Mapping[str, Any], kind: Type, project: str, zone: str) -> tuple[str, int]:
    """Return the accelerators of a machine and their number: those of its type, or those attached to an N1."""
    attached = body.get("guestAccelerators") or []
    if not attached:
        return kind.gpu, kind.gpus
    if len(attached) > 1:
        raise Refusal("invalid", "Invalid value for field 'resource.guestAccelerators': only one type is allowed")
    key = linked(attached[0]["acceleratorType"], "acceleratorTypes", project, f"zones/{zone}")
    if key.name not in GPUS or zone not in zones_of(key.name) or key.scope != f"zones/{zone}":
        raise not_found(key)
    count = int(attached[0].get("acceleratorCount", 0))
    if kind.gpu:  # what comes with a type may be named again
        if (key.name, count) != (kind.gpu, kind.gpus):
            raise _mismatch(kind, key.name, count)
    elif not kind.name.startswith("n1-") or key.name not in N1_LIMITS:
        raise _mismatch(kind, key.name, count)
    else:
        _check_n1(kind, key.name, count)
    return key.name, count


def _check_n1(kind: Type, gpu: str, count: int) -> None:
    limit = N1_LIMITS[gpu].get(count) if count in GPU_COUNTS else None
    if limit is None or kind.cpus > limit[0] or kind.mib > limit[1] * 1024:
        raise _mismatch(kind, gpu, count)


def _mismatch(kind: Type, gpu: str, count: int) -> Refusal:
    said = f"[{kind.name}, {gpu}:{count}] features are not compatible for creating instance."
    return Refusal("invalid", f"{said} Accelerator type and count do not go with the machine type.")


def scheduling(given: Mapping[str, Any], *, gpu: bool, local_ssd: bool = False) -> dict[str, Any]:
    """Return a machine's schedule with what Google fills in. Raises Refusal for one that contradicts itself.

    That machines with GPUs do not migrate, and Spot machines neither migrate nor restart by themselves, is from GPU
    and Spot documentation; the words are from public reports. That a machine with an end needs to be told which
    (stop or delete) is from Limit the run time of a VM; that one with local SSD which is stopped by its end has to say
    that these are discarded, and no other machine may, is from gcloud's words on its flag for it.
    """
    made = dict(given)
    spot = made.get("provisioningModel") == "SPOT" or made.get("preemptible", False)
    made["provisioningModel"] = "SPOT" if spot else made.get("provisioningModel", "STANDARD")
    made["preemptible"] = bool(spot)
    made.setdefault("automaticRestart", not spot)
    made.setdefault("onHostMaintenance", "TERMINATE" if spot else "MIGRATE")
    if spot and made["automaticRestart"]:
        raise Refusal("invalid", "Scheduling must have automatic restart be false when preemptible is true.")
    if spot and made["onHostMaintenance"] != "TERMINATE":
        raise Refusal("invalid", "Scheduling must have on host maintenance be terminate when preemptible is true.")
    if gpu and made["onHostMaintenance"] != "TERMINATE":
        raise Refusal("badRequest", "Instances with guest accelerators do not support live migration.")
    if spot:
        made.setdefault("instanceTerminationAction", "STOP")
    _check_end(made)
    _check_local_ssd(made, local_ssd=local_ssd)
    return made


def _check_local_ssd(made: Mapping[str, Any], *, local_ssd: bool) -> None:
    stops = "maxRunDuration" in made and made.get("instanceTerminationAction") == "STOP"
    if made.get("onInstanceStopAction", {}).get("discardLocalSsd", False) is not (stops and local_ssd):
        raise Refusal("invalid", "Invalid value for field 'scheduling.onInstanceStopAction.discardLocalSsd'.")


def _check_end(made: Mapping[str, Any]) -> None:
    action = made.get("instanceTerminationAction")
    if "maxRunDuration" in made:
        seconds = timedelta(seconds=int(made["maxRunDuration"].get("seconds", 0)))
        if not SHORTEST <= seconds <= LONGEST:
            raise Refusal("invalid", f"Invalid value for field 'resource.scheduling.maxRunDuration': '{seconds}'.")
        if action not in ACTIONS:
            raise Refusal("invalid", "Invalid value for field 'scheduling': a run duration needs a termination action.")
    elif action is not None and made["provisioningModel"] != "SPOT":
        raise Refusal("invalid", "A termination action is for Spot machines, or those with a limit on their run time.")


def check_disk(machine_type: str, disk_type: str) -> None:
    """Raise Refusal for a kind of disk that a machine type does not take; the words are from public reports."""
    hyperdisk = disk_type.startswith("hyperdisk-")
    wrong = not hyperdisk if machine_type.startswith(HYPERDISK_ALONE) else disk_type == "hyperdisk-balanced"
    if wrong and machine_type.startswith((*HYPERDISK_ALONE, *NO_HYPERDISK_BALANCED)):
        raise Refusal("invalid", f"{disk_type} disk type cannot be used by {machine_type} machine type.")


def check_quota(model: Model, key: Key, machine: Thing) -> None:
    """Raise OperationFailed where a machine is over a limit on GPUs: of its region, of its market, of all regions.

    A Spot machine counts against the limit for preemptible GPUs, where that was ever raised from nothing, else against
    the usual one (Preemptible instances, Quota; said of CPUs there and of GPUs in "GPU quota"). That it counts against
    GPUS_ALL_REGIONS too, and that machines which do not run count for nothing, is unverified.
    """
    if not machine["_gpus"]:
        return
    region = region_of(key.place)
    for where, name in ((region, _metric(model, region, machine)), ("", ALL_REGIONS)):
        limit = model.limits.get((where, name), UNLIMITED)
        if usage(model, where, name, but=key) + machine["_gpus"] > limit:
            raise over_quota(name, limit, where)


def _metric(model: Model, region: str, machine: Thing) -> str:
    spot = metric_of(machine["_gpu"], spot=True)
    counts = machine["scheduling"]["preemptible"] and model.limits.get((region, spot), UNLIMITED) > 0
    return spot if counts else metric_of(machine["_gpu"], spot=False)


def usage(model: Model, region: str, metric: str, but: Key | None = None) -> int:
    """Return how much of a limit on GPUs is used."""
    live = [(region_of(key.place), one) for key, one in model.of("instances").items() if key != but and one["_gpus"]]
    return sum(
        one["_gpus"]
        for where, one in live
        if one["status"] != "TERMINATED" and region in {"", where}
        if metric in {ALL_REGIONS, _metric(model, where, one)}
    )
