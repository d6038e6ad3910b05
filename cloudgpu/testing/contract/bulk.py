"""What a provider promises that stops many machines in one call, and looks at many."""

# ruff: noqa: S101  (a suite is asserts)

from __future__ import annotations

from typing import cast

from cloudgpu.core.model.instances import Instance, State
from cloudgpu.errors import CloudgpuError, InstanceNotFound
from cloudgpu.providers.abilities import Pausable
from cloudgpu.providers.base import Provider
from cloudgpu.providers.cluster_abilities import BulkStop
from cloudgpu.testing.contract.base import ContractBase, MakeAttempt

PAUSED = (State.STOPPED, State.DEALLOCATED)


class BulkStopContract(ContractBase):
    """What can be stopped is stopped, whatever else was named in the same call."""

    def some(self, provider: Provider, make_attempt: MakeAttempt, count: int = 2) -> list[str]:
        """Return the ids of so many running machines."""
        return [self.running(provider, make_attempt(key=f"number-{number}")).id for number in range(count)]

    def paused(self, provider: Provider, ids: list[str]) -> bool:
        """Say whether each of these is stopped and not billed."""
        seen = cast("BulkStop", provider).get_many(ids)
        return all(isinstance(seen[one], Instance) and seen[one].state in PAUSED for one in ids)  # type: ignore[union-attr]

    def test_many_are_stopped_and_no_other(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """Those that were named, in the way that ends billing."""
        first, second, third = self.some(provider, make_attempt, 3)
        assert cast("BulkStop", provider).stop_many([first, second]) == {}
        self.wait_until(lambda: self.paused(provider, [first, second]))
        assert not provider.get(first).billed
        assert provider.get(third).state is State.RUNNING

    def test_one_that_is_unknown_keeps_no_other_running(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """It is named with its error, alone."""
        made = self.some(provider, make_attempt)
        unknown = made[1][:-4] + "0000"
        refused = cast("BulkStop", provider).stop_many([made[0], unknown, made[1]])
        assert {one: type(fault) for one, fault in refused.items()} == {unknown: InstanceNotFound}
        self.wait_until(lambda: self.paused(provider, made))

    def test_what_is_stopped_already_is_fine(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """A stop that was asked and not proved is asked again."""
        first, second = self.some(provider, make_attempt)
        cast("Pausable", provider).stop(first)
        self.settle(provider, first, *PAUSED)
        since = provider.get(first).since
        assert cast("BulkStop", provider).stop_many([first, second, second]) == {}
        self.wait_until(lambda: self.paused(provider, [first, second]))
        assert provider.get(first).since == since

    def test_what_is_no_id_reaches_nothing(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """An id comes from a file that may be damaged; it never becomes a pattern, and fails alone."""
        made = self.running(provider, make_attempt())
        wrong = ["*", "", "--all", "../" + made.id, made.id + "\n"]
        refused = cast("BulkStop", provider).stop_many(wrong)
        assert set(refused) == set(wrong)
        assert all(isinstance(fault, CloudgpuError) for fault in refused.values())
        seen = cast("BulkStop", provider).get_many([*wrong, made.id])
        assert [one for one, found in seen.items() if isinstance(found, Instance)] == [made.id]
        assert provider.get(made.id).state is State.RUNNING

    def test_many_are_seen_as_each_is_alone(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """The same facts, and for what is not there the same error."""
        made = self.some(provider, make_attempt)
        unknown = made[0][:-4] + "0000"
        seen = cast("BulkStop", provider).get_many([*made, unknown])
        assert set(seen) == {*made, unknown}
        for one in made:
            alone, found = provider.get(one), seen[one]
            assert isinstance(found, Instance)
            assert (found.id, found.state, dict(found.tags)) == (alone.id, alone.state, dict(alone.tags))
        assert isinstance(seen[unknown], InstanceNotFound)

    def test_what_has_ended_is_seen_to_be_over(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """As `get` says it: terminated, or not found."""
        made = self.running(provider, make_attempt())
        provider.terminate(made.id)
        self.settle_gone(provider, made.id)
        found = cast("BulkStop", provider).get_many([made.id])[made.id]
        assert isinstance(found, InstanceNotFound) or (isinstance(found, Instance) and not found.billed)
        refused = cast("BulkStop", provider).stop_many([made.id])
        assert isinstance(refused[made.id], CloudgpuError)

    def test_none_is_not_all(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """An empty call may mean every machine to a cloud."""
        made = self.running(provider, make_attempt())
        assert cast("BulkStop", provider).stop_many([]) == {}
        assert cast("BulkStop", provider).get_many([]) == {}
        assert provider.get(made.id).state is State.RUNNING
