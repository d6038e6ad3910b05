"""The fake cloud that launches the nodes of a cluster in one call: all of them, or none where a zone has too few.

However they are launched, they share a placement group, which stays until it is asked to go and no machine uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from cloudgpu.core.model.cluster import node_name, node_of_tags
from cloudgpu.core.model.instances import TAG_CLUSTER, TAG_ID, TAG_LEDGER, TAG_OWNER, Instance, State
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.values.naming import digest
from cloudgpu.errors import InvalidRequest
from cloudgpu.testing.fake.cloud import counted, no_capacity
from cloudgpu.testing.fake.disks import add
from cloudgpu.testing.fake.machines import FakeMachine
from cloudgpu.testing.fake.minimal import MinimalFakeProvider, fingerprint
from cloudgpu.testing.fake.resources import FakeResource
from cloudgpu.testing.fake.store import Cloud


class TogetherFakeProvider(MinimalFakeProvider):
    """The fake cloud with what every provider can do, and one call for the nodes of a cluster."""

    @counted
    def launch_together(self, cloud: Cloud, attempts: Sequence[Attempt], *, deadline: datetime) -> Sequence[Instance]:  # noqa: ARG002
        """Make all machines, or return those that the first one's token has made."""
        made = self._all_made_before(cloud, attempts)
        if not made:
            self._check_together(cloud, attempts)
            made = [self._make_node(cloud, attempts, node) for node in range(len(attempts))]
        return [self._shown(machine) for machine in made]

    @counted
    def clear_shared(self, cloud: Cloud, cluster: str, region: str) -> bool:
        """Take the cluster's placement group away, unless a machine uses it; say whether there was none."""
        found = [one for one in _groups(cloud) if one.tags.get(TAG_ID) == node_name(cluster, 0)]
        for one in found:
            if one.region == region and not self._users(cloud, one):
                del cloud.resources[one.id]
        return not found

    def share(self, attempt: Attempt) -> None:
        """Let a launch have made what the nodes of this attempt's cluster share, and no machine: it broke off there."""
        item, node, now = attempt.offer.available, node_of_tags(attempt.tags), self.clock()
        if node is not None:
            with self._store.open() as cloud:
                _need_group(cloud, attempt, node_name(node.id, 0), item.region, now)

    def _let_go(self, cloud: Cloud) -> None:
        """Say of each placement group which machine uses it."""
        for one in _groups(cloud):
            users = self._users(cloud, one)
            cloud.resources[one.id] = replace(one, attached_to=users[0] if users else None)

    def _users(self, cloud: Cloud, group: FakeResource) -> list[str]:
        cluster = group.tags[TAG_ID].removesuffix("-0")
        nodes = [one for one in cloud.machines.values() if TAG_CLUSTER in one.tags]
        mine = [one for one in nodes if one.tags[TAG_ID].rpartition("-")[0] == cluster]
        return [one.id for one in mine if one.region == group.region and self._state(one) is not State.TERMINATED]

    def _make(self, cloud: Cloud, attempt: Attempt) -> FakeMachine:
        machine, node = super()._make(cloud, attempt), node_of_tags(attempt.tags)
        if node is not None and node.nodes > 1:
            _need_group(cloud, attempt, node_name(node.id, 0), machine.region, self.clock())
        return machine

    def _check_together(self, cloud: Cloud, attempts: Sequence[Attempt]) -> None:
        """Raise where one of these cannot be made, or not so many."""
        for attempt in attempts:
            self._check(cloud, attempt)
        item = attempts[0].offer.available
        if self._left(cloud, item.zone) < len(attempts):
            raise no_capacity(f"{len(attempts)} x {item.instance_type}", item.zone)

    def _all_made_before(self, cloud: Cloud, attempts: Sequence[Attempt]) -> list[FakeMachine]:
        oldest = self.clock() - self.token_rule.lifetime
        token = attempts[0].token
        made = [one for one in cloud.machines.values() if one.token == token and one.made_at > oldest]
        if made and made[0].call != _fingerprint(attempts):
            message = f"the token {token} was used for another call"
            raise InvalidRequest(message, field="token", value=token, next="send the saved call unchanged")
        return made

    def _make_node(self, cloud: Cloud, attempts: Sequence[Attempt], node: int) -> FakeMachine:
        """Make one machine; the token of all is that of the call."""
        machine = self._make(cloud, replace(attempts[node], token=attempts[0].token))
        cloud.machines[machine.id] = replace(cloud.machines[machine.id], call=_fingerprint(attempts))
        return cloud.machines[machine.id]


def _fingerprint(attempts: Sequence[Attempt]) -> str:
    return digest("together", *(fingerprint(attempt) for attempt in attempts))


def _groups(cloud: Cloud) -> list[FakeResource]:
    return [one for one in cloud.resources.values() if one.kind is Kind.PLACEMENT_GROUP and TAG_CLUSTER in one.tags]


def _need_group(cloud: Cloud, attempt: Attempt, first: str, region: str, now: datetime) -> None:
    """Make the placement group of a cluster, which bears the id of its node 0, where it is not."""
    if not any(one.tags[TAG_ID] == first and one.region == region for one in _groups(cloud)):
        tags = {TAG_ID: first} | {key: attempt.tags[key] for key in (TAG_LEDGER, TAG_OWNER, TAG_CLUSTER)}
        add(cloud, FakeResource("", Kind.PLACEMENT_GROUP, region, "", "", 0, tags, now, now))
