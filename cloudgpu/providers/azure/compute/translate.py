"""Translates a machine of Azure's answers to an `Instance`. Pure: no call, no clock.

Which power states are billed is from Azure's page "States and billing of Azure Virtual Machines": a machine that is
stopped and not deallocated is billed as if it ran. One that is being deallocated counts as billed until it is.
Azure does not bill one with the power state `creating`, and bills one that is `starting`: both are `State.PENDING`
here, and cloudgpu's own reckoning charges both. One that is `creating` after its creation has failed is
`State.DEALLOCATED`, and not charged: Azure bills its disk and address alone, until `down` deletes them or `start` tries
again. That nothing goes on there any more is belief.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from cloudgpu.core.model.instances import TAG_LAST_ACTIVE, Address, Instance, State
from cloudgpu.core.model.offers import Market
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.calls import properties_of, provisioning_state
from cloudgpu.providers.azure.client import Raw
from cloudgpu.providers.azure.compute.machine import is_spot, zone_of
from cloudgpu.providers.shared.rules import gpus_of, time_of_tag

TAG_PREFIX = "cloudgpu-"
# Tags of a group with its machine's size and market, for the minutes in which the machine is gone and the group not.
TAG_GROUP_SIZE, TAG_GROUP_MARKET = "cloudgpu-group-size", "cloudgpu-group-market"
# From inside, or from outside by `az vm stop`: Azure does not say which. cloudgpu itself always deallocates.
SHUT_DOWN = "shut down, not deallocated"
_STATES = {
    "creating": State.PENDING,
    "starting": State.PENDING,
    "running": State.RUNNING,
    "stopping": State.STOPPING,
    "stopped": State.STOPPED,
    "deallocating": State.STOPPING,
    "deallocated": State.DEALLOCATED,
}
_UNBILLED_STATES = (State.DEALLOCATED, State.TERMINATED)
_AZURE_ONLY_TAGS = (TAG_GROUP_SIZE, TAG_GROUP_MARKET, "cloudgpu-timer")


def instance(raw: Raw, statuses: Sequence[Raw], *, account: str, address: Address | None = None) -> Instance:
    """Return the `Instance` of a machine by Azure's JSON of it and the statuses of its instance view.

    Its tags are those that cloudgpu gives every machine on every cloud (`tags_of`).
    """
    state = state_of(raw, statuses)
    size = str((properties_of(raw).get("hardwareProfile") or {}).get("vmSize") or "")
    return Instance(
        provider="azure",
        account=account,
        id=ids.join_id(str(raw["location"]).lower(), str(raw["name"]).lower()),
        state=state,
        billed=state not in _UNBILLED_STATES,
        tags=tags_of(raw),
        region=str(raw["location"]).lower(),
        zone=zone_of(raw).lower(),
        instance_type=size,
        market=Market.SPOT if is_spot(raw) else Market.ON_DEMAND,
        launched_at=_parse_time(properties_of(raw).get("timeCreated")),
        since=_power_state_since(statuses),  # when the power state began
        address=address if state in (State.PENDING, State.RUNNING) else None,
        accelerators=gpus_of("azure", size),
        last_active=time_of_tag(str((raw.get("tags") or {}).get(TAG_LAST_ACTIVE, ""))),
        reason=_reason(raw, statuses, state),
    )


def instance_of_group(group: Raw, *, account: str) -> Instance:
    """Return a machine that is gone while its group is still being deleted, by the group's tags.

    Its disk may exist for some minutes, so its end is not proved yet.
    """
    tags, region = group.get("tags") or {}, str(group["location"]).lower()
    size = str(tags.get(TAG_GROUP_SIZE, ""))
    return Instance(
        provider="azure",
        account=account,
        id=ids.join_id(region, str(group["name"]).lower()),
        state=State.STOPPING,
        billed=False,
        tags=tags_of(group),
        region=region,
        zone=region,
        instance_type=size,
        market=Market.SPOT if tags.get(TAG_GROUP_MARKET) == Market.SPOT else Market.ON_DEMAND,
        accelerators=gpus_of("azure", size),
    )


def tags_of(raw: Raw) -> dict[str, str]:
    """Return the tags that cloudgpu gives every machine on every cloud, without those that only Azure has."""
    return {
        key: value
        for key, value in (raw.get("tags") or {}).items()
        if key.startswith(TAG_PREFIX) and key not in _AZURE_ONLY_TAGS
    }


def state_of(raw: Raw, statuses: Sequence[Raw]) -> State:
    """Return the state by the power state, and where Azure gives none by the provisioning state."""
    power_state, provisioning = power_of(statuses), provisioning_state(raw)
    if provisioning == "deleting":
        return State.STOPPING
    if creation_failed(raw, statuses):
        return State.DEALLOCATED
    if power_state in _STATES:
        return _STATES[power_state]
    return State.PENDING if provisioning == "creating" else State.UNKNOWN


def creation_failed(raw: Raw, statuses: Sequence[Raw]) -> bool:
    """Say whether a machine's creation failed: it has no hardware, but a disk of it may be there.

    Its provisioning state is `failed` then. So is that of a machine that runs when an extension or a later change of it
    has failed; so the power state has to be missing, or `creating`: it has never got hardware. A view without statuses,
    or with the power state `unknown`, is no proof.
    """
    return provisioning_state(raw) == "failed" and bool(statuses) and power_of(statuses) in ("", "creating")


def power_of(statuses: Sequence[Raw]) -> str:
    """Return Azure's power state (`running`, `deallocated`, ...); empty where it gives none."""
    return next((code for status_type, code in _types_and_codes(statuses) if status_type == "powerstate"), "")


def failure_code(statuses: Sequence[Raw]) -> str:
    """Return the code with which the last operation on a machine failed, by its instance view; empty for none."""
    for one in statuses:
        parts = str(one.get("code") or "").split("/")
        if len(parts) > 2 and [part.lower() for part in parts[:2]] == ["provisioningstate", "failed"]:  # noqa: PLR2004
            return parts[2]
    return ""


def statuses_of(raw: Raw) -> Sequence[Raw]:
    """Return the statuses of the instance view in an answer; none where it has none."""
    return list((properties_of(raw).get("instanceView") or {}).get("statuses") or ())


def _types_and_codes(statuses: Sequence[Raw]) -> list[tuple[str, str]]:
    """Return the parts of each status: `powerstate` and `running`, say, in lower case."""
    pairs = (str(one.get("code") or "").lower().partition("/") for one in statuses)
    return [(status_type, code) for status_type, _, code in pairs]


def _power_state_since(statuses: Sequence[Raw]) -> datetime | None:
    """Return when the power state began, where Azure says so.

    The time of the provisioning state is not used: a change of tags moves it, and a shutdown from inside does not.
    """
    power_state = (one for one in statuses if str(one.get("code") or "").lower().startswith("powerstate/"))
    return next((_parse_time(one.get("time")) for one in power_state), None)


def _parse_time(value: object) -> datetime | None:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    try:
        return datetime.fromisoformat(str(value)).astimezone(UTC) if value else None
    except ValueError:
        return None


def _reason(raw: Raw, statuses: Sequence[Raw], state: State) -> str | None:
    """Return why a machine was shut down or not created; None for any other state.

    None for a deallocated machine, too: Azure does not say whether its user did that, the machine itself by its managed
    identity, or an eviction.
    """
    if state is State.STOPPED:
        return SHUT_DOWN
    if creation_failed(raw, statuses):
        return f"could not be made ({failure_code(statuses) or 'Azure does not say why'})"
    return None
