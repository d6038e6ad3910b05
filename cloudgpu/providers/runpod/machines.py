"""Looks at pods and changes their state: one by its id, or all of ours in the account."""

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
from cloudgpu.providers.machine.container_start import TAGS, host_keys_in
from cloudgpu.providers.runpod import gpus, pod_key
from cloudgpu.providers.runpod.client import Pod, Runpod
from cloudgpu.providers.runpod.options import COMMUNITY, KIND

PLACE, MEMORY = "CLOUDGPU_PLACE", "CLOUDGPU_GPU_GB"  # in a pod's environment: what a look does not tell, or not yet
OURS = re.compile(r"cg-[A-Za-z0-9_-]{1,64}")
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{4,63}")
STATES = {
    "PROVISIONING": State.PENDING,
    "STARTING": State.PENDING,
    "RUNNING": State.RUNNING,
    "EXITED": State.STOPPED,
    "TERMINATED": State.TERMINATED,
}
BILLED = ("PROVISIONING", "STARTING", "RUNNING")  # whatever `cost` says: from its creation on
_FREE = ("EXITED", "TERMINATED", "ERROR")  # while `cost` is nothing; a status that is not known here is billed


def get(runpod: Runpod, id_: str) -> Instance:
    """Return the pod now; raise InstanceNotFound when RunPod has none."""
    return instance(runpod, read_pod(runpod, id_))


def read_pod(runpod: Runpod, id_: str) -> Pod:
    """Return what RunPod says of a pod. Raises InvalidRequest for what is no id.

    Raises InstanceNotFound where RunPod has none, by two answers: of the pod, and of all pods.
    """
    if not ID.fullmatch(id_):
        message = f"{id_!r} is not the id of a pod."
        raise InvalidRequest(message, field="id", value=id_, next="Name the machine: cloudgpu ls shows them.")
    try:
        return runpod.pod(id_)
    except InstanceNotFound as error:
        if all(pod["id"] != id_ for pod in runpod.pods()):
            raise
        message = f"RunPod says that it has no pod {id_!r}, and lists it."
        raise ProviderUnavailable(message, field="id", value=id_, next="Try again in a minute.") from error


def listed(runpod: Runpod) -> Listing:
    """Return every pod with our tags, of any ledger: one call.

    One that is named like ours, and whose tags somebody has taken, is named as unanswered: it may be a machine of ours.
    """
    found, silent = [], []
    for pod in runpod.pods():
        if tags(pod):
            found.append(instance(runpod, pod))
        elif OURS.fullmatch(pod["name"]):
            silent.append(Unanswered(pod["id"], f"the pod {pod['name']} has lost its variable {TAGS}"))
    return Listing(tuple(found), tuple(silent))


def tags(pod: Pod) -> Mapping[str, str]:
    """Return a pod's tags, from its environment; none where it is none of ours."""
    try:
        found = json.loads(pod["env"].get(TAGS) or "{}")
    except (ValueError, TypeError):
        return {}
    is_ours = isinstance(found, dict) and TAG_ID in found
    return {str(key): str(text) for key, text in found.items()} if is_ours else {}


def instance(runpod: Runpod, pod: Pod) -> Instance:
    """Return a pod as a machine."""
    env, gpu, status = pod["env"] or {}, pod["gpu"], pod["status"]
    state = STATES.get(status, State.UNKNOWN)
    where = COMMUNITY if pod["cloud"] == COMMUNITY else (env.get(PLACE) or pod["dataCenterId"] or "")
    made, started = _time(pod["createdAt"]), _time(pod["startedAt"])
    memory = env.get(MEMORY, "")
    return Instance(
        provider=KIND,
        account=runpod.account,
        id=pod["id"],
        state=state,
        billed=status not in _FREE or (pod["cost"] or 0) > 0,
        tags=tags(pod),
        region=where,
        zone=where,
        instance_type=gpus.type_name(gpu["id"], gpu["count"]),
        market=Market.ON_DEMAND,
        launched_at=made,
        since=_since(state, made, started),
        address=_address(pod),
        accelerators=(gpus.accelerator(gpu["id"], float(memory) if memory.isdigit() else None, gpu["count"]),),
        reason="died" if status == "ERROR" else None,
        per_hour=_costs(runpod, pod),
    )


def _costs(runpod: Runpod, pod: Pod) -> Money | None:
    """Return what a pod costs an hour, None for one that costs nothing now; and remember that."""
    runpod.paid[pod["id"]] = Decimal(str(pod["cost"] or 0))
    return Money.usd(runpod.paid[pod["id"]]) if runpod.paid[pod["id"]] > 0 else None


def _since(state: State, made: datetime | None, started: datetime | None) -> datetime | None:
    """Return since when it is so; RunPod does not say when a pod stopped."""
    if state is State.RUNNING:
        return started if started is None or made is None else max(made, started)
    return None


def _time(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _address(pod: Pod) -> Address | None:
    """Return where its SSH answers now: the port is another one after each start, and the proxy forwards nothing."""
    direct = (pod["ssh"] or {}).get("direct")
    if not isinstance(direct, dict):
        return None
    return Address(str(direct["host"]), int(direct["port"]), str(direct["username"]))


def host_keys(runpod: Runpod, id_: str) -> tuple[str, ...]:
    """Return the host key that the pod's start script has written into its log; none while it has not.

    The log comes over TLS from RunPod, to whoever has the account's key. Raises InstanceNotFound.
    """
    pod = read_pod(runpod, id_)
    log = runpod.log(id_)
    pod_key.record_check(runpod, pod, log)
    return host_keys_in(log)


def terminate(runpod: Runpod, id_: str) -> None:
    """Ask to end a pod with its /workspace; an unknown id is no error. Raises EndRefused for a locked pod."""
    if not ID.fullmatch(id_):
        return
    try:
        runpod.delete(id_)
    except InstanceNotFound:
        return
    except InvalidRequest as error:
        _check_lock(runpod, id_, error)
        raise StopUnproved(error.message, field="instance", value=id_) from error


def stop(runpod: Runpod, id_: str) -> None:
    """Ask to stop a pod: its GPUs are released, /workspace stays and costs twice as much. Raises InstanceNotFound."""
    if _is_stopped(read_pod(runpod, id_)):
        return
    try:
        runpod.act(id_, "stop")
    except InvalidRequest as error:  # 409: its state has changed meanwhile, or it is locked
        if _is_stopped(read_pod(runpod, id_)):
            return
        _check_lock(runpod, id_, error)
        remedy = f"End it: cloudgpu down, or https://console.runpod.io/pods?id={id_}"
        raise StopUnproved(error.message, field="instance", value=id_, next=remedy) from error


def start(runpod: Runpod, id_: str) -> None:
    """Ask to start a stopped pod; one that runs is left alone. Raises InstanceNotFound, NoCapacity, InvalidRequest."""
    if read_pod(runpod, id_)["status"] in BILLED:
        return
    try:
        runpod.act(id_, "start")
    except InvalidRequest:
        if read_pod(runpod, id_)["status"] not in BILLED:
            raise


def _is_stopped(pod: Pod) -> bool:
    return pod["status"] in ("EXITED", "TERMINATED")


def _check_lock(runpod: Runpod, id_: str, error: CloudgpuError) -> None:
    """Raise EndRefused where somebody has locked the pod. Raises InstanceNotFound where it is gone."""
    if read_pod(runpod, id_)["locked"]:
        remedy = f"Unlock it at https://console.runpod.io/pods?id={id_}, then do the same again."
        raise EndRefused(
            f"The pod {id_} is locked: {error.message}", field="instance", value=id_, next=remedy
        ) from error
