"""Bytes out: what a machine's counter said is billed once, at most, and what nobody read is named."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.control.pricing.traffic import is_traffic_charged, parse_agent_status, traffic_event
from cloudgpu.core.billing.traffic_gaps import CHARGING_PROVIDERS, gaps_within, traffic_gaps
from cloudgpu.core.events.projection import machine_of
from cloudgpu.core.model.usage import usage_of_record
from cloudgpu.core.values.times import iso
from tests.core.events.test_projection import START, at, intent, line, running, stopped
from tests.core.machines import machine

GB = 10**9


def status(second, total_bytes, since=0):
    heard = (START + timedelta(seconds=second)).timestamp()
    return {"heartbeat": heard, "sent": {"bytes": total_bytes, "since": START.timestamp() + since}}


def launched(provider="aws", region="us-east-1"):
    return [intent(0, provider=provider, region=region, name="otter", account="lab"), running(1)]


def counted(lines, second, total_bytes):
    """Take what the agent says at a second into the ledger; return the lines."""
    draft = traffic_event(machine_of(lines), status(second, total_bytes), START + timedelta(seconds=second))
    return lines if draft is None else [*lines, line(second, draft.kind, dict(draft.body))]


def bodies(lines):
    return [one.body for one in lines if one.kind == "traffic_observed"]


def test_only_what_is_new_is_written_each_time():
    lines = counted(counted(counted(launched(), 100, 3 * GB), 200, 3 * GB), 300, 5 * GB)
    assert [(body["bytes_out"], body["since"], body["until"]) for body in bodies(lines)] == [
        (3 * GB, at(0), at(100)),
        (2 * GB, at(100), at(300)),
    ]


def test_a_counter_that_began_anew_is_counted_from_nothing():
    lines = counted(counted(launched(), 100, 3 * GB), 200, GB)
    assert [body["bytes_out"] for body in bodies(lines)] == [3 * GB, GB]


def test_bytes_are_priced_at_most_with_the_reasons_and_from_nothing_on():
    (body,) = bodies(counted(launched(), 100, 10 * GB))
    assert body["nanos"] == 90_000_000  # the facts: 0.09 $ a GB in us-east-1
    assert "inside the region are free" in body["why_maybe_less"]
    assert "100 GB/month free (recalled)" in body["why_maybe_less"]
    assert body["source"]


def test_bytes_of_a_cloud_that_charges_none_are_not_written():
    lines = counted(launched("local", "here"), 100, 10 * GB)
    assert bodies(lines) == []


def test_an_agent_of_an_old_version_says_nothing():
    row = machine_of(launched())
    assert traffic_event(row, {"heartbeat": START.timestamp()}, START) is None
    assert traffic_event(row, {"heartbeat": None, "sent": None}, START) is None


def test_what_was_never_read_is_named_from_the_last_count_on():
    lines = launched()
    (gap,) = traffic_gaps([machine_of(lines)])
    assert (gap.since, gap.until) == (at(0), None)
    lines = counted(lines, 100, GB)
    (gap,) = traffic_gaps([machine_of(lines)])
    assert str(gap) == "bytes out of otter not counted since 2026-11-20 11:01 UTC"
    ended = machine_of([*lines, stopped(200), line(300, "instance_vanished", {"provider_id": "i-1", "proof": "gone"})])
    (gap,) = traffic_gaps([ended])
    assert (gap.since, gap.until) == (at(100), at(300))


def test_a_stopped_machine_has_a_gap_only_if_it_never_ran_again():
    never_read = [*launched(), stopped(200)]
    (gap,) = traffic_gaps([machine_of(never_read)])
    assert gap.until is None
    read = [*counted(launched(), 100, GB), stopped(200)]
    assert traffic_gaps([machine_of(read)]) == [], "its counter goes on at the next start"
    ended = machine_of([*read, line(300, "instance_vanished", {"provider_id": "i-1", "proof": "gone"})])
    assert [gap.until for gap in traffic_gaps([ended])] == [at(300)]


def test_a_gap_is_told_for_the_periods_that_it_reaches_into():
    row = machine_of(counted(launched(), 100, GB))

    def told(since, until):
        return len(gaps_within([row], *(moment and START + timedelta(seconds=moment) for moment in (since, until))))

    assert [told(None, None), told(500, None), told(None, 101), told(50, 200)] == [1, 1, 1, 1]
    assert told(None, 100) == 0
    ended = machine_of([*launched(), line(300, "instance_vanished", {"provider_id": "i-1", "proof": "gone"})])
    assert [len(gaps_within([ended], START + timedelta(seconds=second), None)) for second in (299, 300)] == [1, 0]


def test_who_charges_bytes_is_said_alike_by_the_rules_and_by_the_price_list():
    for provider, region in (("aws", "us-east-1"), ("gcp", "us-central1"), ("azure", "eastus"), ("local", "here")):
        assert is_traffic_charged(machine(provider=provider, region=region)) == (provider in CHARGING_PROVIDERS)


def test_a_machine_where_bytes_cost_nothing_has_no_gap():
    assert traffic_gaps([machine_of(launched("local", "here"))]) == []


def test_the_begin_of_a_count_is_never_before_the_launch():
    lines = launched()
    draft = traffic_event(machine_of(lines), status(100, GB, since=-9999), datetime.now(UTC))
    assert draft.body["since"] == at(0)
    assert iso(START) == at(0)


def test_the_bill_of_bytes_is_a_range():
    from cloudgpu.core.events.projection import project

    found = project(counted(launched(), 100, 10 * GB))
    (use,) = [use for use in found.ended_usages if use["resource"] == "traffic"]
    from cloudgpu.core.billing.charges import charge, money

    billed = charge(usage_of_record(use), START + timedelta(days=1))
    assert money(billed.low).nanos == 0
    assert money(billed.high).nanos == 900_000_000


@pytest.mark.parametrize(
    "sent",
    [
        {"bytes": 1, "since": "9" * 300},
        {"bytes": "9" * 300, "since": 0},
        {"bytes": 10**16, "since": 0},
        {"bytes": -1, "since": 0},
        {"bytes": True, "since": 0},
        {"bytes": 1, "since": -(10**14)},
        {"since": 0},
        [1],
    ],
)
def test_a_count_that_cannot_be_is_refused_with_an_error_that_callers_expect(sent):
    with pytest.raises((ValueError, KeyError, TypeError)):
        traffic_event(machine_of(launched()), {"heartbeat": START.timestamp(), "sent": sent}, START)


@pytest.mark.parametrize("text", [b"", b"[1]", b"7", b"null", b"\xff", b"[" * 200_000])
def test_an_answer_that_is_no_object_is_one_error(text):
    with pytest.raises(ValueError):  # noqa: PT011  (whatever it says)
        parse_agent_status(text)


def test_a_count_of_a_time_to_come_is_of_now():
    draft = traffic_event(machine_of(launched()), status(10**9, GB, since=10**9), START + timedelta(seconds=100))
    assert (draft.body["since"], draft.body["until"]) == (at(100), at(100))
