"""An attempt of a launch: made of a request at an offer, and as JSON; and what a request has launched already.

The exact call is saved before it is sent, so that a later process can send it again. Two requests are the same by their
fingerprint, or by their key.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from cloudgpu.core.model import instances
from cloudgpu.core.model.cluster import cluster_name, node_id, node_key, node_name
from cloudgpu.core.model.facts import ClusterNode
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.launch import Attempt, Boot, BootPart, LaunchRequest, Network, Setup, Volume
from cloudgpu.core.model.machine import Machine, can_be_restored
from cloudgpu.core.model.offers import (
    Accelerator,
    MachineConfiguration,
    Market,
    Offer,
    Requirements,
    TrafficPrices,
    Trust,
    price_from_json,
)
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import derived_key, digest, generated_name, lock_name, machine_id, tag_value, token
from cloudgpu.core.values.times import epoch_text, from_iso, iso, minute_text
from cloudgpu.errors import InvalidRequest


def attempt_of(
    request: LaunchRequest, offer: Offer, boot: Boot, number: int, ledger: tuple[str, int], now: datetime
) -> Attempt:
    """Return the attempt of this number to launch a request at an offer. `ledger`: its id and its number of entries."""
    ledger_id, entry_count = ledger
    expires = now.replace(microsecond=0) + timedelta(seconds=request.lease_s)
    renew_until = now.replace(microsecond=0) + timedelta(seconds=request.renew_s)
    cluster = request.cluster
    cloudgpu_id = node_id(cluster) if cluster else machine_id(ledger_id, request.key)
    tags = {
        instances.TAG_ID: cloudgpu_id,
        instances.TAG_NAME: tag_value(request.name),
        instances.TAG_LEDGER: ledger_id,
        instances.TAG_SEQ: str(entry_count),
        instances.TAG_KEY: request.key,
        instances.TAG_OWNER: tag_value(request.owner),
        instances.TAG_PROJECT: tag_value(request.project),
        instances.TAG_POLICY: tag_value(request.policy),
        instances.TAG_EXPIRES: epoch_text(expires),
        instances.TAG_RENEW_UNTIL: epoch_text(renew_until),
    }
    if cluster is not None:
        tags |= {instances.TAG_CLUSTER: cluster.tag(), instances.TAG_NODE: str(cluster.node)}
    return Attempt(
        token=token(ledger_id, request.key, number),
        number=number,
        machine=cloudgpu_id,
        ledger=ledger_id,
        request=request,
        offer=offer,
        tags=tags,
        boot=boot,
        made_at=now,
        expires=expires,
        renew_until=renew_until,
    )


def next_attempt_number(machines: Iterable[Machine]) -> int:
    """Return the number of the attempt that comes after those that launched these machines."""
    return max((machine.attempt_number for machine in machines), default=0) + 1


def launch_name(name: str | None, key: str, nodes: int, existing: Collection[tuple[str, str]]) -> str:
    """Return the name of a new machine or cluster: no other machine, cluster or node has it.

    `existing` are the names of existing machines, each with its launch key. Raises InvalidRequest for a `name` that is
    taken.
    """
    own_keys = {key, *(node_key(key, node) for node in range(nodes))}
    taken = {name for name, machine_key in existing if machine_key not in own_keys}
    taken |= {
        cluster_name(name)
        for name, machine_key in existing
        if machine_key not in own_keys and machine_key.endswith("--0")
    }
    if name is None:
        return generated_name(key, taken)
    names = [name, *(node_name(name, node) for node in range(nodes) if nodes > 1)]
    clash = next((name_ for name_ in names if name_ in taken), None)
    if clash is None:
        return name
    raise InvalidRequest(
        f"A machine called {clash} is already there, launched by another request.",
        field="--name",
        value=name,
        next=f"Choose another --name, use it as it is (cloudgpu show {clash}), or end it first: cloudgpu down {clash}",
    )


def launch_message(attempts: Sequence[Attempt]) -> str:
    """Return the sentence that users see when these attempts of a launch are sent."""
    request, configuration = attempts[0].request, attempts[0].offer.configuration
    if len(attempts) == 1 or request.cluster is None:
        return f"launching {request.name} on {configuration.provider} ({configuration.zone})"
    zones = ", ".join(dict.fromkeys(attempt.offer.configuration.zone for attempt in attempts))
    return f"launching {request.cluster.name} on {configuration.provider} ({zones}): {len(attempts)} machines"


def attempt_to_json(attempt: Attempt) -> dict[str, Any]:
    """Return the whole attempt as plain JSON values. It holds the host's private key: write it 0600."""
    return {field.name: _json_value(getattr(attempt, field.name)) for field in fields(attempt)}


def attempt_from_json(data: Mapping[str, Any]) -> Attempt:
    """Return the attempt that `attempt_to_json` wrote; raise KeyError, TypeError or ValueError for anything else."""
    offer, request, boot = data["offer"], data["request"], data["boot"]
    return Attempt(
        token=data["token"],
        number=data["number"],
        machine=data["machine"],
        ledger=data["ledger"],
        request=_request(request),
        offer=Offer(_configuration_of(offer["configuration"]), price_from_json(offer["price"])),
        tags=dict(data["tags"]),
        boot=Boot(
            **{
                **boot,
                "parts": tuple(BootPart(**part) for part in boot["parts"]),
                "jupyter": tuple(boot["jupyter"]),
                "client_public_keys": tuple(boot["client_public_keys"]),
            }
        ),
        **{name: from_iso(data[name]) for name in ("made_at", "expires", "renew_until")},
        call=data["call"],
        identity=AccountIdentity(**data["identity"]) if data["identity"] else None,
    )


