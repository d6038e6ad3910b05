"""Asks AWS what a credential may do, without doing it: reads are made, changes are sent as dry runs, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cloudgpu.core.model.account import Permission
from cloudgpu.parallel import Pool
from cloudgpu.providers.aws.account.probes import CHANGES, READS, UNASKED, Probe
from cloudgpu.providers.aws.client import AT_ONCE
from cloudgpu.providers.aws.error_codes import CREDENTIAL, DENIED, SKEWED
from cloudgpu.providers.aws.market import availability as places

if TYPE_CHECKING:
    from cloudgpu.providers.aws.client import Aws

DRY = "DryRunOperation"  # AWS's word for: you may
Found = Mapping[str, str]


def permissions(aws: Aws, region: str | None = None) -> Sequence[Permission]:
    """Return every action that cloudgpu uses at AWS, asked in one region, and whether it is allowed.

    What is allowed for our own tagged things alone is asked of one of them, and not known where there is none: AWS
    would refuse it for any other. Some forty calls. Raises AuthFailed for credentials that do not work at all.
    """
    where = region or aws.options.home_region
    if region is not None:
        places.check_region(aws, region)
    answers = dict(zip(READS, _asked(aws, where, [(probe, probe.asks) for probe in READS]), strict=True))
    found = _found(aws, [answer for _, answer in answers.values()])
    changes = [(probe, probe.filled(found)) for probe in CHANGES]
    dry = _asked(aws, where, [(probe, asks) for probe, asks in changes if asks is not None])
    verdicts = [verdict for verdict, _ in answers.values()]
    spoken = iter(verdict for verdict, _ in dry)
    verdicts += [_unknown(probe) if asks is None else next(spoken) for probe, asks in changes]
    return [*verdicts, *(_unknown(probe) for probe in UNASKED)]


def _asked(
    aws: Aws, region: str, calls: Iterable[tuple[Probe, Mapping[str, Any] | None]]
) -> list[tuple[Permission, Mapping[str, Any]]]:
    listed = list(calls)
    for probe, _ in listed:
        aws.client(probe.client, probe.region or region)  # made here: boto3 makes clients one after the other
    with Pool(AT_ONCE) as pool:
        return list(pool.map(lambda call: _ask(aws, region, *call), listed))


def _ask(aws: Aws, region: str, probe: Probe, asks: Mapping[str, Any] | None) -> tuple[Permission, Mapping[str, Any]]:
    """Make one call; return whether it is allowed, and its answer."""
    where = probe.region or region
    client = aws.client(probe.client, where)
    from botocore.exceptions import ClientError

    with aws.calling(probe.action, where):
        try:
            answer = getattr(client, probe.method)(**asks or {}, **probe.dry)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in CREDENTIAL or code in SKEWED:
                raise
            return _verdict(probe, code), {}
    return Permission(probe.action, allowed=True, used_for=probe.used_for, needed=probe.needed), answer


def _verdict(probe: Probe, code: str) -> Permission:
    """Return what an error says: a refusal is only certain where it is one for want of the permission."""
    allowed = True if code == DRY else False if code in DENIED else None
    message = "" if allowed is not None else f"AWS answered {code}"
    return Permission(probe.action, allowed, probe.used_for, message, needed=probe.needed)


def _unknown(probe: Probe) -> Permission:
    return Permission(probe.action, None, probe.used_for, probe.unasked, needed=probe.needed)


def _found(aws: Aws, answers: Iterable[Mapping[str, Any]]) -> Found:
    """Return our own things among the answers, one of each kind, and an image that a machine could start from."""
    found: dict[str, str] = {}
    for answer in answers:
        for key, name, id_ in _THINGS:
            first = next((one[id_] for one in _flat(answer, key) if one.get(id_)), None)
            if first is not None:
                found.setdefault(name, str(first))
    if aws.options.instance_profile:
        found["profile"] = aws.options.instance_profile
    return found


_THINGS = (
    ("Reservations", "machine", "InstanceId"),
    ("Volumes", "disk", "VolumeId"),
    ("Snapshots", "snapshot", "SnapshotId"),
    ("Images", "own image", "ImageId"),
    ("SecurityGroups", "group", "GroupId"),
    ("PlacementGroups", "placement group", "GroupName"),
    ("KeyPairs", "key pair", "KeyPairId"),
    ("NetworkInterfaces", "interface", "NetworkInterfaceId"),
    ("Addresses", "address", "AllocationId"),
    ("SpotInstanceRequests", "spot request", "SpotInstanceRequestId"),
    ("Parameters", "image", "Value"),
    ("AvailabilityZones", "zone", "ZoneName"),
)


def _flat(answer: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the things under `key`; machines lie one deeper than the others, and those that have ended count not."""
    things: list[Mapping[str, Any]] = answer.get(key, [])
    if key != "Reservations":
        return things
    machines = (one for reservation in things for one in reservation["Instances"])
    return [one for one in machines if one["State"]["Name"] not in ("terminated", "shutting-down")]
