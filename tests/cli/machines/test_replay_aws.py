"""An interrupted launch on our model of AWS, sent again when something else has gone wrong: never a second machine."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cloudgpu.control.outage import opening as sessions
from tests.cli.aws_line import Line
from tests.clouds.aws.faults import FOREVER
from tests.clouds.aws.fixtures import aws, aws_process
from tests.providers.aws.accounts import impatient

__all__ = ["aws", "aws_process"]
UP = "up --yes --no-wait --ssh-from 203.0.113.7 --gpu v100 --spot"


@pytest.fixture
def line(own_home, capsys, aws, monkeypatch):
    """Let the SDK wait for nothing, and every session's clock run ahead by what it waits."""
    impatient(monkeypatch)
    passed = [timedelta()]

    def pause(seconds):
        passed[0] += timedelta(seconds=seconds)

    def opened(*args, real=sessions.open_session, **more):
        found = real(*args, clock=lambda: sessions.utc_now() + passed[0], **more)
        found.pause = pause
        return found

    monkeypatch.setattr(sessions, "open_session", opened)
    return Line(own_home, capsys, aws)


@pytest.mark.parametrize(
    ("action", "error", "listing", "code"),
    [
        ("DescribeKeyPairs", "ExpiredToken", "ExpiredToken", 6),
        ("RunInstances", "UnauthorizedOperation", "", 0),
    ],
)
def test_a_replay_that_is_refused_for_another_reason_does_not_close_the_launch(line, aws, action, error, listing, code):
    aws.faults.lose_reply("RunInstances", times=FOREVER)
    assert line(UP).code == 8
    assert len(aws.instances(live=True)) == 1
    aws.faults.clear()
    refusal = aws.faults.add(action, error=error, times=FOREVER)
    aws.faults.add("DescribeInstances", error=listing, times=FOREVER if listing else 0)
    again = line(UP)
    assert (again.code, refusal.hits > 0) == (code, True), again.err
    aws.faults.clear()
    (machine,) = line("ls -o json").json["machines"]
    assert machine["billed"] or machine["launch_uncertain"]
    assert line(UP).code == 0
    assert len(aws.instances(live=True)) == 1
    assert line("down --all --yes").code == 0
    assert aws.instances(live=True) == []
