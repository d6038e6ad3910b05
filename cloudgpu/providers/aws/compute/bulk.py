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


def stop_many(aws: Aws, ids: Sequence[str]) -> dict[str, CloudgpuError]:
    """Ask to stop these machines, a call per region; return why not, by id, for those that were not asked.

    One that is pending, has ended, or is a one-time spot machine is refused by AWS, and with it the whole call: that is
    halved. None is looked at before.
    """
    known, refused = _by_region(ids)
    for of_region in by_item(known, lambda region: _stop(aws, region, known[region])).values():
        refused |= of_region
    return refused


def _stop(aws: Aws, region: str, native_ids: Sequence[str]) -> dict[str, CloudgpuError]:
    def ask(some: Sequence[str]) -> None:
        value = ids.joined(region, some[0]) if len(some) == 1 else None
        with aws.calling("StopInstances", region, value=value):
            aws.ec2(region).stop_instances(InstanceIds=list(some))

    found: dict[str, CloudgpuError] = {}
    for batch in _parts(native_ids, MAX):
        found |= halved(batch, ask)
    return {ids.joined(region, one): fault for one, fault in found.items()}


def get_many(aws: Aws, provider_ids: Sequence[str]) -> Found:
    """Return each machine now, or why not, by id: a call per region where all of them are there.

    A region that says nothing keeps no other one's answer.
    AWS refuses a call by ids whole where it has one of them no more: then it is asked by a filter, 200 ids a call.
    """
    known, faults = _by_region(provider_ids)
    found: Found = dict(faults)
    by_region = gather(
        list(known), lambda region: _read_instances(aws, region, known[region]), AT_ONCE, patience=aws.patience.read_s
    )
    for (region, native_id), of_region in zip(known.items(), by_region, strict=True):
        if isinstance(of_region, Silent):
            found.update(dict.fromkeys((ids.joined(region, one) for one in native_id), of_region))
        else:
            found |= of_region
    return found


def _read_instances(aws: Aws, region: str, native_ids: Sequence[str]) -> Found:
    try:
        seen = {one.id: one for one in instances(aws, region, _describe(aws, region, native_ids))}
    except CloudgpuError as error:
        return dict.fromkeys((ids.joined(region, one) for one in native_ids), error)
    return {**seen, **_read_gone(aws, region, [one for one in native_ids if ids.joined(region, one) not in seen])}


def _describe(aws: Aws, region: str, native_ids: Sequence[str]) -> list[dict[str, Any]]:
    try:
        return [one for part in _parts(native_ids, MAX) for one in _describe_chunks(aws, region, InstanceIds=part)]
    except InstanceNotFound:
        filters = ({"Name": "instance-id", "Values": part} for part in _parts(native_ids, VALUES))
        return [one for each in filters for one in _describe_chunks(aws, region, Filters=[each])]


def _describe_chunks(aws: Aws, region: str, **which: Any) -> Iterator[dict[str, Any]]:
    with aws.calling("DescribeInstances", region):
        for page in pages(aws.ec2(region), "describe_instances", **which):
            for part in page["Reservations"]:
                yield from part["Instances"]


def _read_gone(aws: Aws, region: str, native_ids: Sequence[str]) -> Found:
    """Return what is known of machines that AWS does not show: a spot machine's request tells how that has ended."""
    remembered = spot_end.remembered(aws, region, native_ids) if native_ids else {}
    return {ids.joined(region, one): remembered.get(one) or _missing(aws, region, one) for one in native_ids}


def _missing(aws: Aws, region: str, native_id: str) -> CloudgpuError:
    try:
        aws.launched_in.check(native_id, aws.number)  # credentials of another account prove nothing about an end
    except CloudgpuError as error:
        return error
    return InstanceNotFound(
        f"AWS {region} has no machine {native_id}.", field="instance", value=ids.joined(region, native_id)
    )


def _by_region(provider_ids: Sequence[str]) -> tuple[dict[str, list[str]], dict[str, CloudgpuError]]:
    """Return AWS's own ids by region, each once, and the errors of those that are no ids."""
    known: dict[str, list[str]] = {}
    wrong: dict[str, CloudgpuError] = {}
    for id_ in dict.fromkeys(provider_ids):
        try:
            region, native_id = ids.machine(id_)
        except InvalidRequest as error:
            wrong[id_] = error
        else:
            known.setdefault(region, []).append(native_id)
    return known, wrong


def _parts(native_ids: Sequence[str], size: int) -> Iterator[list[str]]:
    for begin in range(0, len(native_ids), size):
        yield list(native_ids[begin : begin + size])