def _request(data: Mapping[str, Any]) -> LaunchRequest:
    return LaunchRequest(
        **{
            **data,
            "requirements": _requirements(data["requirements"]),
            "setup": setup_from_json(data["setup"]),
            "cluster": ClusterNode(*data["cluster"]) if data["cluster"] else None,
        }
    )


def setup_from_json(data: Mapping[str, Any]) -> Setup:
    """Return the setup that `setup_to_json` wrote."""
    network = {**data["network"], "ssh_from": tuple(data["network"]["ssh_from"])}
    return Setup(**{**data, "volume": data["volume"] and Volume(**data["volume"]), "network": Network(**network)})


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _json_value(item) for key, item in value.items()}
    if is_dataclass(value):
        return {field.name: _json_value(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    return value


def _requirements(data: Mapping[str, Any]) -> Requirements:
    max_price = data["max_price"]
    enums = {"market": Market(data["market"]), "trust": Trust(data["trust"])}
    return Requirements(**{**data, **enums, "max_price": max_price and Money(max_price["nanos"])})


def _configuration_of(data: Mapping[str, Any]) -> MachineConfiguration:
    gpus = tuple(Accelerator(**gpu) for gpu in data["accelerators"])
    fields = {name: tuple(data[name]) for name in ("after", "gpus_now")}
    enums = {"market": Market(data["market"]), "trust": Trust(data["trust"])}
    traffic_prices = data["traffic"] and TrafficPrices(
        Money(data["traffic"]["out"]["nanos"]), Money(data["traffic"]["into"]["nanos"])
    )
    return MachineConfiguration(**{**data, **fields, **enums, "accelerators": gpus, "traffic": traffic_prices})


def launched_machine(machines: Sequence[Machine], key: str | None, fingerprint: str) -> Machine | None:
    """Return the machine that an equal request has launched: it exists, or can be restored from what is retained of it.

    Raises InvalidRequest when `key` cannot be used for it.
    """
    if key is None:
        machines_of_request = [
            machine for machine in machines if _has_request(machine, fingerprint) and _exists_or_restorable(machine)
        ]
        return (
            max(machines_of_request, key=lambda machine: machine.terminated_at is None) if machines_of_request else None
        )
    for machine in machines:
        if launch_key(machine) != key or (
            machine.launch_status in ("refused", "void") and not can_be_restored(machine)
        ):
            continue
        if machine.cluster is not None and machine.launch_failed:
            continue  # it was ended again, as not all of its cluster could be launched
        if machine.terminated_at is not None and not can_be_restored(machine):
            if any(_is_living_node(other, machine.cluster) for other in machines):
                continue
            raise InvalidRequest(
                f"The machine of --key {key} ended at {minute_text(machine.terminated_at)}; "
                "a key can launch only one machine.",
                field="--key",
                value=key,
                next="Use another --key for a new machine.",
            )
        if machine.request not in (
            fingerprint,
            machine.key,
        ):  # an adopted machine, whose launch is not recorded, has its key here
            raise InvalidRequest(
                f"--key {key} belongs to {machine.name}, which was launched by a different request.",
                field="--key",
                value=key,
                next=f"Repeat that request as it was, or use another --key (cloudgpu show {machine.name}).",
            )
        return machine if _exists_or_restorable(machine) else None
    return None


def _is_living_node(machine: Machine, cluster: ClusterNode | None) -> bool:
    """Say whether a machine exists and is a node of this cluster, named by any of its nodes."""
    return (
        cluster is not None
        and machine.cluster is not None
        and machine.cluster.id == cluster.id
        and _exists_or_restorable(machine)
    )


def launch_key(machine: Machine) -> str:
    """Return the key under which a machine was launched, or the cluster that it is a node of."""
    cluster = machine.cluster
    return machine.key.removesuffix(f"--{cluster.node}") if cluster is not None and cluster.nodes > 1 else machine.key


def _exists_or_restorable(machine: Machine) -> bool:
    return can_be_restored(machine) or (machine.terminated_at is None and machine.launch_status == "made")


def _has_request(machine: Machine, fingerprint: str) -> bool:
    """Say whether a machine is of this request: by its fingerprint, or by its key where its launch is not recorded."""
    if machine.request == machine.key:
        return lock_name(machine.key) == lock_name(derived_key(fingerprint, 1))
    return bool(machine.request == fingerprint)


def unfinished_attempt(machines: Sequence[Machine], lock: str) -> Machine | None:
    """Return the machine whose launch is unfinished and runs under this lock (`naming.lock_name`), if there is one."""
    unfinished = (machine for machine in machines if machine.terminated_at is None and machine.launch_status == "open")
    return next((machine for machine in unfinished if lock_name(machine.key) == lock), None)


def fingerprint_of(request: LaunchRequest, name: str | None) -> str:
    """Return what makes two requests the same: everything but how long the machine may live and who may reach it."""
    requirements, setup, cluster = request.requirements, request.setup, request.cluster
    return digest(
        request.provider,
        request.account,
        requirements.gpu or "",
        str(requirements.gpu_count),
        requirements.instance_type or "",
        requirements.region or "",
        requirements.zone or "",
        str(requirements.market),
        request.template,
        request.owner,
        request.project,
        name or "",
        *(() if cluster is None else (str(cluster.nodes), cluster.engine)),
        json.dumps(asdict(replace(setup, network=replace(setup.network, ssh_from=()))), sort_keys=True),
    )
