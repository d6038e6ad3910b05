"""After a life with everything in it, every way to ask what it has cost says the same, to a nano-dollar."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import pytest

from cloudgpu.cli.common import open_session
from cloudgpu.control.cost.cost import cost_document
from cloudgpu.control.cost.exports import ExportFormat, ExportPeriod, export
from cloudgpu.control.inputs.periods import parse_cost
from cloudgpu.core.billing.charges import charge, money
from cloudgpu.core.billing.cost_groups import Grouping
from cloudgpu.views.machines import machine_document
from tests.cli.aws_line import Line
from tests.clouds.aws.fixtures import aws, aws_process

__all__ = ["aws", "aws_process"]
UP = "up --gpu v100 --region us-east-1 --ssh-from 203.0.113.7 --no-wait --yes"


@pytest.fixture
def now(own_home, capsys, aws):
    """A session after that life, whose clock stands."""
    line = Line(own_home, capsys, aws)
    for words, code in (
        (f"{UP} --name a --volume data:50", 0),
        (f"{UP} --name b --spot", 0),
        ("stop a --yes", 0),
        ("start a --yes --no-wait", 0),
        ("image save a --name mine --no-restart --yes", 0),
        ("stop b --yes", 0),
        ("start b --yes --no-wait", 4),  # the first comeback fails
        ("start b --yes --no-wait", 0),
        ("down a --yes", 0),
        ("ls --refresh", 0),
    ):
        if code:
            line.aws.faults.add(action="RunInstances", times=9, error="InsufficientInstanceCapacity", status=400)
        said = line(words)
        line.aws.faults.clear()
        assert said.code == code, f"{words}: {said.err}"
    session = open_session()
    moment = session.clock()
    session.clock = lambda: moment
    return session


def test_every_way_to_ask_gives_the_same_sum(now):
    whole = Decimal(cost_document(now)["total_usd"])
    interactive = [use for _, use in now.ledger.ended_usages()]
    interactive += [use for row in now.ledger.billable_machines() for use in row.open_usage]
    assert money(sum(charge(use, now.clock()).amount for use in interactive)).dollars == whole
    for by in Grouping:
        found = cost_document(now, parse_cost(now.settings, now.clock(), by=str(by)))
        assert (found["total_usd"], by) == (str(whole), by)
        assert sum(Decimal(one["usd"]) for one in found["groups"]) == whole, by
    names = {one["name"]: Decimal(one["usd"]) for one in cost_document(now)["groups"]}
    assert set(names) == {"a", "b", "data", "mine"}
    for row in now.ledger.machines():
        assert abs(Decimal(machine_document(row, now.clock())["spent_usd"]) - names[row.name]) <= Decimal("1e-9")
    for form, column in ((ExportFormat.CSV, "usd"), (ExportFormat.FOCUS, "BilledCost")):
        text = io.StringIO()
        assert Decimal(export(now, form, ExportPeriod(None, None, now.clock()), None, text)["usd"]) == whole
        rows = csv.DictReader(io.StringIO(text.getvalue()))
        assert sum(Decimal(row[column]) for row in rows) == whole, form
