"""What a provider promises of several machines at once: nodes launched together, and many stopped in one call."""

# ruff: noqa: S101  (a suite is asserts, and one class with many tests)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest

from cloudgpu.core.model.cluster import node_of_tags
from cloudgpu.core.model.instances import TAG_ID, Instance, State
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.offers import MachineConfiguration
from cloudgpu.errors import CloudgpuError, InstanceNotFound, InvalidRequest, LaunchUncertain, NoCapacity
from cloudgpu.providers.abilities import HasOrphans, HasResources, Pausable, Resolves
from cloudgpu.providers.base import Factory, Provider, ProviderSettings
from cloudgpu.providers.cluster_abilities import BulkStop, ClearsShared, LaunchesTogether
from cloudgpu.testing.contract.base import LAUNCH_TIMEOUT_S, ContractBase, MakeAttempt
from cloudgpu.testing.contract.running import PAUSED_STATES
from cloudgpu.testing.helpers import as_nodes

NODE_COUNT = 3


class ClusterBase(ContractBase):
    """What the suites about the nodes of a cluster have in common."""

    def node_attempts(self, provider: Provider, attempt: Attempt, count: int = NODE_COUNT) -> list[Attempt]:
        """Return the attempts of a cluster, with what its provider looks up for one."""
        nodes = as_nodes(attempt, count)
        if not isinstance(provider, Resolves):
            return nodes
        call = provider.resolve(nodes[0].request, attempt.offer.configuration).call
        return [replace(node, call=call) for node in nodes]

    def clear_shared(self, provider: Provider, attempts: Sequence[Attempt]) -> bool:
        """Request the removal of what these nodes share; return True if nothing of it existed."""
        node = node_of_tags(attempts[0].tags)
        assert node is not None
        return cast("ClearsShared", provider).clear_shared(node.id, attempts[0].offer.configuration.region)

    def shared_ids(self, provider: Provider, attempts: Sequence[Attempt]) -> list[str]:
        """Return the ids of the orphans tagged with the first node's id; none if the provider does not list orphans."""
        if not isinstance(provider, HasOrphans):
            return []
        listing = provider.orphans(attempts[0].offer.configuration.region)
        assert listing.unanswered == ()
        return [orphan.id for orphan in listing.items if orphan.tags.get(TAG_ID) == attempts[0].machine]


