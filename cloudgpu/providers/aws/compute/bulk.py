"""Many machines in one call per region: asked to stop, and looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cloudgpu.core.model.instances import Instance
from cloudgpu.errors import CloudgpuError, InstanceNotFound, InvalidRequest, Silent
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.client import AT_ONCE, Aws, pages
from cloudgpu.providers.aws.compute import interruption as spot_end
from cloudgpu.providers.aws.compute.listing import instances
from cloudgpu.providers.shared.calls import by_item, gather, halved

MAX = 1000  # machines in a call: an answer has no more (DescribeInstances), and no call about them is better longer
VALUES = 200  # of a filter: the most that EC2 takes
Found = dict[str, Instance | CloudgpuError]


def stop_many(aws: Aws, many: Sequence[str]) -> dict[str, CloudgpuError]:
    """Ask to stop these machines, a call per region; return why not, by id, for those that were not asked.

    One that is pending, has ended, or is a one-time spot machine is refused by AWS, and with it the whole call: that is
    halved. None is looked at before.
    """
    known, refused = _by_region(many)
    for of_region in by_item(known, lambda region: _stopped(aws, region, known[region])).values():
        refused |= of_region
    return refused


def _stopped(aws: Aws, region: str, own: Sequence[str]) -> dict[str, CloudgpuError]:
    def ask(some: Sequence[str]) -> None:
        value = ids.joined(region, some[0]) if len(some) == 1 else None
        with aws.calling("StopInstances", region, value=value):
            aws.ec2(region).stop_instances(InstanceIds=list(some))

    found: dict[str, CloudgpuError] = {}
    for batch in _parts(own, MAX):
        found |= halved(batch, ask)
    return {ids.joined(region, one): fault for one, fault in found.items()}


def get_many(aws: Aws, many: Sequence[str]) -> Found:
    """Return each machine now, or why not, by id: a call per region where all of them are there.

    A region that says nothing keeps no other one's answer.
    AWS refuses a call by ids whole where it has one of them no more: then it is asked by a filter, 200 ids a call.
    """
    known, faults = _by_region(many)
    found: Found = dict(faults)
    by_region = gather(
        list(known), lambda region: _read_instances(aws, region, known[region]), AT_ONCE, patience=aws.patience.read_s
    )
    for (region, own), of_region in zip(known.items(), by_region, strict=True):
        if isinstance(of_region, Silent):
            found.update(dict.fromkeys((ids.joined(region, one) for one in own), of_region))
        else:
            found |= of_region
    return found


def _read_instances(aws: Aws, region: str, own: Sequence[str]) -> Found:
    try:
        seen = {one.id: one for one in instances(aws, region, _described(aws, region, own))}
    except CloudgpuError as error:
        return dict.fromkeys((ids.joined(region, one) for one in own), error)
    return {**seen, **_gone(aws, region, [one for one in own if ids.joined(region, one) not in seen])}


def _described(aws: Aws, region: str, own: Sequence[str]) -> list[dict[str, Any]]:
    try:
        return [one for part in _parts(own, MAX) for one in _asked(aws, region, InstanceIds=part)]
    except InstanceNotFound:
        filters = ({"Name": "instance-id", "Values": part} for part in _parts(own, VALUES))
        return [one for each in filters for one in _asked(aws, region, Filters=[each])]


def _asked(aws: Aws, region: str, **which: Any) -> Iterator[dict[str, Any]]:
    with aws.calling("DescribeInstances", region):
        for page in pages(aws.ec2(region), "describe_instances", **which):
            for part in page["Reservations"]:
                yield from part["Instances"]


def _gone(aws: Aws, region: str, own: Sequence[str]) -> Found:
    """Return what is known of machines that AWS does not show: a spot machine's request tells how that has ended."""
    remembered = spot_end.remembered(aws, region, own) if own else {}
    return {ids.joined(region, one): remembered.get(one) or _missing(aws, region, one) for one in own}


def _missing(aws: Aws, region: str, own: str) -> CloudgpuError:
    try:
        aws.launched_in.check(own, aws.number)  # credentials of another account prove nothing about an end
    except CloudgpuError as error:
        return error
    return InstanceNotFound(f"AWS {region} has no machine {own}.", field="instance", value=ids.joined(region, own))


def _by_region(many: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, CloudgpuError]]:
    """Return AWS's own ids by region, each once, and the errors of those that are no ids."""
    known: dict[str, list[str]] = {}
    wrong: dict[str, CloudgpuError] = {}
    for id_ in dict.fromkeys(many):
        try:
            region, own = ids.machine(id_)
        except InvalidRequest as error:
            wrong[id_] = error
        else:
            known.setdefault(region, []).append(own)
    return known, wrong


def _parts(own: Sequence[str], size: int) -> Iterator[list[str]]:
    for begin in range(0, len(own), size):
        yield list(own[begin : begin + size])
