"""Reads, lists, stops, starts and ends pods."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.instances import TAG_ID, Address, Instance, Listing, State
from cloudgpu.core.model.offers import Market
from cloudgpu.core.values.money import Money
from cloudgpu.errors import (
    CloudgpuError,
    EndRefused,
    InstanceNotFound,
    InvalidRequest,
    ProviderUnavailable,
    StopUnproved,
)
from cloudgpu.providers.machine.container_start import TAGS_VARIABLE, host_keys_in
from cloudgpu.providers.runpod import gpus, pod_key
from cloudgpu.providers.runpod.client import Pod, Runpod
from cloudgpu.providers.runpod.options import COMMUNITY, PROVIDER

REGION_VARIABLE, MEMORY_VARIABLE = (
    "CLOUDGPU_PLACE",
    "CLOUDGPU_GPU_GB",
)  # in a pod's environment: region and GPU memory, which the API does not report
OWN_POD_NAME = re.compile(r"cg-[0-9a-f]{48}")  # with the token of a launch: others begin names with cg-, too
POD_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{4,63}")
STATES = {
    "PROVISIONING": State.PENDING,
    "STARTING": State.PENDING,
    "RUNNING": State.RUNNING,
    "EXITED": State.STOPPED,
    "TERMINATED": State.TERMINATED,
}
BILLED_STATUSES = ("PROVISIONING", "STARTING", "RUNNING")  # even where the pod's `cost` is 0
_UNBILLED_STATUSES = ("EXITED", "TERMINATED", "ERROR")  # if `cost` is 0; an unknown status counts as billed


def get(runpod: Runpod, id_: str) -> Instance:
    """Return the pod now; raise InstanceNotFound when RunPod has none."""
    return instance(runpod, read_pod(runpod, id_))


def read_pod(runpod: Runpod, id_: str) -> Pod:
    """Return a pod. Raises InvalidRequest for an invalid id.

    Raises InstanceNotFound only if both the call for the pod and the listing say so.
    """
    if not POD_ID.fullmatch(id_):
        raise InvalidRequest(
            f"{id_!r} is not the id of a pod.", field="id", value=id_, next="Name the machine: cloudgpu ls shows them."
        )
    try:
        return runpod.pod(id_)
    except InstanceNotFound as error:
        if all(pod["id"] != id_ for pod in runpod.pods()):
            raise
        message = f"RunPod says that it has no pod {id_!r}, but lists it."
        raise ProviderUnavailable(message, field="id", value=id_, next="Try again in a minute.") from error


def list_machines(runpod: Runpod) -> Listing:
    """Return every pod with our tags, of any ledger: one call.

    A pod with a name of ours but without tags is in `unanswered`: it may be a machine of ours.
    """
    instances, unanswered = [], []
    for pod in runpod.pods():
        if tags(pod):
            instances.append(instance(runpod, pod))
        elif OWN_POD_NAME.fullmatch(pod["name"]):
            unanswered.append(Unanswered(pod["id"], f"the pod {pod['name']} has lost its variable {TAGS_VARIABLE}"))
    return Listing(tuple(instances), tuple(unanswered))


def tags(pod: Pod) -> Mapping[str, str]:
    """Return a pod's tags, from its environment; empty if the pod is not ours."""
    try:
        found_tags = json.loads(pod["env"].get(TAGS_VARIABLE) or "{}")
    except (ValueError, TypeError):
        return {}
    is_ours = isinstance(found_tags, dict) and TAG_ID in found_tags
    return {str(key): str(text) for key, text in found_tags.items()} if is_ours else {}


def instance(runpod: Runpod, pod: Pod) -> Instance:
    """Return a pod as a machine."""
    env, gpu, status = pod["env"] or {}, pod["gpu"], pod["status"]
    state = STATES.get(status, State.UNKNOWN)
    region = COMMUNITY if pod["cloud"] == COMMUNITY else (env.get(REGION_VARIABLE) or pod["dataCenterId"] or "")
    created_at, started_at = _time(pod["createdAt"]), _time(pod["startedAt"])
    memory_gb = env.get(MEMORY_VARIABLE, "")
    return Instance(
        provider=PROVIDER,
        account=runpod.account,
        id=pod["id"],
        state=state,
        billed=status not in _UNBILLED_STATUSES or (pod["cost"] or 0) > 0,
        tags=tags(pod),
        region=region,
        zone=region,
        instance_type=gpus.type_name(gpu["id"], gpu["count"]),
        market=Market.ON_DEMAND,
        launched_at=created_at,
        since=_since(state, created_at, started_at),
        address=_address(pod),
        accelerators=(gpus.accelerator(gpu["id"], float(memory_gb) if memory_gb.isdigit() else None, gpu["count"]),),
        reason="died" if status == "ERROR" else None,
        per_hour=_hourly_cost(runpod, pod),
    )


