"""The fake cloud with what every provider can do: it remembers, and fails when it is told to."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.instances import TAG_ID, Address, Instance, Listing, State
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import Availability, Available, Requirements
from cloudgpu.core.policies.guards import Agent, Safeguards
from cloudgpu.core.values.naming import digest
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.base import ProviderSettings, TokenRule
from cloudgpu.testing.fake.cloud import FaultyCloud, check_tags, counted, no_capacity, refused
from cloudgpu.testing.fake.machines import ALLOCATED, FakeMachine, phase
from cloudgpu.testing.fake.market import offered
from cloudgpu.testing.fake.store import Cloud

_TOKEN_LENGTH = 64


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
        """The agent, as the settings say what it can do."""
        return Safeguards(Agent(self.options.agent))

    def identity(self, region: str | None = None) -> AccountIdentity:  # noqa: ARG002  (one account, all its regions)
        """Return where this cloud is kept: accounts with one `state_file` are one account."""
        if self._identity is None:
            with self._call("identity"):
                self._identity = AccountIdentity("fake account", self.place, f"fake account {Path(self.place).stem}")
        return self._identity

    @counted
    def available(self, cloud: Cloud, requirements: Requirements) -> Availability:
        """Return what the fake cloud sells of it, where there is capacity."""
        sold = offered(self.account, requirements, self.options.trust)
        there = (item for item in sold if item.zone not in cloud.exhausted)
        return Availability(tuple(replace(item, traffic=self.options.traffic) for item in there))

    @counted
    def launch(self, cloud: Cloud, attempt: Attempt, *, deadline: datetime) -> Instance:  # noqa: ARG002  (it answers at once)
        """Make the machine, or return the one that this token has made."""
        machine = self._made_before(cloud, attempt)
        if machine is None:
            self._check(cloud, attempt)
            machine = self._make(cloud, attempt)
        return self._shown(machine)

    @counted
    def get(self, cloud: Cloud, id: str) -> Instance:  # noqa: A002
        """Return the machine now."""
        return self._shown(self._found(cloud, id))

    @counted
    def list(self, cloud: Cloud) -> Listing:
        """Return every machine of the scopes that answer."""
        hidden = self._hidden(cloud)
        seen = (machine for machine in cloud.machines.values() if self._listed(machine, hidden))
        return Listing(tuple(self._shown(machine) for machine in seen), self._silent(cloud))

    @counted
    def terminate(self, cloud: Cloud, id: str) -> None:  # noqa: A002
        """Ask to end the machine."""
        machine = cloud.machines.get(id)
        if machine and machine.requested is not State.TERMINATED and self._state(machine) is not State.TERMINATED:
            self._set(cloud, machine, requested=State.TERMINATED)

    def _listed(self, machine: FakeMachine, hidden: set[str]) -> bool:
        lag = timedelta(seconds=self.options.lag_s)
        fresh = self.clock() < machine.made_at + lag
        return not fresh and machine.region not in hidden and not self._forgotten(machine)

    def _made_before(self, cloud: Cloud, attempt: Attempt) -> FakeMachine | None:
        oldest = self.clock() - self.token_rule.lifetime
        made = [item for item in cloud.machines.values() if item.token == attempt.token and item.made_at > oldest]
        if made and made[0].call != fingerprint(attempt):
            message = f"the token {attempt.token} was used for another call"
            raise InvalidRequest(message, field="token", value=attempt.token, next="send the saved call unchanged")
        return made[0] if made else None

    def _check(self, cloud: Cloud, attempt: Attempt) -> None:
        item = attempt.offer.available
        if not 0 < len(attempt.token) <= _TOKEN_LENGTH:
            raise refused("token", attempt.token, "a token has 1 to 64 characters")
        if TAG_ID not in attempt.tags:
            raise refused("tags", "", f"the tag {TAG_ID} is missing")
        check_tags(attempt.tags)
        if not any(_same_place(item, sold) for sold in offered(self.account, Requirements(market=item.market))):
            raise refused("offer", item.instance_type, f"{item.instance_type} is not sold in {item.zone}")
        if item.zone in cloud.exhausted or self._left(cloud, item.zone) < 1:
            raise no_capacity(item.instance_type, item.zone)

    def _make(self, cloud: Cloud, attempt: Attempt) -> FakeMachine:
        item, now = attempt.offer.available, self.clock()
        machine = FakeMachine(
            id=f"fake-{digest(self.account, attempt.token, str(len(cloud.machines)))[:16]}",
            token=attempt.token,
            call=fingerprint(attempt),
            account=self.account,
            made_at=now,
            tags=dict(attempt.tags),
            region=item.region,
            zone=item.zone,
            instance_type=item.instance_type,
            market=item.market,
            accelerators=item.accelerators,
            user=attempt.boot.user,
            requested=State.RUNNING,
            asked_at=now,
        )
        cloud.machines[machine.id] = machine
        return machine

    def _shown(self, machine: FakeMachine) -> Instance:
        now = phase(machine, self.clock(), self.options.pace)
        running = now.state is State.RUNNING
        return Instance(
            provider=self.kind,
            account=self.account,
            id=machine.id,
            state=now.state,
            billed=running or (now.state is State.STOPPED and now.reason == ALLOCATED),
            tags=dict(machine.tags),
            region=machine.region,
            zone=machine.zone,
            instance_type=machine.instance_type,
            market=machine.market,
            launched_at=machine.made_at,
            since=now.since,
            address=self._address(machine) if running else None,
            accelerators=machine.accelerators,
            last_active=machine.last_active,
            reason=now.reason,
        )

    def _address(self, machine: FakeMachine) -> Address | None:
        if self.address or not self.options.host:
            return self.address
        return Address(self.options.host, self.options.port, machine.user)


def _same_place(available: Available, sold: Available) -> bool:
    return (available.zone, available.region, available.instance_type) == (sold.zone, sold.region, sold.instance_type)


def fingerprint(attempt: Attempt) -> str:
    """Return what makes two calls the same one: a replay has to be the saved call, unchanged."""
    boot, item = attempt.boot, attempt.offer.available
    keys = (boot.host_public_key, boot.agent_source, *boot.client_public_keys, *boot.jupyter)
    parts = (text for part in boot.parts for text in (part.kind, part.text))
    tags = (text for pair in sorted(attempt.tags.items()) for text in pair)
    looked_up = json.dumps(dict(attempt.call), sort_keys=True)
    return digest(item.zone, item.instance_type, str(item.market), *keys, *parts, *tags, looked_up)
