"""Launches: closes the network to all but the callers, then sends instances.insert until it is answered.

Google accepts the call, and the operation says whether the machine was made. The request id makes a second send of
the same call the same operation for 60 minutes; the machine's name, which follows from the token too, is unique in its
zone for as long as the machine exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from cloudgpu.core.model.instances import TAG_ID, Instance
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import CloudgpuError, InstanceNotFound, LaunchUncertain, NoCapacity, ProviderUnavailable
from cloudgpu.providers.gcp import errors, ids, operations
from cloudgpu.providers.gcp.client import Gcp
from cloudgpu.providers.gcp.compute import listing
from cloudgpu.providers.gcp.compute.request import Call, instance_resource, request_id
from cloudgpu.providers.gcp.error_codes import ALREADY_EXISTS
from cloudgpu.providers.gcp.errors import code_of
from cloudgpu.providers.gcp.network import firewall, firewall_rules
from cloudgpu.providers.gcp.network.shared import make_shared
from cloudgpu.providers.shared.calls import LaunchSends

INSERT_ACTION = "compute.instances.insert"
PREEMPTED_AT_START = (
    "UNSUPPORTED_OPERATION"  # the code, by public programs, where a spot machine is preempted at its start
)


def launch(gcp: Gcp, attempt: Attempt, *, deadline: datetime) -> Instance:
    """Launch the machine of an attempt, or return the one that its token has made already.

    Raises NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest when it was surely not made; LaunchUncertain or
    another ProviderUnavailable when that is not known.
    """
    call = Call(**attempt.call)
    resource = instance_resource(attempt)  # raises for an invalid attempt before anything is made
    machine_id = ids.machine_id(call.zone, resource["name"])
    listing.record_project(gcp, call.project)
    try:
        _admit_callers(gcp, attempt, call, machine_id)
        raw_machine = _Sender(gcp, attempt, call, deadline).send(resource)
    except ProviderUnavailable:
        raise
    except CloudgpuError as error:
        with suppress(CloudgpuError):  # leftover rules cost nothing, and are listed as orphans
            if isinstance(error, NoCapacity) or not _exists(gcp, call, machine_id):
                _remove_rules(gcp, call, machine_id)
        raise
    return listing.instances(gcp, [raw_machine])[0]


def _admit_callers(gcp: Gcp, attempt: Attempt, call: Call, machine_id: str) -> None:
    """Let in the callers and the cluster's machines alone, before the machine exists: it is never open to all."""
    if call.tag is None:
        firewall.ensure_deny_rule(gcp, call.network)
        firewall.admit(gcp, call.network, machine_id, call.callers, attempt.tags)
        make_shared(gcp, attempt, call)


def _exists(gcp: Gcp, call: Call, machine_id: str) -> bool:
    """Say whether the machine exists: an earlier send may have made it, although this one was refused.

    Without its firewall rules nobody could reach it. Raises the error of the read.
    """
    try:
        listing.fetch_machine(gcp, machine_id, project=call.project)
    except InstanceNotFound:
        return False
    return True


def _remove_rules(gcp: Gcp, call: Call, machine_id: str) -> None:
    """Take away the rules of a machine that was not made."""
    if call.tag is None:
        for label in call.callers:
            firewall.start_removal(
                gcp, firewall.project_of(call.network), firewall_rules.allow_rule_name(machine_id, label)
            )


