"""The nodes of a cluster in one RunInstances: EC2 makes all of them or none.

"If you specify a value that is more capacity than Amazon EC2 can provide in the target Availability Zone, Amazon EC2
does not launch any instances" (EC2 API Reference, RunInstances, MinCount). One call gives all the same tags and user
data: the launch index, in the answer and in every look, tells the machines apart (`translate.tags_of_machine`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cloudgpu.core.model.cluster import shared_tags
from cloudgpu.core.model.instances import TAG_NAME, TAG_OWNER, Instance
from cloudgpu.core.model.launch import Attempt
from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest, NoCapacity, QuotaExceeded
from cloudgpu.parallel import Pool
from cloudgpu.providers.aws.compute.launch import Sender
from cloudgpu.providers.aws.compute.request import Call, run_instances, user_data
from cloudgpu.providers.aws.compute.translate import instance
from cloudgpu.providers.aws.network import network
from cloudgpu.providers.aws.network.shared import Shared, clear_shared, make_shared

if TYPE_CHECKING:
    from cloudgpu.providers.aws.client import Aws

REFUSED = (NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest)  # surely none was made


def launch_together(aws: Aws, attempts: Sequence[Attempt], *, deadline: datetime) -> list[Instance]:
    """Launch the machines of these attempts, or return those that the first one's token has made already.

    Raises as `launch.launch` does; what the nodes would have shared is taken away again where surely none was made.
    """
    first = attempts[0]
    call = Call(**first.call)
    try:
        parameters = _asked(aws, attempts, call)
        found = Sender(aws, first, call.region, deadline, count=len(attempts)).send(parameters)
    except REFUSED:
        with suppress(CloudgpuError):  # it is free, and `cloudgpu orphans` finds it
            clear_shared(aws, first.machine.removesuffix("-0"), call.region)
        raise
    port = aws.options.ssh_port
    return [instance(one, account=aws.account, region=call.region, ssh_port=port) for one in found]


def _asked(aws: Aws, attempts: Sequence[Attempt], call: Call) -> dict[str, Any]:
    """Return the call's parameters; what it needs in the region is made sure of side by side."""
    first = attempts[0]
    # All nodes read the same, so the agent's settings name their cluster. A fault is said before anything is made.
    data = user_data(replace(first, machine=first.machine.removesuffix("-0")))
    line = first.boot.client_public_keys[0]
    with Pool(3) as pool:
        key = pool.submit(network.key_pair, aws, call.region, line, first.tags[TAG_OWNER], first.ledger)
        group = pool.submit(network.group, aws, first, call)
        shared = pool.submit(make_shared, aws, first, call)
        return run_together(attempts, key_name=key.result(), group=group.result(), shared=shared.result(), data=data)


def run_together(
    attempts: Sequence[Attempt], *, key_name: str, group: str, shared: Shared, data: bytes
) -> dict[str, Any]:
    """Return the parameters of RunInstances for all of these attempts. Pure.

    No disk outlives its machine by itself: those of one call bear the same tags, so nobody could tell whose is left.
    """
    first = attempts[0]
    tags = shared_tags([one.tags for one in attempts])
    setup = replace(first.request.setup, keep_disk=False)
    request = replace(first.request, name=tags[TAG_NAME], setup=setup)
    parameters = run_instances(
        replace(first, tags=tags, request=request), key_name=key_name, group=group, user_data=data
    )
    (interface,) = parameters["NetworkInterfaces"]
    parameters |= {
        "MinCount": len(attempts),
        "MaxCount": len(attempts),
        "NetworkInterfaces": [{**interface, "Groups": [*interface["Groups"], shared.group]}],
    }
    if shared.placement is not None:
        parameters["Placement"] = {"GroupName": shared.placement}
    return parameters