def _hourly_cost(runpod: Runpod, pod: Pod) -> Money | None:
    """Return a pod's price an hour, None for 0; stores it in `hourly_costs`."""
    runpod.hourly_costs[pod["id"]] = Decimal(str(pod["cost"] or 0))
    return Money.usd(runpod.hourly_costs[pod["id"]]) if runpod.hourly_costs[pod["id"]] > 0 else None


def _since(state: State, created_at: datetime | None, started_at: datetime | None) -> datetime | None:
    """Return since when the pod is in this state; None if stopped, which RunPod does not report."""
    if state is State.RUNNING:
        return started_at if started_at is None or created_at is None else max(created_at, started_at)
    return None


def _time(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _address(pod: Pod) -> Address | None:
    """Return its direct SSH address, not RunPod's SSH proxy; the port changes at each start. None until it is whole."""
    direct = (pod["ssh"] or {}).get("direct")
    if not isinstance(direct, dict):
        return None
    host, port, user = (direct.get(name) for name in ("host", "port", "username"))
    return Address(str(host), port, str(user)) if host and user and isinstance(port, int) else None


def host_keys(runpod: Runpod, id_: str) -> tuple[str, ...]:
    """Return the host key that the pod's start script wrote to its log; empty before that.

    The log is read from RunPod over TLS, with the account's key. Raises InstanceNotFound.
    """
    pod = read_pod(runpod, id_)
    log = runpod.log(id_)
    pod_key.record_check(runpod, pod, log)
    return host_keys_in(log)


def terminate(runpod: Runpod, id_: str) -> None:
    """Request the end of a pod with its /workspace; an unknown id is no error. Raises EndRefused for a locked pod."""
    if not POD_ID.fullmatch(id_):
        return
    try:
        runpod.delete(id_)
    except InstanceNotFound:
        return
    except InvalidRequest as error:
        _check_lock(runpod, id_, error)
        raise StopUnproved(error.message, field="instance", value=id_) from error


def stop(runpod: Runpod, id_: str) -> None:
    """Stop a pod: its GPUs are released, /workspace stays at twice the price. Raises InstanceNotFound."""
    if _is_stopped(read_pod(runpod, id_)):
        return
    try:
        runpod.request_action(id_, "stop")
    except InvalidRequest as error:  # 409: its state has changed meanwhile, or it is locked
        if _is_stopped(read_pod(runpod, id_)):
            return
        _check_lock(runpod, id_, error)
        remedy = f"End it: cloudgpu down, or https://console.runpod.io/pods?id={id_}"
        raise StopUnproved(error.message, field="instance", value=id_, next=remedy) from error


def start(runpod: Runpod, id_: str) -> None:
    """Start a stopped pod, unless it runs. Raises InstanceNotFound, NoCapacity, InvalidRequest."""
    if read_pod(runpod, id_)["status"] in BILLED_STATUSES:
        return
    try:
        runpod.request_action(id_, "start")
    except InvalidRequest:
        if read_pod(runpod, id_)["status"] not in BILLED_STATUSES:
            raise


def _is_stopped(pod: Pod) -> bool:
    return pod["status"] in ("EXITED", "TERMINATED")


def _check_lock(runpod: Runpod, id_: str, error: CloudgpuError) -> None:
    """Raise EndRefused if the pod is locked. Raises InstanceNotFound if it is gone."""
    if read_pod(runpod, id_)["locked"]:
        remedy = f"Unlock it at https://console.runpod.io/pods?id={id_}, then do the same again."
        raise EndRefused(
            f"The pod {id_} is locked: {error.message}", field="instance", value=id_, next=remedy
        ) from error
