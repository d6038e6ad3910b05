"""The fake cloud that launches the nodes of a cluster in one call: all of them, or none if the zone lacks capacity.

The nodes share a placement group. It stays until `clear_shared` is called while no machine uses it.
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
from cloudgpu.testing.fake.cloud import counted_call, no_capacity
from cloudgpu.testing.fake.disks import add_resource
from cloudgpu.testing.fake.minimal import MinimalFakeProvider, fingerprint
from cloudgpu.testing.fake.store import Cloud, FakeMachine, FakeResource


class TogetherFakeProvider(MinimalFakeProvider):
    """The fake cloud with what every provider can do, and one call for the nodes of a cluster."""

    @counted_call
    def launch_together(self, cloud: Cloud, attempts: Sequence[Attempt], *, deadline: datetime) -> Sequence[Instance]:  # noqa: ARG002
        """Make all machines, or return those that were made with the token of the first attempt."""
        launched = self._machines_of_token(cloud, attempts[0].token, _fingerprint(attempts))
        if not launched:
            self._check_cluster_launch(cloud, attempts)
            launched = [self._make_node(cloud, attempts, node) for node in range(len(attempts))]
        return [self._as_instance(machine) for machine in launched]

    @counted_call
    def clear_shared(self, cloud: Cloud, cluster: str, region: str) -> bool:
        """Delete the cluster's placement group unless a machine uses it; return True if there was none."""
        groups = [group for group in _groups(cloud) if group.tags.get(TAG_ID) == node_name(cluster, 0)]
        for group in groups:
            if group.region == region and not self._machines_using(cloud, group):
                del cloud.resources[group.id]
        return not groups

    def share(self, attempt: Attempt) -> None:
        """Create the cluster's placement group, but no machine, like a launch that failed in between."""
        configuration, node, now = attempt.offer.configuration, node_of_tags(attempt.tags), self.clock()
        if node is not None:
            with self._store.open() as cloud:
                _need_group(cloud, attempt, node_name(node.id, 0), configuration.region, now)

    def _update_attachments(self, cloud: Cloud) -> None:
        """Update which machine uses each placement group."""
        for group in _groups(cloud):
            users = self._machines_using(cloud, group)
            cloud.resources[group.id] = replace(group, attached_to=users[0] if users else None)

    def _machines_using(self, cloud: Cloud, group: FakeResource) -> list[str]:
        cluster = group.tags[TAG_ID].removesuffix("-0")
        nodes = [machine for machine in cloud.machines.values() if TAG_CLUSTER in machine.tags]
        cluster_nodes = [node for node in nodes if node.tags[TAG_ID].rpartition("-")[0] == cluster]
        return [
            node.id
            for node in cluster_nodes
            if node.region == group.region and self._state(node) is not State.TERMINATED
        ]

    def _make_machine(self, cloud: Cloud, attempt: Attempt) -> FakeMachine:
        machine, node = super()._make_machine(cloud, attempt), node_of_tags(attempt.tags)
        if node is not None and node.nodes > 1:
            _need_group(cloud, attempt, node_name(node.id, 0), machine.region, self.clock())
        return machine

    def _check_cluster_launch(self, cloud: Cloud, attempts: Sequence[Attempt]) -> None:
        """Raise if one of these cannot be made, or if the zone lacks capacity for all."""
        for attempt in attempts:
            self._check_launch(cloud, attempt)
        configuration = attempts[0].offer.configuration
        if self._remaining_capacity(cloud, configuration.zone) < len(attempts):
            raise no_capacity(f"{len(attempts)} x {configuration.instance_type}", configuration.zone)

    def _make_node(self, cloud: Cloud, attempts: Sequence[Attempt], node: int) -> FakeMachine:
        """Make one machine; all nodes have the token of the first attempt."""
        machine = self._make_machine(cloud, replace(attempts[node], token=attempts[0].token))
        cloud.machines[machine.id] = replace(cloud.machines[machine.id], call=_fingerprint(attempts))
        return cloud.machines[machine.id]


def _fingerprint(attempts: Sequence[Attempt]) -> str:
    return digest("together", *(fingerprint(attempt) for attempt in attempts))


def _groups(cloud: Cloud) -> list[FakeResource]:
    return [
        resource
        for resource in cloud.resources.values()
        if resource.kind is Kind.PLACEMENT_GROUP and TAG_CLUSTER in resource.tags
    ]


def _need_group(cloud: Cloud, attempt: Attempt, group_id: str, region: str, now: datetime) -> None:
    """Create the placement group of a cluster, tagged with the id of its node 0, unless it exists."""
    if not any(group.tags[TAG_ID] == group_id and group.region == region for group in _groups(cloud)):
        tags = {TAG_ID: group_id} | {key: attempt.tags[key] for key in (TAG_LEDGER, TAG_OWNER, TAG_CLUSTER)}
        add_resource(cloud, FakeResource("", Kind.PLACEMENT_GROUP, region, "", "", 0, tags, now, now))
