"""Launches: creates key pair and group where they are missing, then sends RunInstances until it is answered.

The nodes of a cluster are launched in one RunInstances: EC2 makes all of them or none. "If you specify a value that is
more capacity than Amazon EC2 can provide in the target Availability Zone, Amazon EC2 does not launch any instances"
(EC2 API Reference, RunInstances, MinCount). One call gives all the same tags and user data: the launch index, in the
answer and in every listing, tells the machines apart (`translate.tags_of_machine`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from cloudgpu.core.model.cluster import shared_tags
from cloudgpu.core.model.instances import TAG_NAME, TAG_OWNER, Instance
from cloudgpu.core.model.launch import Attempt
from cloudgpu.errors import (
    AuthFailed,
    CloudgpuError,
    InvalidRequest,
    LaunchUncertain,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
)
from cloudgpu.parallel import Pool
from cloudgpu.providers.aws.client import Aws, describe_instances
from cloudgpu.providers.aws.compute.listing import instance_of
from cloudgpu.providers.aws.compute.request import Call, launch_parameters, user_data
from cloudgpu.providers.aws.errors import code_of
from cloudgpu.providers.aws.network import network
from cloudgpu.providers.aws.network.shared import Shared, clear_shared, make_shared
from cloudgpu.providers.shared.calls import LaunchSends

SDK_ATTEMPTS = 1  # sends per call: the SDK would hide whether it sent a call twice
# EC2 is eventually consistent: it may not find yet what was just created.
EVENTUAL_CODES = ("InvalidGroup.NotFound", "InvalidKeyPair.NotFound", "InvalidPlacementGroup.Unknown")
EVENTUAL_TRIES = 5


def launch(aws: Aws, attempt: Attempt, *, deadline: datetime) -> Instance:
    """Launch the machine of an attempt, or return the one that its token has made already.

    Raises NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest when it was surely not made; LaunchUncertain or
    another ProviderUnavailable when that is not known.
    """
    call = Call(**attempt.call)
    parameters = _call_parameters(aws, attempt, call)
    (found,) = Sender(aws, attempt, call.region, deadline).send(parameters)
    return instance_of(aws, call.region, found)


def _call_parameters(aws: Aws, attempt: Attempt, call: Call) -> dict[str, Any]:
    """Return the call's parameters; creates what it needs in the region where it is missing."""
    boot_data = user_data(attempt)  # raises for bad boot data before anything is created
    public_key = attempt.boot.client_public_keys[0]
    with Pool(2) as pool:
        key = pool.submit(
            network.ensure_key_pair, aws, call.region, public_key, attempt.tags[TAG_OWNER], attempt.ledger
        )
        group = pool.submit(network.ensure_group, aws, attempt, call)
        return launch_parameters(attempt, key_name=key.result(), group=group.result(), user_data=boot_data)


