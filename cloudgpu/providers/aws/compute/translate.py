"""Translates a machine of DescribeInstances to an `Instance`. Pure: no call, no clock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from cloudgpu.core.model.cluster import tags_of_node
from cloudgpu.core.model.instances import TAG_LAST_ACTIVE, Address, Instance, State
from cloudgpu.core.model.offers import Market
from cloudgpu.providers.aws.client import Raw
from cloudgpu.providers.aws.ids import join_id
from cloudgpu.providers.shared.rules import gpus_of, time_of_tag

SSH_USER = "cloudgpu"  # the login that cloud-init creates on every machine, whatever its image
TAG_PREFIX = "cloudgpu-"
_STATES = {
    "pending": State.PENDING,
    "running": State.RUNNING,
    "stopping": State.STOPPING,
    "stopped": State.STOPPED,
    "shutting-down": State.STOPPING,  # the next state is terminated, and nothing is billed any more
    "terminated": State.TERMINATED,
}
ENDED_STATES = ("shutting-down", "terminated")
# AWS bills from `running` on ("Billing by instance state", EC2 user guide). A pending machine is about to be billed:
# budgets and the reaper treat it as billed, and the bill leaves it out (`from_running` in core.billing.rules).
_BILLED_STATES = (State.PENDING, State.RUNNING)
_REASON_TIME = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) GMT\)")
_BY_USER = "Client.UserInitiated"
_REASON_BY_CODE = {
    "Client.InstanceInitiatedShutdown": "shut down from inside",
    "Server.ScheduledStop": "stopped by AWS for maintenance",
    "Server.SpotInstanceShutdown": "interrupted",
    "Server.SpotInstanceTermination": "interrupted",
}


def instance(raw: Raw, *, account: str, region: str, ssh_port: int) -> Instance:
    """Return a machine as AWS reports it; its tags are only those of cloudgpu; a cluster's node has its own."""
    tags = tags_of_machine(raw)
    state = _STATES.get(raw.get("State", {}).get("Name", ""), State.UNKNOWN)
    first_launched_at = launched_at(raw)
    return Instance(
        provider="aws",
        account=account,
        id=join_id(region, raw["InstanceId"]),
        state=state,
        billed=state in _BILLED_STATES or state is State.UNKNOWN,
        tags=our_tags(tags),
        region=region,
        zone=raw.get("Placement", {}).get("AvailabilityZone", ""),
        instance_type=raw["InstanceType"],
        market=Market.SPOT if raw.get("InstanceLifecycle") == "spot" else Market.ON_DEMAND,
        launched_at=first_launched_at,
        since=_state_since(raw, state, first_launched_at),
        address=_address(raw, ssh_port) if state in (State.PENDING, State.RUNNING) else None,
        accelerators=gpus_of("aws", raw["InstanceType"]),
        last_active=time_of_tag(tags.get(TAG_LAST_ACTIVE, "")),
        reason=_reason(raw, state),
    )


def tags_of(raw: Raw) -> dict[str, str]:
    """Return all tags of any resource that AWS describes."""
    return {tag["Key"]: tag["Value"] for tag in raw.get("Tags", ())}


def our_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return those of these tags that are ours."""
    return {key: value for key, value in tags.items() if key.startswith(TAG_PREFIX)}


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as EC2's calls take them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tags_of_machine(raw: Raw) -> Mapping[str, str]:
    """Return all tags of a machine; nodes of a cluster, launched with the same tags, are told apart by launch index."""
    tags = tags_of(raw)
    return tags_of_node(tags, raw["AmiLaunchIndex"]) if "AmiLaunchIndex" in raw else tags


def root_disk(raw: Raw) -> Raw | None:
    """Return the mapping of a machine's system disk (DeviceName, Ebs); None once it is gone, or not there yet."""
    disks = raw.get("BlockDeviceMappings", ())
    return next((disk for disk in disks if disk.get("DeviceName") == raw.get("RootDeviceName")), None)


def launched_at(raw: Raw) -> datetime | None:
    """Return when the machine was first launched, aware UTC; None where AWS does not say any more.

    LaunchTime moves with every start; the system disk was attached at the first.
    """
    disk = root_disk(raw)
    attached_at = disk.get("Ebs", {}).get("AttachTime") if disk else None
    if attached_at is not None:
        return _utc(attached_at)
    return _utc(raw.get("LaunchTime")) if raw.get("State", {}).get("Name") == "pending" else None


def _state_since(raw: Raw, state: State, first_launched_at: datetime | None) -> datetime | None:
    """Return when the state began: a start for what runs, the time in AWS's reason for what has ended."""
    last_started_at = _utc(raw.get("LaunchTime"))
    if state in (State.PENDING, State.RUNNING):
        return max(filter(None, (last_started_at, first_launched_at)), default=None)
    match = _REASON_TIME.search(raw.get("StateTransitionReason", ""))
    if match is None:
        return None
    ended_at = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    return max(
        filter(None, (ended_at, last_started_at, first_launched_at))
    )  # AWS cuts it to the second, so it may seem to be before the start


def _address(raw: Raw, port: int) -> Address | None:
    """Return the address of SSH: the public one, else the private one in its VPC."""
    host = raw.get("PublicIpAddress") or raw.get("PrivateIpAddress")
    return Address(host, port, SSH_USER) if host else None


def _reason(raw: Raw, state: State) -> str | None:
    """Return why a machine ended; None for one that runs, or that somebody ended through AWS."""
    code = raw.get("StateReason", {}).get("Code", "")
    if state in (State.PENDING, State.RUNNING) or not code or code.startswith(_BY_USER):
        return None
    return _REASON_BY_CODE.get(code, str(raw["StateReason"].get("Message") or code))


def _utc(at: datetime | None) -> datetime | None:
    return at and at.astimezone(UTC)
