"""A line that a wrong clock dated is put right by the time since the computer was started, and any other one is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.core.events.log import Draft
from cloudgpu.ledger.log.clock_stamp import ClockStamp, clock_stamp, corrected

HOUR, AGO = timedelta(hours=1), timedelta(minutes=10)


def written(off: timedelta, **more) -> tuple[ClockStamp, Draft]:
    """A line of ten minutes ago and its stamp, by a clock that is so far ahead; also what it said then."""
    present = clock_stamp()
    assert present is not None, "these tests need Linux"
    said = datetime.now(UTC) - AGO + off
    stamp = ClockStamp(more.pop("boot", present.boot_id), present.uptime_s - AGO.total_seconds(), said.timestamp())
    return stamp, Draft(**{"kind": "noted", "subject": "cg-1", "body": {}, "occurred_at": said, "dedupe": "1"} | more)


def is_about(at: datetime, wanted: datetime) -> bool:
    return abs(at - wanted) < timedelta(seconds=5)


@pytest.mark.parametrize("off", [HOUR, -HOUR, timedelta(minutes=6), timedelta(hours=-23)])
def test_a_line_by_a_wrong_clock_gets_the_time_at_which_it_was_written(off):
    stamp, line = written(off)
    assert is_about(corrected(line, stamp, datetime.now(UTC)).occurred_at, datetime.now(UTC) - AGO)
    before = corrected(
        Draft("noted", "cg-1", {}, line.occurred_at - timedelta(minutes=1), "2"), stamp, datetime.now(UTC)
    )
    assert is_about(before.occurred_at, datetime.now(UTC) - AGO - timedelta(minutes=1))


def test_a_line_that_was_set_behind_an_earlier_one_is_not_before_its_own_time():
    stamp, line = written(-HOUR)
    pushed = Draft("noted", "cg-1", {}, line.occurred_at + timedelta(minutes=40), "2")
    assert is_about(corrected(pushed, stamp, datetime.now(UTC)).occurred_at, datetime.now(UTC) - AGO)


@pytest.mark.parametrize(
    ("off", "more"),
    [
        (timedelta(minutes=4), {}),
        (timedelta(days=2), {}),
        (HOUR, {"boot": "another start"}),
        (HOUR, {"clock": "aws"}),
        (HOUR, {"occurred_at": datetime.now(UTC) - AGO}),
        (-HOUR, {"occurred_at": datetime.now(UTC)}),
    ],
    ids=["right", "unbelievable", "started again", "a cloud's time", "by the database", "later than it was"],
)
def test_what_no_wrong_clock_has_dated_or_nobody_can_tell_stays_as_it_is(off, more):
    stamp, line = written(off, **more)
    assert corrected(line, stamp, datetime.now(UTC)) == line
    assert corrected(line, None, datetime.now(UTC)) == line
