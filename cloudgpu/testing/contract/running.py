"""What a provider promises about its machines beyond launching and ending them: prices, stops, tags, timers."""

# ruff: noqa: S101  (a suite is asserts, and one class with many tests)

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import cast

from cloudgpu.core.model.instances import TAG_HOLD_UNTIL, TAG_RENEW_UNTIL, Instance, State
from cloudgpu.core.model.offers import Basis, Market, Price, Requirements
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import epoch_text, from_epoch
from cloudgpu.errors import InstanceNotFound
from cloudgpu.providers.abilities import (
    CanRehearseInterruption,
    HasPrices,
    HasTimer,
    HostLeaves,
    KnowsHostKeys,
    LeavesFiles,
    Pausable,
    ReadsHostKeys,
    ReportsActivity,
    ReportsProcesses,
    SetsTimer,
    Taggable,
    WritesAtHome,
)
from cloudgpu.providers.base import Provider, ProviderSettings
from cloudgpu.testing.contract.base import ContractBase, MakeAttempt

PAUSED_STATES = (State.STOPPED, State.DEALLOCATED)


class PausableContract(ContractBase):
    """A machine that can be stopped can be started, and is not billed in between."""

    def stop_and_wait(self, provider: Provider, id: str) -> Instance:  # noqa: A002
        """Stop a machine and wait for it."""
        cast("Pausable", provider).stop(id)
        return self.wait_for_state(provider, id, *PAUSED_STATES)

    def test_a_stopped_machine_is_not_billed(self, provider: Provider, machine: Instance) -> None:
        """The stop is of the kind that ends billing."""
        stopped = self.stop_and_wait(provider, machine.id)
        assert not stopped.billed
        assert stopped.since is None or machine.launched_at is None or stopped.since >= machine.launched_at

    def test_a_stopped_machine_stays_listed_with_its_tags(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """It can be found again."""
        attempt = make_attempt()
        machine = self.launch_and_wait(provider, attempt)
        self.stop_and_wait(provider, machine.id)
        assert [(instance.id, dict(instance.tags)) for instance in self.list_living(provider)] == [
            (machine.id, dict(attempt.tags))
        ]

    def test_a_started_machine_is_the_same_again(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """Same id, same tags, running and billed."""
        attempt = make_attempt()
        machine = self.launch_and_wait(provider, attempt)
        stopped = self.stop_and_wait(provider, machine.id)
        cast("Pausable", provider).start(machine.id)
        started = self.wait_for_state(provider, machine.id, State.RUNNING)
        assert started.billed
        assert dict(started.tags) == dict(attempt.tags)
        assert started.launched_at == machine.launched_at or started.launched_at is None
        assert started.since is None or stopped.since is None or started.since >= stopped.since

    def test_stopping_twice_is_fine(self, provider: Provider, machine: Instance) -> None:
        """Both while it stops and when it has stopped."""
        cast("Pausable", provider).stop(machine.id)
        cast("Pausable", provider).stop(machine.id)
        first = self.stop_and_wait(provider, machine.id)
        assert self.stop_and_wait(provider, machine.id).since == first.since

    def test_starting_twice_is_fine(self, provider: Provider, machine: Instance) -> None:
        """A running machine is not changed."""
        cast("Pausable", provider).start(machine.id)
        assert provider.get(machine.id).since == machine.since

    def test_a_replayed_launch_does_not_start_a_stopped_machine(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """To repeat an old attempt must not spend money again."""
        attempt = make_attempt()
        machine = self.launch_and_wait(provider, attempt)
        self.stop_and_wait(provider, machine.id)
        assert self.launch(provider, attempt).id == machine.id
        assert provider.get(machine.id).state in PAUSED_STATES

    def test_a_stopped_machine_can_be_terminated(self, provider: Provider, machine: Instance) -> None:
        """A stopped machine may still cost its disk."""
        self.stop_and_wait(provider, machine.id)
        self.terminate_and_wait(provider, machine.id)

    def test_what_is_unknown_can_neither_stop_nor_start(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """An unknown machine raises InstanceNotFound."""
        pausable = cast("Pausable", provider)
        self.check_not_found(provider, make_attempt(), pausable.stop, pausable.start)


class TaggableContract(ContractBase):
    """Tags change one by one."""

    def test_a_tag_is_set_and_the_others_stay(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """New keys are added, old ones replaced, nothing is lost."""
        attempt = make_attempt()
        machine = self.launch_and_wait(provider, attempt)
        change = {TAG_HOLD_UNTIL: "1800000000", "cloudgpu-last-active": "1700000000"}
        cast("Taggable", provider).tag(machine.id, change)
        expected_tags = {**attempt.tags, **change}
        self.wait_until(lambda: dict(provider.get(machine.id).tags) == expected_tags)
        self.wait_until(lambda: [dict(instance.tags) for instance in self.list_living(provider)] == [expected_tags])

    def test_no_change_is_fine(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """An empty set of tags changes nothing."""
        attempt = make_attempt()
        machine = self.launch(provider, attempt)
        cast("Taggable", provider).tag(machine.id, {})
        assert dict(provider.get(machine.id).tags) == dict(attempt.tags)

    def test_what_is_unknown_cannot_be_tagged(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """An unknown machine raises InstanceNotFound."""
        self.check_not_found(
            provider, make_attempt(), lambda unknown: cast("Taggable", provider).tag(unknown, {TAG_HOLD_UNTIL: "1"})
        )


def comparable_price(price: Price | None) -> tuple[Basis, Money | None] | None:
    """Return what two calls must agree on: the basis, and the amount unless it is measured."""
    if price is None:
        return None
    return price.basis, None if price.basis is Basis.MEASURED else price.per_hour


class HasPricesContract(ContractBase):
    """A provider that knows its prices gives one per offer."""

    def test_every_offer_gets_its_price_in_order(self, provider: Provider) -> None:
        """A price has a source and a date, and None stands where there is none."""
        offers = list(provider.available(Requirements()).items)
        prices = cast("HasPrices", provider).prices(offers)
        assert len(prices) == len(offers)
        assert [comparable_price(price) for price in cast("HasPrices", provider).prices(offers[::-1])] == [
            comparable_price(price) for price in reversed(prices)
        ]
        for price in filter(None, prices):
            assert price.per_hour.nanos >= 0
            assert price.source
            assert price.as_of.utcoffset() == timedelta(0)

    def test_no_offers_have_no_prices(self, provider: Provider) -> None:
        """An empty list is no error."""
        assert list(cast("HasPrices", provider).prices([])) == []


class HasTimerContract(ContractBase):
    """The timer ends the machine at renew-until."""

    def test_the_timer_fires_at_renew_until(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """To the second, as the tag carries it; nearly so where it counts from when the machine began to run."""
        attempt = make_attempt()
        machine = self.launch_and_wait(provider, attempt)
        self.set_timer(provider, machine.id, attempt.renew_until)
        fires_at = cast("HasTimer", provider).timer(machine.id)
        assert fires_at is not None
        assert fires_at.utcoffset() == timedelta(0)
        is_fixed = isinstance(provider, SetsTimer) and provider.timer_limit(machine.id) is not None
        tolerance = timedelta(minutes=3) if is_fixed else timedelta(0)
        assert abs(fires_at - from_epoch(epoch_text(attempt.renew_until))) <= tolerance

    def test_the_timer_follows_a_longer_lease(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """Where tags can change, `extend` moves the timer too; one that was fixed at launch stays."""
        attempt = make_attempt()
        machine = self.launch_and_wait(provider, attempt)
        self.set_timer(provider, machine.id, attempt.renew_until)
        is_fixed = isinstance(provider, SetsTimer) and provider.timer_limit(machine.id) is not None
        if is_fixed or not isinstance(provider, Taggable):
            fixed_at = cast("HasTimer", provider).timer(machine.id)
            assert fixed_at is not None
            assert cast("HasTimer", provider).timer(machine.id) == fixed_at
            return
        at = attempt.renew_until + timedelta(hours=5)
        provider.tag(machine.id, {TAG_RENEW_UNTIL: epoch_text(at)})
        self.set_timer(provider, machine.id, at)
        self.wait_until(lambda: self.timer_epoch(provider, machine.id) == epoch_text(at))

    def set_timer(self, provider: Provider, id: str, at: datetime) -> None:  # noqa: A002
        """Set the timer, if this provider's timers are set; others follow the tag."""
        if isinstance(provider, SetsTimer) and not provider.why_no_timer():
            provider.set_timer(id, at)

    def timer_epoch(self, provider: Provider, id: str) -> str:  # noqa: A002
        """Return when the timer fires, in epoch seconds; empty for no timer."""
        at = cast("HasTimer", provider).timer(id)
        return epoch_text(at) if at else ""

    def test_the_timer_ends_the_machine_by_itself(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """Without a call of ours; it is not billed afterwards."""
        attempt = make_attempt(lease=timedelta(seconds=2), renew=timedelta(seconds=3))
        machine = self.launch(provider, attempt)
        self.set_timer(provider, machine.id, attempt.renew_until)
        self.let_time_pass(provider, attempt.renew_until)
        self.wait_until(lambda: self.is_gone(provider, machine.id) or provider.get(machine.id).state in PAUSED_STATES)
        assert self.is_gone(provider, machine.id) or not provider.get(machine.id).billed

    def test_what_is_unknown_has_no_timer(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """No timer is not the same as no machine."""
        self.check_not_found(provider, make_attempt(), cast("HasTimer", provider).timer)


class CanRehearseInterruptionContract(ContractBase):
    """A rehearsed interruption ends the machine as a real one would."""

    def test_an_interruption_ends_the_machine_after_its_notice(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """It is taken at the time that the notice names, and not billed from then on: gone, or stopped."""
        machine = self.launch_and_wait(provider, make_attempt(market=Market.SPOT))
        taken_at = cast("CanRehearseInterruption", provider).interrupt(machine.id)
        assert taken_at.utcoffset() == timedelta(0)
        self.let_time_pass(provider, taken_at)
        self.wait_until(lambda: self.is_gone(provider, machine.id) or provider.get(machine.id).state in PAUSED_STATES)
        assert all(
            instance.state in PAUSED_STATES and not instance.billed
            for instance in self.list_living(provider)
            if instance.id == machine.id
        )

    def test_what_is_unknown_cannot_be_interrupted(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """An unknown machine raises InstanceNotFound."""
        self.check_not_found(
            provider, make_attempt(market=Market.SPOT), cast("CanRehearseInterruption", provider).interrupt
        )


class WritesAtHomeContract(ContractBase):
    """What a launch writes to the user's home is announced before, and removed after the machine."""

    def test_what_is_written_is_said_in_sentences(self, provider: Provider) -> None:
        """They name the machine; without a template, which installs more, there are fewer."""
        writer = cast("WritesAtHome", provider)
        sentences, template_sentences = writer.writes("lamp", template=False), writer.writes("lamp", template=True)
        assert all(line.isprintable() for line in template_sentences)
        assert "lamp" in " ".join(template_sentences)
        assert set(sentences) < set(template_sentences)

    def test_no_files_remain_of_a_machine_that_was_not_used(self, provider: Provider, machine: Instance) -> None:
        """Files of the launch are removed with it."""
        self.terminate_and_wait(provider, machine.id)
        assert cast("WritesAtHome", provider).remains(machine.id) is None


class ReportsProcessesContract(ContractBase):
    """Processes that still run on a machine are listed before it ends."""

    def test_a_new_machine_runs_nothing_of_its_users(self, provider: Provider, machine: Instance) -> None:
        """Its agent is not counted; listing ends nothing."""
        assert not cast("ReportsProcesses", provider).processes(machine.id)
        assert provider.get(machine.id).state is State.RUNNING

    def test_what_is_unknown_runs_nothing(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """An unknown machine raises InstanceNotFound."""
        self.check_not_found(provider, make_attempt(), cast("ReportsProcesses", provider).processes)


class KnowsHostKeysContract(ContractBase):
    """A machine that has a host key already is verified by that one."""

    def test_a_host_key_is_an_openssh_public_line(self, provider: Provider) -> None:
        """Algorithm and key, as known_hosts holds them; None where the launch gives the key."""
        for configuration in provider.available(Requirements()).items:
            line = cast("KnowsHostKeys", provider).host_key(configuration)
            assert line is None or algorithm_in(line) == line.split(" ")[0]

    def test_a_host_key_stays_when_the_machine_is_launched(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """What was pinned before the launch is what the machine shows after it."""
        attempt = make_attempt()
        pinned_key = cast("KnowsHostKeys", provider).host_key(attempt.offer.configuration)
        self.launch_and_wait(provider, attempt)
        assert cast("KnowsHostKeys", provider).host_key(attempt.offer.configuration) == pinned_key


class HostLeavesContract(ContractBase):
    """A machine on a computer that is available for a time says until when."""

    def set_leave_time(self, provider: Provider, id: str, at: datetime) -> None:  # noqa: A002
        """Let the machine's computer leave at `at`; every provider with this ability has to."""
        raise NotImplementedError

    def test_a_machine_tells_when_its_host_leaves(
        self, provider: Provider, machine: Instance, settings: ProviderSettings
    ) -> None:
        """As the last `get` has read it."""
        at = settings.clock().replace(microsecond=0) + timedelta(days=3)
        self.set_leave_time(provider, machine.id, at)
        provider.get(machine.id)
        assert cast("HostLeaves", provider).leaves_at(machine.id) == at

    def test_the_host_of_what_is_unknown_leaves_at_no_time(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """An unknown machine raises InstanceNotFound."""
        self.check_not_found(provider, make_attempt(), cast("HostLeaves", provider).leaves_at)


class LeavesFilesContract(ContractBase):
    """A provider whose ends leave the user's files says so before an end."""

    def test_what_an_end_means_is_said_in_whole_sentences(self, provider: Provider) -> None:
        """The confirmation before an end shows them unchanged."""
        message = cast("LeavesFiles", provider).end_effect
        assert message == message.strip()
        assert message[:1].isupper()
        assert message.endswith(".")


class ReportsActivityContract(ContractBase):
    """A machine's activity is what it has reported itself: never another's, and None before its first report."""

    def report_use(self, provider: Provider, id: str, at: datetime) -> None:  # noqa: A002
        """Make the machine report that it was in use at `at`; every test class has to override this."""
        raise NotImplementedError

    def test_a_machine_tells_when_it_was_in_use(
        self, provider: Provider, make_attempt: MakeAttempt, settings: ProviderSettings
    ) -> None:
        """To the second; one that has reported nothing is neither idle nor in use."""
        busy, silent = (self.launch_and_wait(provider, make_attempt(key=key)) for key in ("busy", "silent"))
        at = (busy.launched_at or settings.clock()).replace(microsecond=0) + timedelta(seconds=1)
        self.report_use(provider, busy.id, at)
        activity = cast("ReportsActivity", provider).activity([busy.id, silent.id])
        assert dict(activity) == {busy.id: at, silent.id: None}

    def test_what_is_unknown_says_so_in_its_place(self, provider: Provider, machine: Instance) -> None:
        """An error about one machine does not hide the activity of others."""
        unknown = machine.id[:-4] + "0000"
        activity = cast("ReportsActivity", provider).activity([unknown, machine.id])
        assert isinstance(activity[unknown], InstanceNotFound)
        assert activity[machine.id] is None

    def test_no_ids_need_no_call(self, provider: Provider) -> None:
        """An empty list must not mean all machines."""
        assert dict(cast("ReportsActivity", provider).activity([])) == {}


class ReadsHostKeysContract(ContractBase):
    """A machine's own host keys are read in a way that nobody in between can change them."""

    def report_host_keys(self, provider: Provider, id: str) -> None:  # noqa: A002
        """Make the machine report its host keys, as at the first boot; every test class has to override this."""
        raise NotImplementedError

    def test_a_machine_tells_its_host_keys_once_it_has_some(
        self, provider: Provider, make_attempt: MakeAttempt
    ) -> None:
        """None before; then OpenSSH lines, the same at each look, which no other machine shows."""
        reader = cast("ReadsHostKeys", provider)
        first, second = (self.launch_and_wait(provider, make_attempt(key=key)) for key in ("first", "second"))
        assert list(reader.host_keys(first.id)) == []
        self.report_host_keys(provider, first.id)
        self.wait_until(lambda: bool(reader.host_keys(first.id)))
        lines = list(reader.host_keys(first.id))
        assert [algorithm_in(line) for line in lines] == [line.split(" ")[0] for line in lines]
        assert list(reader.host_keys(first.id)) == lines
        assert list(reader.host_keys(second.id)) == []

    def test_a_key_that_is_new_after_a_start_is_shown(self, provider: Provider, machine: Instance) -> None:
        """So that whoever pinned the one before can say that it has changed; what never stops keeps the one it has."""
        reader = cast("ReadsHostKeys", provider)
        self.report_host_keys(provider, machine.id)
        self.wait_until(lambda: bool(reader.host_keys(machine.id)))
        first_keys = list(reader.host_keys(machine.id))
        if not isinstance(provider, Pausable):
            self.let_time_pass(provider, machine.launched_at or datetime.now(UTC))
            assert list(reader.host_keys(machine.id)) == first_keys
            return
        provider.stop(machine.id)
        self.wait_for_state(provider, machine.id, State.STOPPED)
        provider.start(machine.id)
        self.wait_for_state(provider, machine.id, State.RUNNING)
        self.report_host_keys(provider, machine.id)
        self.wait_until(lambda: bool(set(reader.host_keys(machine.id)) - set(first_keys)))

    def test_what_is_unknown_has_no_host_key(self, provider: Provider, make_attempt: MakeAttempt) -> None:
        """No key yet is not the same as no machine."""
        self.check_not_found(provider, make_attempt(), cast("ReadsHostKeys", provider).host_keys)


def algorithm_in(line: str) -> str:
    """Return the algorithm that a public key itself names: a length and a name begin its blob (RFC 4253, 6.6)."""
    blob = base64.b64decode(line.split(" ")[1], validate=True)
    return blob[4 : 4 + int.from_bytes(blob[:4], "big")].decode()
