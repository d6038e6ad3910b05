"""Machines at Lambda: launch, get, list, terminate, prices. An answer about a machine becomes an `Instance`.

Lambda knows no idempotency tokens: only reads and terminations may be sent twice. So the machine of a launch is looked
for before and after the call is sent, and a listing shows what became of a launch whose answer was lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.instances import TAG_ID, TAG_SEQ, Address, Instance, Listing, State
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Basis, MachineConfiguration, Market, Price
from cloudgpu.errors import CloudgpuError, InstanceNotFound, InvalidRequest, ProviderUnavailable, RateLimited
from cloudgpu.providers.lambdalabs import errors
from cloudgpu.providers.lambdalabs.client import CLOUD, KEY_NAME, TOKEN_RULE, Lambda
from cloudgpu.providers.lambdalabs.offers import SOURCE, accelerators, per_hour
from cloudgpu.providers.lambdalabs.options import PROVIDER
from cloudgpu.providers.machine.files import USER, BootOptions
from cloudgpu.providers.machine.user_data import too_large_error, user_data
from cloudgpu.providers.rest.client import NotSent
from cloudgpu.providers.rest.once import new_machine, unknown_outcome_error
from cloudgpu.providers.shared.account import write_file

Raw = Mapping[str, Any]
MAX_USER_DATA_BYTES = 1 << 20
MAX_NAME_LENGTH = 64
TAG_PREFIX = "cloudgpu-"
MACHINE_PRICE_SOURCE = "Lambda Cloud's own word of this machine"
_ID = re.compile(r"[0-9A-Za-z_-]{8,64}")
_STATES = {
    "booting": State.PENDING,
    "active": State.RUNNING,
    "unhealthy": State.RUNNING,  # it is there and billed; whether SSH answers is another question
    "terminating": State.STOPPING,
    "terminated": State.TERMINATED,
    "preempted": State.TERMINATED,
}
# `booting` is not free: it is billed once it runs (`from_running` in core.billing.rules).
_NOT_BILLED = ("terminated", "preempted")


def launch(lam: Lambda, attempt: Attempt) -> Instance:
    """Launch the machine of an attempt, or return the one that was made for it already.

    Raises NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest when it was surely not made; LaunchUncertain or
    another ProviderUnavailable when that is not known.
    """
    body = _launch_body(lam, attempt)  # its errors are raised before anything is sent
    with lam.launch_records.exclusive(attempt):
        existing = _find_machine(lam, attempt)
        if existing is not None:
            return existing
        if lam.launch_records.sent_at(attempt.token) is None:
            lam.register_key()
        if not lam.launch_records.claim_send(attempt):
            raise unknown_outcome_error(CLOUD, attempt, TOKEN_RULE.listing_proves_after)
        return _send_launch(lam, attempt, body)


def _send_launch(lam: Lambda, attempt: Attempt, body: Raw) -> Instance:
    try:
        answer = lam.change("POST", "/instance-operations/launch", "launch", body)
        instance_ids = answer.get("instance_ids") if isinstance(answer, dict) else None
        if not isinstance(instance_ids, list) or len(instance_ids) != 1 or not _ID.fullmatch(str(instance_ids[0])):
            raise errors.unreadable_error("launch")
    except (NotSent, RateLimited):
        lam.launch_records.record_refusal(attempt)
        raise
    except InstanceNotFound as error:  # a type, a region or the SSH key
        lam.launch_records.record_refusal(attempt)
        raise InvalidRequest(error.message, field="offer", value=attempt.offer.configuration.instance_type) from error
    except ProviderUnavailable as error:
        return _find_launched(lam, attempt, error)
    except CloudgpuError:
        lam.launch_records.record_refusal(attempt)
        raise
    with suppress(OSError):  # a full disk, say: the machine is there all the same, and a listing shows it by its tag
        lam.launch_records.record_machine(attempt, str(instance_ids[0]))
    return new_machine(attempt, lam.account, str(instance_ids[0]))


def _find_launched(lam: Lambda, attempt: Attempt, unanswered_error: CloudgpuError) -> Instance:
    """Return the machine of a call that was not answered; raise LaunchUncertain while nothing shows it.

    An error of that listing does not prove that the call made nothing.
    """
    try:
        machine = _find_machine(lam, attempt)
    except ProviderUnavailable:
        raise
    except CloudgpuError as error:
        raise unknown_outcome_error(CLOUD, attempt, TOKEN_RULE.listing_proves_after, error) from unanswered_error
    if machine is None:
        raise unknown_outcome_error(CLOUD, attempt, TOKEN_RULE.listing_proves_after) from unanswered_error
    return machine


def _find_machine(lam: Lambda, attempt: Attempt) -> Instance | None:
    """Return the machine of this attempt: as Lambda shows it, or as pending while it may be too new to be shown."""
    machine_id = lam.launch_records.machine_id(attempt.token)
    if machine_id:
        try:
            return get(lam, machine_id)
        except InstanceNotFound:  # not shown yet, or gone
            return new_machine(attempt, lam.account, machine_id) if _may_be_unlisted(lam, attempt) else None
    wanted = attempt.machine, attempt.tags.get(TAG_SEQ)  # an earlier launch of this request has another TAG_SEQ
    listed = list_machines(lam).instances
    return next((one for one in listed if (one.tags.get(TAG_ID), one.tags.get(TAG_SEQ)) == wanted), None)


def _may_be_unlisted(lam: Lambda, attempt: Attempt) -> bool:
    """Say whether a machine that was made may not be shown yet."""
    sent_at = lam.launch_records.sent_at(attempt.token)
    return sent_at is not None and lam.clock() - sent_at < TOKEN_RULE.listing_proves_after


def _launch_body(lam: Lambda, attempt: Attempt) -> Raw:
    offer = attempt.offer.configuration
    user_data_text = user_data(attempt, BootOptions(cloud="lambda", ssh_port=lam.options.ssh_port))
    if len(user_data_text) > MAX_USER_DATA_BYTES:
        raise too_large_error(attempt, len(user_data_text), MAX_USER_DATA_BYTES, CLOUD)
    return {
        "region_name": offer.region,
        "instance_type_name": offer.instance_type,
        "ssh_key_names": [KEY_NAME],
        "name": attempt.request.name[:MAX_NAME_LENGTH],
        "tags": [{"key": key, "value": value} for key, value in sorted(attempt.tags.items())],
        "user_data": user_data_text,
    }


def get(lam: Lambda, id: str) -> Instance:  # noqa: A002
    """Return a machine now; raise InstanceNotFound when Lambda has none."""
    _check_id(id)
    try:
        found = _instance(lam, lam.get(f"/instances/{id}", "get"))
    except InstanceNotFound as error:
        ended = _terminated_here(lam, id)
        if ended is not None and all(instance.id != id for instance in list_machines(lam).instances):
            return ended
        raise InstanceNotFound(f"{CLOUD} has no machine {id}.", field="id", value=id) from error
    if found.id != id:
        raise errors.unreadable_error("get")
    return found


def list_machines(lam: Lambda) -> Listing:
    """Return every machine with a cloudgpu-id tag, from one call.

    In `unanswered` is a living machine that lacks that tag and may be ours: this home launched it, or it has our SSH
    key and Lambda shows no tags of it at all, or none while it boots. Tags without ours make it somebody else's,
    whatever key it has.
    """
    raw_machines = lam.get("/instances", "list")
    if not isinstance(raw_machines, list):
        raise errors.unreadable_error("list")
    instances, unanswered = [], []
    for raw in raw_machines:
        machine = _instance(lam, raw)
        if TAG_ID in machine.tags:
            instances.append(machine)
        elif machine.state is not State.TERMINATED and _may_be_ours(lam, raw):
            unanswered.append(Unanswered(machine.id, f"{CLOUD} does not show the tags of the machine {machine.id}"))
    return Listing(tuple(instances), tuple(unanswered))


def _may_be_ours(lam: Lambda, raw: Raw) -> bool:
    """Say whether a machine without a cloudgpu-id tag may be ours.

    One that runs with our key and an empty list of tags was launched by hand: it is no gap for as long as it lives.
    """
    are_tags_unknown = raw.get("tags") is None or (raw["status"] == "booting" and not raw["tags"])
    has_our_key = KEY_NAME in (raw.get("ssh_key_names") or ())
    return (are_tags_unknown and has_our_key) or lam.launch_records.has_machine(str(raw["id"]))


def terminate(lam: Lambda, id: str) -> None:  # noqa: A002
    """Ask to end a machine; its disk goes with it. What is not there is ended already.

    Lambda's confirmation is saved to a file: once neither `get` nor a listing shows that machine any more, it has
    ended, however new it was. Without it, `not found` may mean a machine that is not shown yet.
    """
    _check_id(id)
    body = {"instance_ids": [id]}
    try:
        answer = lam.change("POST", "/instance-operations/terminate", "terminate", body, idempotent=True)
    except InstanceNotFound:
        return
    terminated = answer.get("terminated_instances") if isinstance(answer, dict) else None
    for entry in terminated if isinstance(terminated, list) else ():
        if isinstance(entry, dict) and entry.get("id") == id:
            termination = {key: entry.get(key) for key in ("id", "region", "instance_type", "tags")}
            with suppress(OSError):  # without the file the end is proved later
                write_file(lam.home / "ended" / id, json.dumps(termination))


def _terminated_here(lam: Lambda, id: str) -> Instance | None:  # noqa: A002
    """Return a machine whose termination Lambda confirmed to this home; None for any other."""
    try:
        termination = json.loads((lam.home / "ended" / id).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return _instance(lam, {**termination, "status": "terminated"})


def _check_id(id: str) -> None:  # noqa: A002
    """Raise InvalidRequest for an invalid id, which would become a part of a URL."""
    if not _ID.fullmatch(id):
        message = f"{id!r} is not the id of a machine at {CLOUD}."
        raise InvalidRequest(message, field="id", value=id, next="cloudgpu ls shows the machines.")


def _instance(lam: Lambda, raw: Raw) -> Instance:
    """Return a machine as Lambda reports it, with our tags alone. Lambda reports no times."""
    status = str(raw.get("status", "")) if isinstance(raw, dict) else ""
    if not status or not _ID.fullmatch(str(raw.get("id", ""))):
        raise errors.unreadable_error("a machine")
    type_data = raw.get("instance_type") or {}
    region = str((raw.get("region") or {}).get("name", ""))
    tags = {str(tag.get("key")): str(tag.get("value")) for tag in raw.get("tags") or ()}
    state, price = _STATES.get(status, State.UNKNOWN), per_hour(type_data)
    if price is not None:
        lam.machine_prices[str(raw["id"])] = price
    return Instance(
        provider=PROVIDER,
        account=lam.account,
        id=str(raw["id"]),
        state=state,
        billed=status not in _NOT_BILLED,
        tags={key: value for key, value in tags.items() if key.startswith(TAG_PREFIX)},
        region=region,
        zone=region,
        instance_type=str(type_data.get("name", "")),
        market=Market.ON_DEMAND,
        address=_address(lam, raw) if state in (State.PENDING, State.RUNNING) else None,
        accelerators=accelerators(type_data),
        reason="interrupted" if status == "preempted" else None,
        per_hour=price,
    )


def _address(lam: Lambda, raw: Raw) -> Address | None:
    ip = raw.get("ip")
    return Address(str(ip), lam.options.ssh_port, USER) if ip else None


def prices(lam: Lambda, offers: Sequence[MachineConfiguration]) -> list[Price | None]:
    """Return one price per offer, in order: a machine's own, or that of its type, which is the same in all regions.

    One call where a machine's price is not known yet, and one for the types where an offer needs them.
    """
    if any(offer.machine is not None and offer.machine not in lam.machine_prices for offer in offers):
        list_machines(lam)
    return [_price(lam, offer) for offer in offers]


def _price(lam: Lambda, offer: MachineConfiguration) -> Price | None:
    machine_price = lam.machine_prices.get(offer.machine or "")
    if machine_price is not None:
        return Price(machine_price, MACHINE_PRICE_SOURCE, lam.clock(), Basis.QUOTED)
    type_entry = lam.types().get(offer.instance_type) or {}
    type_price = per_hour(type_entry.get("instance_type") or {})
    return None if type_price is None else Price(type_price, SOURCE, lam.clock(), Basis.QUOTED)