class Sender:
    """Sends one RunInstances for `count` machines until it is answered; knows whether they may have been created."""

    def __init__(self, aws: Aws, attempt: Attempt, region: str, deadline: datetime, *, count: int = 1) -> None:
        self._aws, self._region, self._count = aws, region, count
        self._token, self._zone = attempt.token, attempt.offer.configuration.zone
        self._eventual_tries_left = EVENTUAL_TRIES
        self._sends = LaunchSends(aws, f"AWS has not accepted RunInstances in {self._zone}", deadline, self._uncertain)

    def send(self, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the machines as AWS describes them, in the order of their launch index. Raises as `launch`."""
        while True:
            try:
                return self._send_once(parameters)
            except LaunchUncertain as error:  # the token was used already, with other parameters
                return self._find_by_token(error)
            except ProviderUnavailable as error:
                self._sends.record_unanswered(error)
            except CloudgpuError as error:
                if code_of(error) in EVENTUAL_CODES and self._eventual_tries_left:
                    self._eventual_tries_left -= 1
                    self._sends.wait(error)
                elif self._sends.may_have_launched:
                    return self._find_by_token(error)
                else:
                    raise self._with_profile_remedy(error, parameters) from error

    def _send_once(self, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        with self._aws.calling("RunInstances", self._region, value=self._zone):
            answer = self._aws.client("ec2", self._region, sends=SDK_ATTEMPTS).run_instances(**parameters)
        machines = _by_index(answer["Instances"])
        for one in machines:
            with suppress(KeyError, OSError):  # a full disk, say: the machine is there all the same
                self._aws.launch_accounts.remember(one["InstanceId"], answer["OwnerId"])
        return self._check_count(machines, None)

    def _find_by_token(self, error: CloudgpuError) -> list[dict[str, Any]]:
        """Return the machines that this token has made; raise the refusal where it is certain that there are none.

        A refusal for want of capacity or quota is an answer to this very token: had an earlier send made the
        machine, AWS would have returned it. Any other may have come before AWS looked at the token.
        """
        filters = [{"Name": "client-token", "Values": [self._token]}]
        try:
            machines = describe_instances(self._aws, self._region, Filters=filters)
        except CloudgpuError:
            raise self._uncertain(error) from error
        if machines:
            return self._check_count(_by_index(machines), error)
        if isinstance(error, (NoCapacity, QuotaExceeded)):
            raise error
        raise self._uncertain(error) from error

    def _check_count(self, machines: list[dict[str, Any]], error: CloudgpuError | None) -> list[dict[str, Any]]:
        """Return the machines of a launch if these are all; raise LaunchUncertain where AWS lists another number."""
        if self._count == 1:
            return machines[:1]
        if len(machines) == self._count:
            return machines
        message = f"AWS shows {len(machines)} of the {self._count} machines of this launch"
        raise self._uncertain(InvalidRequest(message, field="--nodes", value=str(self._count))) from error

    def _with_profile_remedy(self, error: CloudgpuError, parameters: dict[str, Any]) -> CloudgpuError:
        """Return the error with a remedy if it is about a missing instance profile; any other as it is."""
        profile = parameters.get("IamInstanceProfile", {}).get("Name")
        if profile is None or not isinstance(error, InvalidRequest) or "profile" not in error.message.lower():
            return error
        return InvalidRequest(
            error.message,
            field=f"accounts.{self._aws.account}.instance_profile",
            value=profile,
            next="Make it again with cloudgpu init aws, or take instance_profile out of config.toml.",
        )

    def _uncertain(self, error: CloudgpuError) -> LaunchUncertain:
        machines_text = "the machine" if self._count == 1 else f"the {self._count} machines"
        return LaunchUncertain(
            f"It is not known whether AWS has made {machines_text} in {self._zone}: {error.message}",
            field=error.field,
            value=error.value,
            next="Run the same up again: it sends the same call with the same token, which never makes a second one.",
        )


def _by_index(machines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(machines, key=lambda one: int(one.get("AmiLaunchIndex", 0)))


NOT_LAUNCHED = (
    NoCapacity,
    QuotaExceeded,
    AuthFailed,
    InvalidRequest,
)  # errors after which surely no machine was created


def launch_together(aws: Aws, attempts: Sequence[Attempt], *, deadline: datetime) -> list[Instance]:
    """Launch the machines of these attempts, or return those that the first one's token has made already.

    Raises as `launch.launch` does; what the nodes would have shared is deleted where surely none was created.
    """
    first_attempt = attempts[0]
    call = Call(**first_attempt.call)
    try:
        parameters = _cluster_call_parameters(aws, attempts, call)
        machines = Sender(aws, first_attempt, call.region, deadline, count=len(attempts)).send(parameters)
    except NOT_LAUNCHED:
        with suppress(CloudgpuError):  # it is free, and `cloudgpu orphans` finds it
            clear_shared(aws, first_attempt.machine.removesuffix("-0"), call.region)
        raise
    return [instance_of(aws, call.region, one) for one in machines]


def _cluster_call_parameters(aws: Aws, attempts: Sequence[Attempt], call: Call) -> dict[str, Any]:
    """Return the call's parameters; creates what it needs in the region where it is missing."""
    first_attempt = attempts[0]
    # All nodes get the same boot data, so the agent's settings name their cluster. Bad boot data is raised for first.
    boot_data = user_data(replace(first_attempt, machine=first_attempt.machine.removesuffix("-0")))
    public_key = first_attempt.boot.client_public_keys[0]
    with Pool(3) as pool:
        key = pool.submit(
            network.ensure_key_pair, aws, call.region, public_key, first_attempt.tags[TAG_OWNER], first_attempt.ledger
        )
        group = pool.submit(network.ensure_group, aws, first_attempt, call)
        shared = pool.submit(make_shared, aws, first_attempt, call)
        return cluster_launch_parameters(
            attempts, key_name=key.result(), group_id=group.result(), shared=shared.result(), boot_data=boot_data
        )


def cluster_launch_parameters(
    attempts: Sequence[Attempt], *, key_name: str, group_id: str, shared: Shared, boot_data: bytes
) -> dict[str, Any]:
    """Return the parameters of RunInstances for all of these attempts. Pure.

    No disk is set to outlive its machine: disks of one call have the same tags, so nobody could tell whose one is.
    """
    first_attempt = attempts[0]
    tags = shared_tags([one.tags for one in attempts])
    setup = replace(first_attempt.request.setup, keep_disk=False)
    request = replace(first_attempt.request, name=tags[TAG_NAME], setup=setup)
    parameters = launch_parameters(
        replace(first_attempt, tags=tags, request=request), key_name=key_name, group=group_id, user_data=boot_data
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
