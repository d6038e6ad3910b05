"""Ends that two clocks watch, with clocks of the test's own."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.core.model.instances import TAG_EXPIRES, TAG_RENEW_UNTIL, Instance, State
from cloudgpu.providers.local import translate
from cloudgpu.providers.local.deadlines import Deadlines
from cloudgpu.providers.local.layout import Layout
from tests.providers.local.cloud import Cloud


class Clocks:
    wall = 1_790_000_000.0
    monotonic = 50.0

    def pass_(self, seconds):
        self.wall += seconds
        self.monotonic += seconds


@pytest.fixture
def machine(tmp_path):
    layout, clocks = Layout(tmp_path), Clocks()
    layout.tags.parent.mkdir()
    layout.agent.mkdir(parents=True)
    return layout, clocks, Deadlines(layout, lambda: clocks.wall, lambda: clocks.monotonic)


def put(path, text):
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)


def tags(layout, **values):
    put(
        layout.tags, json.dumps({f"cloudgpu-{key.replace('_', '-')}": str(int(value)) for key, value in values.items()})
    )


def test_nothing_is_due_before_its_time_and_the_timer_is_at_it(machine):
    layout, clocks, deadlines = machine
    tags(layout, renew_until=clocks.wall + 100)
    assert deadlines.end_reason(with_lease=True) is None
    clocks.pass_(99)
    assert deadlines.end_reason(with_lease=True) is None
    clocks.pass_(1)
    assert deadlines.end_reason(with_lease=True) == "renew-until"


def test_a_clock_that_was_set_back_does_not_postpone_the_end(machine):
    layout, clocks, deadlines = machine
    tags(layout, renew_until=clocks.wall + 100)
    assert deadlines.end_reason(with_lease=True) is None
    clocks.pass_(100)
    clocks.wall -= 86400
    assert deadlines.end_reason(with_lease=True) == "renew-until"


def test_a_sleep_in_which_the_monotonic_clock_stood_still_counts(machine):
    layout, clocks, deadlines = machine
    tags(layout, renew_until=clocks.wall + 100)
    assert deadlines.end_reason(with_lease=True) is None
    clocks.wall += 101
    assert deadlines.end_reason(with_lease=True) == "renew-until"


def test_a_lease_counts_only_without_an_agent(machine):
    layout, clocks, deadlines = machine
    tags(layout, renew_until=clocks.wall + 100, expires=clocks.wall - 1)
    assert deadlines.end_reason(with_lease=False) is None
    assert deadlines.end_reason(with_lease=True) == "lease"


def test_a_hold_and_the_agents_renewal_postpone_the_lease_but_not_the_timer(machine):
    layout, clocks, deadlines = machine
    tags(layout, renew_until=clocks.wall + 100, expires=clocks.wall, hold_until=clocks.wall + 10)
    assert deadlines.end_reason(with_lease=True) is None
    put(layout.agent / "expires", str(int(clocks.wall + 500)))
    clocks.pass_(11)
    assert deadlines.end_reason(with_lease=True) is None
    clocks.pass_(89)
    assert deadlines.end_reason(with_lease=True) == "renew-until"


def test_changed_tags_are_read_again(machine):
    layout, clocks, deadlines = machine
    tags(layout, renew_until=clocks.wall + 10)
    assert deadlines.end_reason(with_lease=True) is None
    tags(layout, renew_until=clocks.wall + 1000)
    clocks.pass_(20)
    assert deadlines.end_reason(with_lease=True) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_tags_that_cannot_be_read_do_not_cancel_the_end(machine, text):
    layout, clocks, deadlines = machine
    tags(layout, renew_until=clocks.wall + 10)
    assert deadlines.end_reason(with_lease=True) is None
    put(layout.tags, text)
    clocks.pass_(10)
    assert deadlines.end_reason(with_lease=True) == "renew-until"


def test_a_notice_is_kept_and_a_broken_one_is_none(machine):
    layout, clocks, deadlines = machine
    tags(layout)
    put(layout.spot, '{"action": "terminate"}')
    assert deadlines.end_reason(with_lease=True) is None
    put(layout.spot, '{"action": "terminate", "time": "2026-09-21T14:13:30Z"}')
    assert deadlines.end_reason(with_lease=True) is None
    clocks.pass_(11)
    assert deadlines.end_reason(with_lease=True) == "interrupted"


def test_a_machine_whose_directory_was_removed_ends_at_the_time_it_knew(machine):
    layout, clocks, deadlines = machine
    tags(layout, renew_until=clocks.wall + 100, expires=clocks.wall + 50)
    assert deadlines.end_reason(with_lease=True) is None
    layout.tags.unlink()
    clocks.pass_(49)
    assert deadlines.end_reason(with_lease=True) is None
    clocks.pass_(1)
    assert deadlines.end_reason(with_lease=True) == "lease"
    clocks.pass_(50)
    assert deadlines.end_reason(with_lease=False) == "renew-until"


def test_a_machine_ends_by_the_clock_of_its_computer_and_is_told_of_by_the_ledgers(tmp_path):
    cloud, ahead = Cloud(tmp_path), timedelta(hours=1)
    attempt = cloud.attempt()
    here = translate.to_computer_time(attempt, ahead)
    assert (here.made_at, here.expires) == (attempt.made_at + ahead, attempt.expires + ahead)
    for key in (TAG_EXPIRES, TAG_RENEW_UNTIL):
        assert int(here.tags[key]) == int(attempt.tags[key]) + 3600
    started = datetime(2026, 11, 20, 12, tzinfo=UTC)
    offered = attempt.offer.configuration
    machine = Instance(
        "local", "mine", "local-1", State.RUNNING, True, here.tags, "here", "here", "computer", offered.market,
        launched_at=started, since=started, last_active=started,
    )  # fmt: skip
    shown = translate.to_caller_time(machine, ahead)
    assert shown.tags == dict(attempt.tags)
    assert {shown.launched_at, shown.since, shown.last_active} == {started - ahead}
