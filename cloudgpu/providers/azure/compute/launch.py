"""Launches: a resource group, its network, then the machine by one PUT; a failed attempt leaves nothing behind.

Azure reports missing capacity in the operation, not in the answer to the call. What a failed launch has made by then (a
disk, an address) is billed, so the whole group is deleted before the error is raised; else the launch is uncertain.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from cloudgpu.core.model.instances import Instance
from cloudgpu.core.model.launch import Attempt
from cloudgpu.errors import (
    AnswerTimeout,
    AuthFailed,
    CloudgpuError,
    InstanceNotFound,
    InvalidRequest,
    LaunchUncertain,
    NoCapacity,
    ProviderUnavailable,
    QuotaExceeded,
    RateLimited,
)
from cloudgpu.parallel import Pool
from cloudgpu.providers.azure import groups, ids
from cloudgpu.providers.azure.account import identity
from cloudgpu.providers.azure.calls import call_or_none, complete, invoke, provisioning_state
from cloudgpu.providers.azure.client import Azure, Raw
from cloudgpu.providers.azure.compute import listing, request, translate
from cloudgpu.providers.azure.compute.machine import WRITE
from cloudgpu.providers.azure.compute.request import Call
from cloudgpu.providers.azure.error_codes import BUSY_CODES, ERROR_MAPPINGS, GUEST_FAILURE_CODES
from cloudgpu.providers.azure.errors import code_of
from cloudgpu.providers.azure.network import security_rules
from cloudgpu.providers.azure.network.shared import make_shared
from cloudgpu.providers.machine.user_data import too_large_error, user_data
from cloudgpu.providers.shared.calls import WaitReports, retry

MAX_CUSTOM_DATA = 65_535  # bytes of custom data, before they are encoded (REST reference, OSProfile)
POLL_PAUSE_S = 3.0
MAX_POLLS_OF_NEW = 10  # for a machine whose PUT was accepted: one poll that does not find it proves nothing
DELETE_TIMEOUT = timedelta(
    minutes=10
)  # even after a launch's deadline: what a failed launch leaves costs more than these minutes
ROLE_MAX_TRIES = 5  # Azure may not know a new identity everywhere yet
_REFUSAL_ERRORS = (AuthFailed, InvalidRequest, NoCapacity, QuotaExceeded)
# Error codes of the PUT where an earlier one has made the machine, or is making it.
_ALREADY_SENT = BUSY_CODES | {"PropertyChangeNotAllowed"}


def launch(azure: Azure, attempt: Attempt, *, deadline: datetime) -> Instance:
    """Launch the machine of an attempt, or return the one that its token has made already.

    Raises NoCapacity, QuotaExceeded, AuthFailed, InvalidRequest when it was surely not made and nothing of it is left;
    LaunchUncertain or another ProviderUnavailable when that is not known.
    """
    return _Launch(azure, attempt, deadline).run()


class _Launch:
    """One attempt: its calls, and the deadline until which they are sent."""

    def __init__(self, azure: Azure, attempt: Attempt, deadline: datetime) -> None:
        self._azure, self._attempt, self._deadline = azure, attempt, deadline
        self._call = Call(**attempt.call)
        self._group = ids.group_of(attempt.token)
        waiting_text = f"Azure has not accepted the launch in {self._call.region}"
        self._wait_reports = WaitReports(azure.notify, azure.clock, waiting_text, deadline, after=0)
        boot = boot_data(attempt, self._call)  # raises for bad boot data before anything is created
        self._body = request.machine(attempt, self._call, azure.subscription, boot)

    def run(self) -> Instance:
        """Return the machine, made now or before."""
        self._check_subscription()
        raw = self._wait_until_made()
        if raw is None or translate.creation_failed(raw, translate.statuses_of(raw)):
            self._make()
            raw = self._poll_machine()
        if raw is None:
            raise self._uncertain_error("it was accepted, and is not there")
        self._finish(raw)
        return listing.instance(self._azure, raw)

    def _check_subscription(self) -> None:
        """Raise LaunchUncertain where the attempt was sent before in another subscription; else record this one."""
        try:
            self._azure.launch_subscriptions.check(self._group, lambda: self._azure.subscription)
        except AuthFailed as error:
            raise self._uncertain_error(error.message) from error
        if not self._azure.launch_subscriptions.file(self._group).exists():
            self._azure.launch_subscriptions.remember(self._group, self._azure.subscription)

    def _wait_until_made(self) -> Raw | None:
        """Return the machine once its creation has ended, which an earlier call for this attempt may have begun."""
        while (raw := self._read_machine()) is not None and _is_being_made(raw):
            self._wait(ProviderUnavailable("Azure is still making it."))
        return raw

    def _read_machine(self) -> Raw | None:
        return listing.read_with_view(self._azure, self._call.region, self._group)

    def _poll_machine(self) -> Raw | None:
        """Return a machine whose PUT Azure has accepted; polled while Azure does not find it. None for none."""
        for _ in range(MAX_POLLS_OF_NEW):
            raw = self._read_machine()
            if raw is not None or self._azure.clock() >= self._deadline:
                return raw
            self._azure.pause(POLL_PAUSE_S)
        return self._read_machine()

    def _make(self) -> None:
        try:
            self._make_group()
            self._make_network()
            self._make_machine()
        except _REFUSAL_ERRORS as refusal:
            if self._exists_already():
                return
            self._delete_group(refusal)
            self._azure.launch_subscriptions.forget(self._group)
            raise
        except InstanceNotFound as error:  # somebody has deleted the group meanwhile
            raise self._uncertain_error(error.message) from error

    def _exists_already(self) -> bool:
        """Say whether an earlier call has made the machine: an error of this one is no reason to delete it."""
        try:
            raw = self._read_machine()
        except CloudgpuError:  # without the read permission: the group is deleted, or the launch is uncertain
            return False
        return raw is not None and _has_power_state(raw)

    def _make_group(self) -> None:
        """Create the group; wait first while an earlier one of this name is being deleted."""
        operations, body = self._azure.resources.resource_groups, request.group(self._attempt, self._call)
        while True:
            try:
                self._invoke(groups.WRITE, lambda: operations.create_or_update(self._group, body))
            except ProviderUnavailable as error:
                if code_of(error) != "ResourceGroupBeingDeleted":
                    raise
                self._wait(error)
            else:
                return

    def _make_network(self) -> None:
        """Create the security group and the network at the same time, unless the user named others."""
        call, tags, network = self._call, self._attempt.tags, self._azure.network
        with Pool(2) as pool:
            pending_calls = []
            if call.security_group is None:
                body = security_rules.security_group(call.region, tags, call.callers, call.ssh_port)
                pending_calls.append(
                    pool.submit(self._put, network.network_security_groups, "networkSecurityGroups", body)
                )
            if call.subnet is None and request.network_group(self._attempt, call) != self._group:
                pending_calls.append(
                    pool.submit(make_shared, self._azure, self._attempt, call, deadline=self._deadline)
                )
            elif call.subnet is None:
                body = request.network(self._attempt, call, self._group)
                pending_calls.append(pool.submit(self._put, network.virtual_networks, "virtualNetworks", body))
            for pending_call in pending_calls:
                pending_call.result()

    def _put(self, operations: Any, kind: str, body: request.Body) -> None:
        complete(
            self._azure,
            f"Microsoft.Network/{kind}/write",
            lambda polling: operations.begin_create_or_update(self._group, self._group, body, polling=polling),
            deadline=self._deadline,
            region=self._call.region,
        )

    def _make_machine(self) -> None:
        """Send the PUT and wait for its end. A repeated one with the same body makes no second machine."""
        machines = self._azure.compute.virtual_machines
        try:
            complete(
                self._azure,
                WRITE,
                lambda polling: machines.begin_create_or_update(self._group, self._group, self._body, polling=polling),
                deadline=self._deadline,
                region=self._call.region,
                value=self._attempt.offer.configuration.instance_type,
                field="launch",
            )
        except RateLimited:
            raise
        except CloudgpuError as error:
            self._resolve_error(error)

    def _resolve_error(self, error: CloudgpuError) -> None:
        """Return if the machine exists in spite of the error; else raise the refusal, or LaunchUncertain."""
        code = code_of(error)
        if isinstance(error, _REFUSAL_ERRORS) and code not in _ALREADY_SENT:
            raise error
        while (raw := self._poll_or_uncertain(error)) is not None:
            if _has_power_state(raw):
                return
            statuses = translate.statuses_of(raw)
            if translate.creation_failed(raw, statuses):
                self._raise_creation_error(statuses)
            if provisioning_state(raw) in ("deleting", "failed") or code in GUEST_FAILURE_CODES:
                if isinstance(error, _REFUSAL_ERRORS):
                    raise error
                break
            self._wait(error)
        raise self._uncertain_error(error.message) from error

    def _raise_creation_error(self, statuses: Sequence[Raw]) -> None:
        """Raise the error in a machine's instance view, where it has one of those that surely refuse a launch."""
        code = translate.failure_code(statuses)
        meaning = ERROR_MAPPINGS.get(code)
        if meaning is not None and meaning.kind in _REFUSAL_ERRORS:
            configuration = self._attempt.offer.configuration
            message = f"Azure {self._call.region} could not make {configuration.instance_type} ({code})."
            raise meaning.kind(
                message, field=meaning.field, value=configuration.instance_type, next=meaning.remedy or None
            )

    def _poll_or_uncertain(self, error: CloudgpuError) -> Raw | None:
        try:
            return self._poll_machine()
        except CloudgpuError:
            raise self._uncertain_error(error.message) from error

    def _delete_group(self, refusal: CloudgpuError) -> None:
        """Delete all that the attempt has made, and wait until it is gone; raise LaunchUncertain where it is not."""
        operations = self._azure.resources.resource_groups
        delete_deadline = max(self._deadline, self._azure.clock() + DELETE_TIMEOUT)
        try:
            complete(
                self._azure,
                groups.DELETE,
                lambda polling: operations.begin_delete(self._group, polling=polling),
                deadline=delete_deadline,
                region=self._call.region,
            )
        except CloudgpuError as error:
            if self._may_have_group():
                raise self._uncertain_error(
                    f"{refusal.message} What it had made could not be removed yet: {error.message}"
                ) from error
            return
        while self._may_have_group():  # an answer without an operation does not say when it ends
            if self._azure.clock() >= delete_deadline:
                raise self._uncertain_error(f"{refusal.message} What it had made is not gone yet.") from refusal
            self._azure.pause(POLL_PAUSE_S)

    def _may_have_group(self) -> bool:
        """Say whether the group exists, or may exist: an error proves nothing."""
        get = self._azure.resources.resource_groups.get
        try:
            return (
                call_or_none(self._azure, groups.READ, lambda: get(self._group), region=self._call.region) is not None
            )
        except CloudgpuError:
            return True

    def _finish(self, raw: Raw) -> None:
        """Assign the machine's role and install its driver. Errors here only notify: the machine is billed."""
        try:
            self._assign_role(raw)
        except CloudgpuError as error:
            self._notify(
                "has no role, so it cannot deallocate itself: a shutdown from inside (idle time, lease) does not end "
                "what it costs until cloudgpu reap or stop does",
                error,
            )
        try:
            self._install_extension()
        except CloudgpuError as error:
            self._notify("has no GPU driver: the extension that installs it was not taken", error)

    def _notify(self, consequence: str, error: CloudgpuError) -> None:
        self._azure.notify(f"{self._attempt.request.name} {consequence}. {error.message}")

    def _assign_role(self, raw: Raw) -> None:
        principal_id = str((raw.get("identity") or {}).get("principalId") or "")
        if not principal_id or not self._call.role:
            return
        machine_id = ids.machine_id(self._azure.subscription, self._group)
        retry(
            lambda: identity.assign(self._azure, machine_id, principal_id),
            ROLE_MAX_TRIES,
            after=lambda error: not isinstance(error, AuthFailed | AnswerTimeout),
            pause=lambda _tries: self._azure.pause(POLL_PAUSE_S),
        )

    def _install_extension(self) -> None:
        """Request the extension that the size needs; not waited for."""
        extension = self._call.extension
        if extension is None:
            return
        properties = {key: extension[key] for key in ("publisher", "type", "typeHandlerVersion")}
        body = {"location": self._call.region, "properties": {**properties, "autoUpgradeMinorVersion": True}}
        self._invoke(
            "Microsoft.Compute/virtualMachines/extensions/write",
            lambda: self._azure.compute.virtual_machine_extensions.begin_create_or_update(
                self._group, self._group, str(extension["name"]), body, polling=False
            ),
        )

    def _invoke(self, action: str, call: Any) -> Any:
        return invoke(self._azure, action, call, region=self._call.region, value=self._group)

    def _wait(self, error: CloudgpuError) -> None:
        """Wait a little, unless the deadline has passed."""
        if self._azure.clock() >= self._deadline:
            raise self._uncertain_error(error.message) from error
        self._wait_reports.report_progress(error.message)
        self._azure.pause(POLL_PAUSE_S)

    def _uncertain_error(self, why: str) -> LaunchUncertain:
        return LaunchUncertain(
            f"It is not known whether Azure has made the machine in {self._call.region}: {why}",
            field="launch",
            value=ids.join_id(self._call.region, self._group),
            next="Run the same up again: it sends the same call for the same name, which never makes a second one.",
        )


def _is_being_made(raw: Raw) -> bool:
    """Say whether Azure is creating a machine that has no hardware yet: there may still be no capacity."""
    power = translate.power_of(translate.statuses_of(raw))
    return provisioning_state(raw) == "creating" and power in ("", "creating")


def _has_power_state(raw: Raw) -> bool:
    """Say whether a machine has been created: it has a power state, whichever it is."""
    return translate.power_of(translate.statuses_of(raw)) in ("starting", "running", "stopped", "deallocated")


def boot_data(attempt: Attempt, call: Call) -> bytes:
    """Return the machine's custom data, the same bytes for the same attempt; compressed only where they are too large.

    Raises InvalidRequest when they are too large even so.
    """
    uncompressed = user_data(attempt, request.boot_options(attempt, call)).encode("ascii")
    compressed = (
        uncompressed if len(uncompressed) <= MAX_CUSTOM_DATA else gzip.compress(uncompressed, compresslevel=9, mtime=0)
    )
    if len(compressed) > MAX_CUSTOM_DATA:
        raise too_large_error(attempt, len(compressed), MAX_CUSTOM_DATA, "Azure")
    return compressed
