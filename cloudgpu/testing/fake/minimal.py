"""The fake cloud with what every provider can do; tests can make its calls fail."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import TAG_ID, Address, Instance, Listing, State
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Availability, Requirements
from cloudgpu.core.policies.guards import Safeguards
from cloudgpu.core.values.naming import digest
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.base import ProviderSettings, TokenRule
from cloudgpu.testing.fake.cloud import FaultyCloud, check_tags, counted_call, invalid_request, no_capacity
from cloudgpu.testing.fake.market import is_sold, matching_offers
from cloudgpu.testing.fake.store import SHUT_DOWN_INSIDE, Cloud, FakeMachine, phase

_MAX_TOKEN_LENGTH = 64


class MinimalFakeProvider(FaultyCloud):
    """The fake cloud with what every provider can do, and no further ability."""

    kind = "fake"
    supported_parts = frozenset({"on_start", "packages", "cloud_init", "container"})

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(settings)
        self.token_rule = TokenRule(
            lifetime=timedelta(seconds=self.options.token_s),
            listing_proves_after=timedelta(seconds=self.options.lag_s),
            source="the settings token_s and lag_s of the fake cloud",
        )
        self._identity: AccountIdentity | None = None

    @property
    def guards(self) -> Safeguards:
        """The agent, with the abilities that the option `agent` names."""
        return Safeguards(self.options.agent)

    def identity(self, region: str | None = None) -> AccountIdentity:  # noqa: ARG002  (one account, all its regions)
        """Return the account; those that share a `state_file` are the same account."""
        if self._identity is None:
            with self._call("identity"):
                self._identity = AccountIdentity(
                    "fake account", self.state_location, f"fake account {Path(self.state_location).stem}"
                )
        return self._identity

    @counted_call
    def available(self, cloud: Cloud, requirements: Requirements) -> Availability:
        """Return the matching offers in zones with capacity."""
        sold = matching_offers(self.account, requirements, self.options.trust)
        with_capacity = (configuration for configuration in sold if configuration.zone not in cloud.exhausted)
        return Availability(
            tuple(replace(configuration, traffic=self.options.traffic) for configuration in with_capacity)
        )

    @counted_call
    def launch(self, cloud: Cloud, attempt: Attempt, *, deadline: datetime) -> Instance:  # noqa: ARG002  (it answers at once)
        """Make the machine, or return the one that was made with this token."""
        launched = self._machines_of_token(cloud, attempt.token, fingerprint(attempt))
        if not launched:
            self._check_launch(cloud, attempt)
            launched = [self._make_machine(cloud, attempt)]
        return self._as_instance(launched[0])

    @counted_call
    def get(self, cloud: Cloud, id: str) -> Instance:  # noqa: A002
        """Return the machine now."""
        return self._as_instance(self._find_machine(cloud, id))

    @counted_call
    def list(self, cloud: Cloud) -> Listing:
        """Return every machine of the scopes that answer."""
        hidden = self._hidden_regions(cloud)
        listed = (machine for machine in cloud.machines.values() if self._is_listed(machine, hidden))
        return Listing(tuple(self._as_instance(machine) for machine in listed), self._hidden_scopes(cloud))

    @counted_call
    def terminate(self, cloud: Cloud, id: str) -> None:  # noqa: A002
        """Ask to end the machine."""
        machine = cloud.machines.get(id)
        if machine and machine.requested is not State.TERMINATED and self._state(machine) is not State.TERMINATED:
            self._update_machine(cloud, machine, requested=State.TERMINATED)

    def _is_listed(self, machine: FakeMachine, hidden: set[str]) -> bool:
        lag = timedelta(seconds=self.options.lag_s)
        is_too_new = self.clock() < machine.made_at + lag
        return not is_too_new and machine.region not in hidden and not self._is_forgotten(machine)

    def _machines_of_token(self, cloud: Cloud, token: str, call: str) -> Sequence[FakeMachine]:
        """Return the machines that were made with a token; raise InvalidRequest if that was by another call."""
        oldest_at = self.clock() - self.token_rule.lifetime
        machines = [
            machine for machine in cloud.machines.values() if machine.token == token and machine.made_at > oldest_at
        ]
        if machines and machines[0].call != call:
            message = f"the token {token} was used for another call"
            raise InvalidRequest(message, field="token", value=token, next="send the saved call unchanged")
        return machines

    def _check_launch(self, cloud: Cloud, attempt: Attempt) -> None:
        configuration = attempt.offer.configuration
        if not 0 < len(attempt.token) <= _MAX_TOKEN_LENGTH:
            raise invalid_request("token", attempt.token, "a token has 1 to 64 characters")
        if TAG_ID not in attempt.tags:
            raise invalid_request("tags", "", f"the tag {TAG_ID} is missing")
        check_tags(attempt.tags)
        if not is_sold(configuration):
            raise invalid_request(
                "offer",
                configuration.instance_type,
                f"{configuration.instance_type} is not sold in {configuration.zone}",
            )
        if configuration.zone in cloud.exhausted or self._remaining_capacity(cloud, configuration.zone) < 1:
            raise no_capacity(configuration.instance_type, configuration.zone)

    def _make_machine(self, cloud: Cloud, attempt: Attempt) -> FakeMachine:
        configuration, now = attempt.offer.configuration, self.clock()
        machine = FakeMachine(
            id=f"fake-{digest(self.account, attempt.token, str(len(cloud.machines)))[:16]}",
            token=attempt.token,
            call=fingerprint(attempt),
            account=self.account,
            made_at=now,
            tags=dict(attempt.tags),
            region=configuration.region,
            zone=configuration.zone,
            instance_type=configuration.instance_type,
            market=configuration.market,
            accelerators=configuration.accelerators,
            requested=State.RUNNING,
            asked_at=now,
        )
        cloud.machines[machine.id] = machine
        return machine

    def _as_instance(self, machine: FakeMachine) -> Instance:
        current = phase(machine, self.clock(), self.options.pace)
        running = current.state is State.RUNNING
        return Instance(
            provider=self.kind,
            account=self.account,
            id=machine.id,
            state=current.state,
            billed=running or (current.state is State.STOPPED and current.reason == SHUT_DOWN_INSIDE),
            tags=dict(machine.tags),
            region=machine.region,
            zone=machine.zone,
            instance_type=machine.instance_type,
            market=machine.market,
            launched_at=machine.made_at,
            since=current.since,
            address=self._address(machine) if running else None,
            accelerators=machine.accelerators,
            last_active=machine.last_active,
            reason=current.reason,
        )

    def _address(self, _machine: FakeMachine) -> Address | None:
        if self.address or not self.options.host:
            return self.address
        return Address(self.options.host, self.options.port, "")  # as whoever runs this


def fingerprint(attempt: Attempt) -> str:
    """Return a digest of the launch call: a call with a token that was used before must have the same one."""
    boot, configuration = attempt.boot, attempt.offer.configuration
    keys = (boot.host_public_key, boot.agent_source, *boot.client_public_keys, *boot.jupyter)
    parts = (text for part in boot.parts for text in (part.kind, part.text))
    tags = (text for pair in sorted(attempt.tags.items()) for text in pair)
    call_json = json.dumps(dict(attempt.call), sort_keys=True)
    return digest(
        configuration.zone, configuration.instance_type, str(configuration.market), *keys, *parts, *tags, call_json
    )