class LaunchesTogetherContract(ClusterBase):
    """One call makes all nodes of a cluster or none; each of them is a machine of its own afterwards."""

    def leave_room(self, provider: Provider, configuration: MachineConfiguration, count: int) -> None:
        """Limit the zone of this offer to `count` more machines; every test class has to override this."""
        raise NotImplementedError

    def launch_together(self, provider: Provider, attempts: Sequence[Attempt]) -> Sequence[Instance]:
        """Launch with a deadline that is not reached."""
        deadline = attempts[0].made_at + timedelta(seconds=LAUNCH_TIMEOUT_S)
        return cast("LaunchesTogether", provider).launch_together(attempts, deadline=deadline)

    def launch_together_and_wait(self, provider: Provider, attempts: Sequence[Attempt]) -> list[Instance]:
        """Launch, and return the machines once they run."""
        return [
            self.wait_for_state(provider, instance.id, State.RUNNING)
            for instance in self.launch_together(provider, attempts)
        ]

    def test_all_nodes_come_in_order_and_each_bears_its_own_tags(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """In the answer, in a look at each and in the listing, whatever tags one call can give."""
        attempts = self.node_attempts(provider, make_attempt())
        launched = self.launch_together(provider, attempts)
        assert len({instance.id for instance in launched}) == NODE_COUNT
        ids = [instance.id for instance in launched]
        self.wait_until(lambda: {instance.id for instance in self.list_living(provider)} == set(ids))
        listed = {instance.id: instance for instance in self.list_living(provider)}
        for attempt, machine in zip(attempts, launched, strict=True):
            running = self.wait_for_state(provider, machine.id, State.RUNNING)
            for instance in (machine, running, listed[machine.id]):
                assert dict(instance.tags) == dict(attempt.tags)
                assert (instance.region, instance.zone) == (
                    attempt.offer.configuration.region,
                    attempt.offer.configuration.zone,
                )

    def test_the_same_call_again_gives_the_same_machines(
        self, provider: Provider, make_attempt: MakeAttempt, factory: Factory, settings: ProviderSettings
    ) -> None:
        """A lost reply never makes twice as many, also from another process (another provider value)."""
        attempts = self.node_attempts(provider, make_attempt())
        first = [instance.id for instance in self.launch_together(provider, attempts)]
        assert [instance.id for instance in self.launch_together(provider, attempts)] == first
        self.wait_until(lambda: {instance.id for instance in self.list_living(provider)} == set(first))
        assert self.launch_together_elsewhere(provider, factory(settings), attempts) == first
        assert [instance.id for instance in self.launch_together_and_wait(provider, attempts)] == first
        assert len(self.list_living(provider)) == NODE_COUNT

    def launch_together_elsewhere(self, provider: Provider, other: Provider, attempts: Sequence[Attempt]) -> list[str]:  # noqa: ARG002
        """Return the ids that a replay through another provider value of the same account gives."""
        return [instance.id for instance in self.launch_together(other, attempts)]

    def test_none_is_made_where_there_is_room_for_all_but_one(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """Without capacity for all it raises NoCapacity and leaves nothing; with capacity for all it succeeds."""
        attempts = self.node_attempts(provider, make_attempt())
        configuration = attempts[0].offer.configuration
        self.leave_room(provider, configuration, NODE_COUNT - 1)
        with pytest.raises(NoCapacity):
            self.launch_together(provider, attempts)
        assert self.list_living(provider) == []
        if isinstance(provider, ClearsShared):
            self.wait_until(lambda: self.clear_shared(provider, attempts))
        assert self.shared_ids(provider, attempts) == []
        self.leave_room(provider, configuration, NODE_COUNT)
        second_attempts = self.node_attempts(provider, make_attempt(number=2))
        assert len(self.launch_together_and_wait(provider, second_attempts)) == NODE_COUNT

    def test_another_count_under_the_same_token_is_refused(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """A token stands for one call: fewer or more machines are another, and no machine more is made."""
        attempts = self.node_attempts(provider, make_attempt())
        machine = {instance.id for instance in self.launch_together(provider, attempts)}
        for other in (attempts[:-1], self.node_attempts(provider, make_attempt(), NODE_COUNT + 1)):
            with pytest.raises((InvalidRequest, LaunchUncertain)):
                self.launch_together(provider, other)
        self.wait_until(lambda: {instance.id for instance in self.list_living(provider)} == machine)

    def test_each_disk_is_its_own_nodes(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """A node's disk is listed with the id of that node."""
        attempts = self.node_attempts(provider, make_attempt())
        machines = {
            instance.id: attempt.machine
            for instance, attempt in zip(self.launch_together(provider, attempts), attempts, strict=True)
        }
        if isinstance(provider, HasResources):
            resources = provider.resources().items
            assert {resource.attached_to: resource.tags.get(TAG_ID) for resource in resources} == machines

    def test_a_fault_in_one_node_makes_none(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """What cannot be launched is refused for all, before anything is made."""
        attempts = self.node_attempts(provider, make_attempt())
        configuration = replace(attempts[0].offer.configuration, instance_type="impossible.9000")
        offer = replace(attempts[0].offer, configuration=configuration)
        with pytest.raises(CloudgpuError):
            self.launch_together(provider, [replace(attempt, offer=offer) for attempt in attempts])
        assert self.list_living(provider) == []


class ClearsSharedContract(ClusterBase):
    """What the nodes of a cluster share exists as long as one of them does, and can be removed after the last."""

    def launch_nodes(self, provider: Provider, attempts: Sequence[Attempt]) -> list[Instance]:
        """Launch these nodes as `up` does, and return them once they run."""
        if isinstance(provider, LaunchesTogether):
            deadline = attempts[0].made_at + timedelta(seconds=LAUNCH_TIMEOUT_S)
            launched = list(provider.launch_together(attempts, deadline=deadline))
        else:
            launched = [self.launch(provider, attempt) for attempt in attempts]
        return [self.wait_for_state(provider, instance.id, State.RUNNING) for instance in launched]

    def test_nodes_end_one_by_one_and_what_they_share_after_the_last(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """The others run on, with what they use, until each has ended; then nothing of the launch is left."""
        attempts = self.node_attempts(provider, make_attempt())
        machines = self.launch_nodes(provider, attempts)
        shared = self.shared_ids(provider, attempts)
        while machines:
            provider.terminate(machines.pop().id)
            assert not shared or not self.clear_shared(provider, attempts)
            assert all(provider.get(machine.id).state is State.RUNNING for machine in machines)
            assert not machines or self.shared_ids(provider, attempts) == shared
        self.wait_until(lambda: self.list_living(provider) == [])
        self.wait_until(lambda: self.clear_shared(provider, attempts))
        assert self.shared_ids(provider, attempts) == []
        assert self.clear_shared(provider, attempts), "asked again, it is not an error"

    def test_what_one_cluster_shares_is_not_another_ones(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """Clearing an ended cluster removes nothing of a running one."""
        first = self.node_attempts(provider, make_attempt(), 2)
        second = self.node_attempts(provider, make_attempt(key="another"), 2)
        running, ended = self.launch_nodes(provider, first), self.launch_nodes(provider, second)
        shared = self.shared_ids(provider, first)
        for instance in ended:
            provider.terminate(instance.id)
        self.wait_until(lambda: len(self.list_living(provider)) == len(running))
        self.wait_until(lambda: self.clear_shared(provider, second))
        assert (self.shared_ids(provider, first), self.shared_ids(provider, second)) == (shared, [])

    def test_a_cluster_that_never_was_has_nothing_to_clear(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """Neither is anything found, nor is that an error."""
        assert self.clear_shared(provider, self.node_attempts(provider, make_attempt()))


class BulkStopContract(ContractBase):
    """Each machine that can be stopped is stopped, whatever the errors of others in the same call."""

    def launch_several(self, provider: Provider, make_attempt: MakeAttempt, count: int = 2) -> list[str]:
        """Return the ids of so many running machines."""
        return [self.launch_and_wait(provider, make_attempt(key=f"number-{number}")).id for number in range(count)]

    def are_paused(self, provider: Provider, ids: list[str]) -> bool:
        """Say whether each of these is stopped and not billed."""
        answers = cast("BulkStop", provider).get_many(ids)
        return all(isinstance(answers[id_], Instance) and answers[id_].state in PAUSED_STATES for id_ in ids)  # type: ignore[union-attr]

    def test_many_are_stopped_and_no_other(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """Those that were named, in the way that ends billing."""
        first, second, third = self.launch_several(provider, make_attempt, 3)
        assert cast("BulkStop", provider).stop_many([first, second]) == {}
        self.wait_until(lambda: self.are_paused(provider, [first, second]))
        assert not provider.get(first).billed
        assert provider.get(third).state is State.RUNNING

    def test_one_that_is_unknown_keeps_no_other_running(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """Only the unknown one has an error."""
        machine = self.launch_several(provider, make_attempt)
        unknown = machine[1][:-4] + "0000"
        refused = cast("BulkStop", provider).stop_many([machine[0], unknown, machine[1]])
        assert {id_: type(error) for id_, error in refused.items()} == {unknown: InstanceNotFound}
        self.wait_until(lambda: self.are_paused(provider, machine))

    def test_what_is_stopped_already_is_fine(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """A request whose effect was not confirmed is repeated."""
        first, second = self.launch_several(provider, make_attempt)
        cast("Pausable", provider).stop(first)
        self.wait_for_state(provider, first, *PAUSED_STATES)
        since = provider.get(first).since
        assert cast("BulkStop", provider).stop_many([first, second, second]) == {}
        self.wait_until(lambda: self.are_paused(provider, [first, second]))
        assert provider.get(first).since == since

    def test_what_is_no_id_reaches_nothing(self, provider: Provider, machine: Instance) -> None:
        """An id comes from a file that may be damaged; it never becomes a pattern, and fails alone."""
        invalid_ids = ["*", "", "--all", "../" + machine.id, machine.id + "\n"]
        refused = cast("BulkStop", provider).stop_many(invalid_ids)
        assert set(refused) == set(invalid_ids)
        assert all(isinstance(error, CloudgpuError) for error in refused.values())
        answers = cast("BulkStop", provider).get_many([*invalid_ids, machine.id])
        assert [id_ for id_, answer in answers.items() if isinstance(answer, Instance)] == [machine.id]
        assert provider.get(machine.id).state is State.RUNNING

    def test_many_are_seen_as_each_is_alone(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """With the same facts, and for an unknown id with the same error."""
        machine = self.launch_several(provider, make_attempt)
        unknown = machine[0][:-4] + "0000"
        answers = cast("BulkStop", provider).get_many([*machine, unknown])
        assert set(answers) == {*machine, unknown}
        for id_ in machine:
            alone, answer = provider.get(id_), answers[id_]
            assert isinstance(answer, Instance)
            assert (answer.id, answer.state, dict(answer.tags)) == (alone.id, alone.state, dict(alone.tags))
        assert isinstance(answers[unknown], InstanceNotFound)

    def test_what_has_ended_is_seen_to_be_over(self, provider: Provider, machine: Instance) -> None:
        """As `get` says it: terminated, or not found."""
        self.terminate_and_wait(provider, machine.id)
        found = cast("BulkStop", provider).get_many([machine.id])[machine.id]
        assert isinstance(found, InstanceNotFound) or (isinstance(found, Instance) and not found.billed)
        refused = cast("BulkStop", provider).stop_many([machine.id])
        assert isinstance(refused[machine.id], CloudgpuError)

    def test_none_is_not_all(self, provider: Provider, machine: Instance) -> None:
        """An empty call may mean every machine to a cloud."""
        assert cast("BulkStop", provider).stop_many([]) == {}
        assert cast("BulkStop", provider).get_many([]) == {}
        assert provider.get(machine.id).state is State.RUNNING