class _Sender:
    """Sends one insert until it is answered and done, and knows whether a machine may have been made."""

    def __init__(self, gcp: Gcp, attempt: Attempt, call: Call, deadline: datetime) -> None:
        self._gcp, self._attempt, self._call, self._deadline = gcp, attempt, call, deadline
        self._name = ids.machine_name(attempt.token)
        self._sends = LaunchSends(
            gcp, f"Google Cloud has not accepted {INSERT_ACTION} in {call.zone}", deadline, self._uncertain
        )

    def send(self, resource: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the machine as Google describes it, once the operation has ended. Raises as `launch`."""
        while True:
            try:
                operation = self._send_once(resource)
            except ProviderUnavailable as error:
                self._sends.record_unanswered(error)
            except CloudgpuError as error:
                if self._sends.may_have_launched or code_of(error) in ALREADY_EXISTS:
                    return self._find_made(error)
                raise
            else:
                return self._wait_until_made(operation)

    def _send_once(self, resource: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._gcp.call(
            INSERT_ACTION,
            self._call.zone,
            value=self._call.zone,
            sends=1,
            project=self._call.project,
            zone=self._call.zone,
            requestId=request_id(self._attempt),
            instanceResource=dict(resource),
        )

    def _wait_until_made(self, operation: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the machine once its operation has ended; raise what that has failed with."""
        with suppress(OSError):  # a full disk, say: the machine is there all the same
            self._gcp.project_pins.remember(self._name, self._call.project)
        listing.record_project(self._gcp, self._call.project)  # again: a listing meanwhile may have forgotten it
        zone, project = self._call.zone, self._call.project
        try:
            finished = operations.wait_until_done(
                self._gcp, operation, action=INSERT_ACTION, value=zone, deadline=self._deadline, project=project
            )
        except CloudgpuError as error:  # the outcome is not known: is there a machine?
            return self._find_made(error)
        error_of_operation = errors.operation_error(finished, self._gcp.call_context(INSERT_ACTION, zone, zone))
        if error_of_operation is not None:
            return self._resolve_failure(error_of_operation)
        try:
            return self._read_machine()
        except InstanceNotFound as error:  # made, and gone or not yet shown
            raise self._uncertain(error) from error

    def _resolve_failure(self, failure: CloudgpuError) -> Mapping[str, Any]:
        """Raise the error of a launch for the error of its operation.

        Where Google itself failed, return the machine if there is one all the same: it would be billed.
        """
        if not isinstance(failure, ProviderUnavailable):
            raise self._launch_error(failure)
        try:
            machine = self._read_machine()
        except InstanceNotFound:
            raise self._launch_error(failure) from None
        except CloudgpuError:
            raise self._uncertain(failure) from failure
        if machine.get("status") == "PROVISIONING":
            raise self._uncertain(failure)
        return machine

    def _read_machine(self) -> Mapping[str, Any]:
        machine_id = ids.machine_id(self._call.zone, self._name)
        return listing.fetch_machine(self._gcp, machine_id, project=self._call.project)

    def _find_made(self, error: CloudgpuError) -> Mapping[str, Any]:
        """Return the machine of this name if it is this attempt's, else raise `error`.

        Raises LaunchUncertain where it may still be made.
        """
        try:
            machine = self._read_machine()
        except CloudgpuError:
            raise self._uncertain(error) from error
        if machine.get("labels", {}).get(TAG_ID) != self._attempt.machine:
            raise error
        if machine.get("status") == "PROVISIONING":  # whether Google has the capacity is not known yet
            raise self._uncertain(error) from error
        return machine

    def _launch_error(self, error: CloudgpuError) -> CloudgpuError:
        """Return the error of a launch for an error of its operation.

        An operation that has ended with an error has made no machine; to send the call again under the same request id
        would bring the same operation.
        """
        is_spot = self._attempt.offer.configuration.market is Market.SPOT
        if isinstance(error, ProviderUnavailable) or (is_spot and code_of(error) == PREEMPTED_AT_START):
            return NoCapacity(error.message, field="offer", value=error.value)
        return error

    def _uncertain(self, error: CloudgpuError) -> LaunchUncertain:
        return LaunchUncertain(
            f"It is not known whether Google Cloud has made the machine in {self._call.zone}: {error.message}",
            field=error.field,
            value=error.value,
            next="Run the same up again: it sends the same call with the same request id, which never makes a second.",
        )
