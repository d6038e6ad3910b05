"""Reads machines: one by its id, or all of ours in every region that the account uses."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from cloudgpu.core.model.identity import Unanswered
from cloudgpu.core.model.instances import TAG_ID, Instance, Listing
from cloudgpu.errors import CloudgpuError, InstanceNotFound
from cloudgpu.providers.aws import ids
from cloudgpu.providers.aws.client import Aws, describe_instances
from cloudgpu.providers.aws.compute import interruption, translate

PAGE_SIZE = 1000  # machines in an answer: the most that AWS gives


def get(aws: Aws, id: str) -> Instance:  # noqa: A002
    """Return the machine now; raise InstanceNotFound when AWS has none.

    One call; a second one for a spot machine that stopped or ended without a time or a cause in the answer, and for one
    that AWS does not list any more: its spot request says for some hours how it ended.
    """
    region, native_id = ids.split_machine_id(id)
    try:
        raw = describe_raw(aws, region, native_id)
    except InstanceNotFound:
        ended_spot = interruption.from_spot_requests(aws, region, [native_id])
        if native_id not in ended_spot:
            raise
        return ended_spot[native_id]
    return instances(aws, region, [raw])[0]


def describe_raw(aws: Aws, region: str, native_id: str) -> dict[str, Any]:
    """Return a machine as AWS describes it; raise InstanceNotFound when it has none.

    Raises AuthFailed where the credentials are of another AWS account than the machine's: that one was not asked.
    """
    try:
        return _describe_instance(aws, region, native_id)
    except InstanceNotFound:
        aws.launch_accounts.check(native_id, aws.account_id)
        raise


def _describe_instance(aws: Aws, region: str, native_id: str) -> dict[str, Any]:
    id_ = ids.join_id(region, native_id)
    found = describe_instances(aws, region, value=id_, InstanceIds=[native_id])
    if not found:
        raise InstanceNotFound(f"AWS {region} has no machine {native_id}.", field="instance", value=id_)
    return found[0]


def listed(aws: Aws) -> Listing:
    """Return every machine with a cloudgpu-id tag, and the regions that did not answer: a call per region and page.

    Another call goes to each region with spot machines that stopped or ended without a time or a cause in the answer.
    The cached list of the account's regions is used where there is one. Without it, or once one of its regions does not
    answer (it may not be enabled any more), one call reads that list anew.
    """
    cached_regions, answers, unanswered = (
        aws.remembered_regions(),
        dict[str, list[Instance]](),
        tuple[Unanswered, ...](),
    )
    if cached_regions is not None:
        with suppress(CloudgpuError):  # where none answered, the regions are read anew and asked below
            answers, unanswered = aws.ask_each(cached_regions, lambda region: _our_instances(aws, region))
        if answers and not unanswered:
            return _listing(answers, unanswered, cached_regions)
    try:
        regions = aws.regions()
    except CloudgpuError:
        if not answers:
            raise
        return _listing(answers, unanswered, cached_regions or ())
    first_answers = answers
    answers, unanswered = aws.ask_each(
        regions, lambda region: first_answers[region] if region in first_answers else _our_instances(aws, region)
    )
    return _listing(first_answers | answers, unanswered, (*first_answers, *regions))


def _listing(
    answers: Mapping[str, list[Instance]], unanswered: tuple[Unanswered, ...], regions: Collection[str]
) -> Listing:
    return Listing(tuple(one for region in sorted(answers) for one in answers[region]), unanswered, frozenset(regions))


def _our_instances(aws: Aws, region: str) -> list[Instance]:
    filters = [{"Name": "tag-key", "Values": [TAG_ID]}]
    found = describe_instances(aws, region, Filters=filters, PaginationConfig={"PageSize": PAGE_SIZE})
    return instances(aws, region, found)


def instances(aws: Aws, region: str, found: Sequence[dict[str, Any]]) -> list[Instance]:
    """Return `Instance`s of machines as AWS describes them; one call more for spot machines that stopped or ended."""
    return interruption.with_end_causes(aws, region, [(one, instance_of(aws, region, one)) for one in found])


def instance_of(aws: Aws, region: str, raw: dict[str, Any]) -> Instance:
    """Return the `Instance` of a machine as AWS describes it. No call."""
    return translate.instance(raw, account=aws.account, region=region, ssh_port=aws.options.ssh_port)
