"""What a provider promises whose timers are set after the launch: they can be moved and dropped, and they fire."""

# ruff: noqa: S101  (a suite is asserts, and one class with many tests)

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

import pytest

from cloudgpu.core.model.instances import Instance, State
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.errors import InstanceNotFound, InvalidRequest
from cloudgpu.providers.abilities import SetsTimer, TimerAction
from cloudgpu.providers.base import Provider
from cloudgpu.testing.contract.base import ContractBase, MakeAttempt
from cloudgpu.testing.contract.running import PAUSED_STATES

EXTENSION = timedelta(hours=5)
TOLERANCE = timedelta(minutes=3)  # a timer that is a part of the machine counts from when that began to run
SHORT_LEASE: dict[str, Any] = {
    "lease": timedelta(seconds=40),
    "renew": timedelta(seconds=60),
}  # later than the slowest boots


class SetsTimerContract(ContractBase):
    """A timer fires when it was set to fire last, for one machine, and without any process of ours."""

    def launch_with_timer(
        self, provider: Provider, make_attempt: MakeAttempt, action: TimerAction | None = None, **changes: object
    ) -> tuple[Instance, datetime]:
        """Launch a machine and set its timer to renew-until; return both."""
        timers = cast("SetsTimer", provider)
        assert timers.why_no_timer() == "", "the suite needs settings with which there are timers"
        attempt = make_attempt(**changes)
        machine = self.launch_and_wait(provider, attempt)
        at = attempt.renew_until.replace(microsecond=0)
        timers.set_timer(machine.id, at, action=action)
        return machine, at

    def is_movable(self, provider: Provider, id: str) -> bool:  # noqa: A002
        """Say whether the timer can be moved to any time."""
        return cast("SetsTimer", provider).timer_limit(id) is None

    def is_at(self, provider: Provider, id: str, fires_at: datetime | None, at: datetime) -> bool:  # noqa: A002
        """Say whether a timer fires at `at`: to the second, or within `TOLERANCE` if it was fixed at launch."""
        return fires_at is not None and abs(fires_at - at) <= (
            timedelta(0) if self.is_movable(provider, id) else TOLERANCE
        )

    def test_a_timer_is_where_it_was_set_last(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """Later, earlier again, and twice to the same time."""
        timers = cast("SetsTimer", provider)
        machine, at = self.launch_with_timer(provider, make_attempt)
        assert self.is_at(provider, machine.id, timers.timer(machine.id), at)
        for moved_at in (at + EXTENSION, at, at) if self.is_movable(provider, machine.id) else (at, at):
            timers.set_timer(machine.id, moved_at)
            assert self.is_at(provider, machine.id, timers.timer(machine.id), moved_at)
            assert dict(timers.timers()) == {machine.id: timers.timer(machine.id)}

    def test_a_timer_that_was_fixed_at_launch_says_until_when(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """Moving it is refused, with that time, and it stays. A timer without such a limit can be moved at any time."""
        timers = cast("SetsTimer", provider)
        machine, at = self.launch_with_timer(provider, make_attempt)
        limit = timers.timer_limit(machine.id)
        if limit is None:
            timers.set_timer(machine.id, at + EXTENSION)
            assert timers.timer(machine.id) == at + EXTENSION
            return
        assert timers.timer(machine.id) == limit
        assert self.is_at(provider, machine.id, limit, at)
        with pytest.raises(InvalidRequest) as refused:
            timers.set_timer(machine.id, at + EXTENSION)
        assert f"{limit:%Y-%m-%d %H:%M}" in refused.value.message
        assert timers.timer(machine.id) == limit

    def test_a_dropped_timer_is_gone_and_dropping_twice_is_fine(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """A machine without a timer is not ended; a timer that was fixed at launch stays."""
        timers = cast("SetsTimer", provider)
        machine, at = self.launch_with_timer(provider, make_attempt)
        for _ in range(2):
            timers.drop_timer(machine.id)
            fires_at = timers.timer(machine.id)
            assert (
                fires_at is None
                if self.is_movable(provider, machine.id)
                else self.is_at(provider, machine.id, fires_at, at)
            )

    def test_dropping_the_timer_of_a_machine_that_is_gone_is_fine(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """An end is confirmed before its timer is dropped."""
        timers = cast("SetsTimer", provider)
        machine, at = self.launch_with_timer(provider, make_attempt)
        self.terminate_and_wait(provider, machine.id)
        assert dict(timers.timers()) in ({machine.id: at}, {})  # a part of the machine goes with it
        timers.drop_timer(machine.id)
        if self.has_movable_timers(provider, make_attempt):
            assert machine.id not in timers.timers()

    def has_movable_timers(self, provider: Provider, make_attempt: MakeAttempt) -> bool:
        """Say whether timers of this account can be moved, tried with another machine."""
        return self.is_movable(provider, self.launch_with_timer(provider, make_attempt, key="another")[0].id)

    def test_each_machine_has_its_own_timer(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """Dropping one leaves the other's."""
        timers = cast("SetsTimer", provider)
        (first, at), (second, _) = (self.launch_with_timer(provider, make_attempt, key=key) for key in ("one", "other"))
        assert set(timers.timers()) == {first.id, second.id}
        timers.drop_timer(second.id)
        assert self.is_at(provider, first.id, timers.timer(first.id), at)
        region = provider.get(first.id).region
        assert set(timers.timers(region)) >= {first.id}
        assert first.id in timers.timers(ids=[first.id])

    def test_a_timer_fires_while_nobody_asks(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """The machine is not billed afterwards: stopped, where it can be, else gone."""
        for market in Market:
            items = provider.available(Requirements(market=market)).items
            if not items:
                continue
            machine, at = self.launch_with_timer(
                provider, make_attempt, market=market, key=f"fires-{market}", **SHORT_LEASE
            )
            self.let_time_pass(provider, at)
            self.wait_until(partial(self.is_stopped_or_gone, provider, machine.id))
            is_stopped = not self.is_gone(provider, machine.id)
            assert is_stopped is items[0].stoppable
            assert not is_stopped or not provider.get(machine.id).billed

    def is_stopped_or_gone(self, provider: Provider, id: str) -> bool:  # noqa: A002
        """Say whether a machine is stopped or gone."""
        return self.is_gone(provider, id) or provider.get(id).state in PAUSED_STATES

    def test_what_a_timer_does_can_be_said(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """A machine that could be stopped is ended, where its policy keeps nothing of it and the cloud's timer can.

        Azure's can only deallocate: its machine is not billed then, and a run of the reaper ends it. A timer that was
        fixed at launch stays as it is.
        """
        machine, at = self.launch_with_timer(provider, make_attempt, action=TimerAction.TERMINATE, **SHORT_LEASE)
        if not self.is_movable(provider, machine.id):
            timers = cast("SetsTimer", provider)
            assert timers.timer(machine.id) == timers.timer_limit(machine.id)
            return
        self.let_time_pass(provider, at)
        self.wait_until(
            lambda: self.is_gone(provider, machine.id) or provider.get(machine.id).state is State.DEALLOCATED
        )

    def test_a_timer_for_what_is_unknown_is_refused(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """An unknown machine raises InstanceNotFound."""
        machine, at = self.launch_with_timer(provider, make_attempt)
        unknown = machine.id[:-4] + "0000"
        with pytest.raises(InstanceNotFound):
            cast("SetsTimer", provider).set_timer(unknown, at)
        cast("SetsTimer", provider).drop_timer(unknown)
