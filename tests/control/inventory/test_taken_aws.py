"""What a spot machine costs that AWS took while nobody looked, on our model of AWS: by the word of its request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.outage.opening import open_session
from cloudgpu.core.billing.charges import charge, money
from cloudgpu.core.values.times import from_iso
from tests.cli.aws_line import Line
from tests.clouds.aws.fixtures import aws, aws_process
from tests.providers.aws.accounts import impatient

__all__ = ["aws", "aws_process"]
UP = "up --gpu v100 --spot --ssh-from 203.0.113.7 --no-wait --yes --name otter"
ASK = "DescribeSpotInstanceRequests"
CUT = timedelta(seconds=1)  # EC2 tells its times to the second


@pytest.fixture
def taken(own_home, capsys, aws):
    """Launch a spot machine, let AWS take it so long after, look three hours later; return its run and charge.

    `shown`: AWS still shows the machine then; else its request alone.
    """
    aws.model.dates_interruptions = False
    line = Line(own_home, capsys, aws)
    session = open_session({"CLOUDGPU_HOME": str(line.home), "USER": "ada"})
    session.clock = lambda: datetime.now(UTC) + aws.model.ahead

    def after(length, *, shown=True):
        aws.dwell(terminated=(7 if shown else 1) * 3600)
        assert line(UP).code == 0
        sync_all(session)  # it is seen to run: AWS does not bill what is pending
        (row,) = session.ledger.machines()
        began = from_iso(row.open_usage[0].begin)
        aws.advance((began + length - aws.model.now()).total_seconds())
        aws.interrupt(row.provider_id.partition("/")[2])
        aws.advance(1)
        aws.advance(3 * 3600)
        sync_all(session)
        (use,) = [one for _, one in session.ledger.ended_usages() if one.resource == "instance"]
        assert session.ledger.machine(row.id).state == "terminated"
        return use, charge(use, session.clock())

    return after


def run_of(use):
    return from_iso(use.end) - from_iso(use.begin)


@pytest.mark.soak
@pytest.mark.parametrize("shown", [True, False])
def test_what_aws_took_at_59_minutes_is_free_though_the_look_came_hours_later(taken, aws, shown):
    use, found = taken(timedelta(minutes=59), shown=shown)
    assert timedelta(minutes=59) - CUT <= run_of(use) < timedelta(minutes=59, seconds=5)
    assert (use.reason, use.maybe_until) == ("interrupted", None)
    assert (found.low, found.amount, found.high) == (0, 0, 0)
    assert [call.region for call in aws.called(ASK)] == ["us-east-1"]


@pytest.mark.parametrize("shown", [True, False])
def test_what_aws_took_at_61_minutes_is_paid_to_the_second_though_the_look_came_hours_later(taken, shown):
    use, found = taken(timedelta(minutes=61), shown=shown)
    run = run_of(use)
    assert timedelta(minutes=61) - CUT <= run < timedelta(minutes=61, seconds=5)
    assert (use.reason, use.maybe_until) == ("interrupted", None)
    seconds = -(-run // timedelta(seconds=1))
    (price,) = {segment.nanos for segment in use.segments}
    assert found.low == found.amount
    assert 0 <= money(found.high - found.amount).nanos * 3600 <= 5 * price * 1.01, "it may have run since its start"
    assert abs(money(found.amount).nanos * 3600 - price * seconds) < 3600  # less than a nano-dollar


@pytest.mark.soak
@pytest.mark.parametrize("shown", [True, False])
def test_without_an_answer_it_is_a_range_up_to_the_look(taken, aws, monkeypatch, shown):
    impatient(monkeypatch)
    aws.faults.add(ASK, error="RequestLimitExceeded", times=99)
    use, found = taken(timedelta(minutes=59), shown=shown)
    assert run_of(use) < timedelta(minutes=1)  # the last look that saw it
    assert use.maybe_until is not None
    assert found.low < found.high
    assert (found.low == 0) is shown  # who ended it is known where AWS shows it
