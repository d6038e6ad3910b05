"""Launches: key pair and group made sure of, then RunInstances, sent again with its token until it is answered.

The nodes of a cluster are launched in one RunInstances: EC2 makes all of them or none. "If you specify a value that is
more capacity than Amazon EC2 can provide in the target Availability Zone, Amazon EC2 does not launch any instances"
(EC2 API Reference, RunInstances, MinCount). One call gives all the same tags and user data: the launch index, in the
answer and in every look, tells the machines apart (`translate.tags_of_machine`).
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
from cloudgpu.providers.aws.compute.request import Call, run_instances, user_data
from cloudgpu.providers.aws.compute.translate import instance
from cloudgpu.providers.aws.errors import code_of
from cloudgpu.providers.aws.network import network
from cloudgpu.providers.aws.network.shared import Shared, clear_shared, make_shared
from cloudgpu.providers.shared.calls import LaunchSends

SDK_ATTEMPTS = 1  # send per call: a hidden second one of the SDK's could not be told from ours
# What was just made is not known everywhere at once.
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
    return _instance(aws, call.region, found)


def _instance(aws: Aws, region: str, raw: dict[str, Any]) -> Instance:
    return instance(raw, account=aws.account, region=region, ssh_port=aws.options.ssh_port)


def _call_parameters(aws: Aws, attempt: Attempt, call: Call) -> dict[str, Any]:
    """Return the call's parameters; what it needs in the region is made sure of side by side."""
    data = user_data(attempt)  # a fault in it is said before anything is made
    line = attempt.boot.client_public_keys[0]
    with Pool(2) as pool:
        key = pool.submit(network.key_pair, aws, call.region, line, attempt.tags[TAG_OWNER], attempt.ledger)
        group = pool.submit(network.group, aws, attempt, call)
        return run_instances(attempt, key_name=key.result(), group=group.result(), user_data=data)


class Sender:
    """Sends one RunInstances until it is answered, and knows whether a machine, or `count`, may have been made."""

    def __init__(self, aws: Aws, attempt: Attempt, region: str, deadline: datetime, *, count: int = 1) -> None:
        self._aws, self._region, self._count = aws, region, count
        self._token, self._zone = attempt.token, attempt.offer.available.zone
        self._not_yet_tries = EVENTUAL_TRIES
        self._sends = LaunchSends(aws, f"AWS has not accepted RunInstances in {self._zone}", deadline, self._uncertain)

    def send(self, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the machines as AWS says them, by their launch index."""
        while True:
            try:
                return self._send_once(parameters)
            except LaunchUncertain as error:  # the token is known, with other parameters
                return self._find_by_token(error)
            except ProviderUnavailable as error:
                self._sends.record_unanswered(error)
            except CloudgpuError as error:
                if code_of(error) in EVENTUAL_CODES and self._not_yet_tries:
                    self._not_yet_tries -= 1
                    self._sends.wait(error)
                elif self._sends.may_have_launched:
                    return self._find_by_token(error)
                else:
                    raise self._with_profile_remedy(error, parameters) from error

    def _send_once(self, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        with self._aws.calling("RunInstances", self._region, value=self._zone):
            answer = self._aws.client("ec2", self._region, sends=SDK_ATTEMPTS).run_instances(**parameters)
        found = _by_index(answer["Instances"])
        for one in found:
            with suppress(KeyError, OSError):  # a full disk, say: the machine is there all the same
                self._aws.launched_in.remember(one["InstanceId"], answer["OwnerId"])
        return self._check_count(found, None)

    def _find_by_token(self, error: CloudgpuError) -> list[dict[str, Any]]:
        """Return the machines that this token has made; raise the refusal where it is certain that there are none.

        A refusal for want of capacity or quota is an answer to this very token: had an earlier send made the
        machine, AWS would have returned it. Any other may have come before AWS looked at the token.
        """
        filters = [{"Name": "client-token", "Values": [self._token]}]
        try:
            found = describe_instances(self._aws, self._region, Filters=filters)
        except CloudgpuError:
            raise self._uncertain(error) from error
        if found:
            return self._check_count(_by_index(found), error)
        if isinstance(error, (NoCapacity, QuotaExceeded)):
            raise error
        raise self._uncertain(error) from error

    def _check_count(self, found: list[dict[str, Any]], error: CloudgpuError | None) -> list[dict[str, Any]]:
        """Return the machines of a launch where these are all: some may be gone, or it was of another number."""
        if self._count == 1:
            return found[:1]
        if len(found) == self._count:
            return found
        message = f"AWS shows {len(found)} of the {self._count} machines of this launch"
        raise self._uncertain(InvalidRequest(message, field="--nodes", value=str(self._count))) from error

    def _with_profile_remedy(self, error: CloudgpuError, parameters: dict[str, Any]) -> CloudgpuError:
        """Return the refusal of a profile that is not there with the way out; any other as it is."""
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
        what = "the machine" if self._count == 1 else f"the {self._count} machines"
        return LaunchUncertain(
            f"It is not known whether AWS has made {what} in {self._zone}: {error.message}",
            field=error.field,
            value=error.value,
            next="Run the same up again: it sends the same call with the same token, which never makes a second one.",
        )


def _by_index(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda one: int(one.get("AmiLaunchIndex", 0)))


NOT_LAUNCHED = (NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest)  # surely none was made


def launch_together(aws: Aws, attempts: Sequence[Attempt], *, deadline: datetime) -> list[Instance]:
    """Launch the machines of these attempts, or return those that the first one's token has made already.

    Raises as `launch.launch` does; what the nodes would have shared is taken away again where surely none was made.
    """
    first = attempts[0]
    call = Call(**first.call)
    try:
        parameters = _parameters(aws, attempts, call)
        found = Sender(aws, first, call.region, deadline, count=len(attempts)).send(parameters)
    except NOT_LAUNCHED:
        with suppress(CloudgpuError):  # it is free, and `cloudgpu orphans` finds it
            clear_shared(aws, first.machine.removesuffix("-0"), call.region)
        raise
    return [_instance(aws, call.region, one) for one in found]


def _parameters(aws: Aws, attempts: Sequence[Attempt], call: Call) -> dict[str, Any]:
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
