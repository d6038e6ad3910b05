"""Credit at our models of RunPod and vast.ai, over HTTP: what makes a machine live longer is held against it, too.

`cost` says what a run last read, and asks nobody. The models never were the clouds themselves.
"""

from __future__ import annotations

import weakref
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from cloudgpu.cli.money.cost_text import cost_text
from cloudgpu.control.cost.cost import cost_document
from cloudgpu.control.cost.report import report_document
from cloudgpu.control.inputs.launch_request import parse_request
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.lifecycle.lease import extend, plan_extension, set_hold
from cloudgpu.control.lifecycle.lifecycle import terminate_one
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import BudgetRefused
from tests.clouds.rest_faults import FOREVER
from tests.clouds.runpod.fixtures import runpod, runpod_process
from tests.clouds.vast.fixtures import vast, vast_process
from tests.control.conftest import OPENED

__all__ = ["runpod", "runpod_process", "vast", "vast_process"]
HOUR = timedelta(hours=1)
READS = {"vast": "user", "runpod": "billing.balance"}
PAGES = {"vast": "vast.ai", "runpod": "runpod.io"}


class Paid:
    """A user of one of the two, whose account is paid in advance."""

    def __init__(self, home, cloud, kind):
        self.cloud, self.kind = cloud, kind
        (home / "config.toml").write_text(f'provider = "{kind}"\nowner = "ada"\naddress_services = []\n')
        self.session = open_session({"CLOUDGPU_HOME": str(home), "USER": "ada"}, clock=cloud.clock.now)
        self.session.pause = cloud.advance
        OPENED.append(weakref.ref(self.session))

    def up(self):
        asked = parse_request(gpu="h100", name="bear", no_guard=True, lease="4h", renew_until="90d")
        return launch(self.session, prepare(self.session, asked), wait=False).machine

    def left(self, usd):
        if self.kind == "vast":
            self.cloud.deposit += Decimal(usd) - self.cloud.credit()
        else:
            self.cloud.model.balance = Fraction(usd)

    def row(self, machine):
        return self.session.ledger.machine(machine.id)

    def extend(self, machine, hours):
        return extend(self.session, plan_extension(self.session, self.row(machine), hours * HOUR))

    def closed(self):
        """Let the key have no right to read what is left."""
        self.cloud.faults.add(READS[self.kind], error="forbidden", status=403, times=FOREVER)


@pytest.fixture(params=["runpod", "vast"])
def paid(request, tmp_path):
    home = tmp_path / "paid"
    home.mkdir(mode=0o700)
    return Paid(home, request.getfixturevalue(request.param), request.param)


def test_an_extension_that_the_credit_does_not_carry_is_refused_and_moves_nothing(paid):
    machine = paid.up()
    paid.left(30)
    with pytest.raises(BudgetRefused) as refused:
        paid.extend(machine, 40)
    error = refused.value
    assert (error.exit_code, error.field, error.value) == (3, "credit", paid.kind)
    assert "covers bear and what runs there for" in error.message
    assert "of its new lease: $" in error.message
    assert PAGES[paid.kind] in error.next
    assert "extend it by less" in error.next
    assert paid.row(machine).expires == machine.expires
    longer = paid.extend(machine, 1)
    assert from_iso(longer.expires) - from_iso(machine.expires) == HOUR
    paid.left(1000)
    assert from_iso(paid.extend(machine, 40).expires) - from_iso(longer.expires) == 40 * HOUR


def test_a_hold_beyond_the_lease_is_held_against_the_credit_and_its_release_is_not(paid):
    machine = paid.up()
    now = paid.session.clock()
    paid.left(30)
    with pytest.raises(BudgetRefused, match="of its hold"):
        set_hold(paid.session, machine, now + 40 * HOUR)
    assert paid.row(machine).hold_until is None
    set_hold(paid.session, machine, now + 5 * HOUR)
    paid.left(1)
    set_hold(paid.session, machine, now + 3 * HOUR)  # its lease is longer than that
    set_hold(paid.session, machine, None)
    assert paid.row(machine).hold_until is None


def test_credit_that_cannot_be_read_refuses_no_extension_and_that_is_said(paid):
    machine, told = paid.up(), []
    paid.session.report = told.append
    paid.closed()
    longer = paid.extend(machine, 40)
    assert from_iso(longer.expires) - from_iso(machine.expires) == 40 * HOUR
    (line,) = [one for one in told if "credit" in one]
    assert f"the credit of account {paid.kind} could not be read, so whether it is enough is not known" in line


def test_cost_says_what_a_run_last_read_and_how_long_it_lasts_as_things_stand(paid):
    machine = paid.up()
    assert cost_document(paid.session)["prepaid"] == []  # no run has read it yet
    paid.left(60)
    reap(paid.session, ReapOptions())
    paid.cloud.advance(3600)
    asked = len(paid.cloud.calls)
    document = cost_document(paid.session)
    assert len(paid.cloud.calls) == asked
    (one,) = document["prepaid"]
    hourly, left = Decimal(one["usd_per_hour"]), Decimal(one["left_usd"])
    assert (one["account"], one["provider"]) == (paid.kind, paid.kind)
    assert abs(left - 60) < Decimal("0.01")
    assert abs(hourly - Decimal(document["burn"]["usd_per_hour"])) < Decimal("0.001")
    ends = (from_iso(one["ends_at"]) - paid.session.clock()).total_seconds() / 3600
    assert ends == pytest.approx(float(left / hourly) - 1, abs=0.01)
    said = " ".join(cost_text(document, None).split())
    assert f"Credit of {paid.kind}: $60.00 (1h ago); at $" in said
    assert "and its data is deleted then." in said
    assert [
        one for one in report_document(paid.session)["summary"] if f"The credit of {paid.kind} was $60.00 at " in one
    ]
    paid.cloud.dwell(ending=0)
    terminate_one(paid.session, paid.row(machine), why="a test")
    (over,) = cost_document(paid.session)["prepaid"]
    assert (Decimal(over["usd_per_hour"]), over["ends_at"]) == (0, None)  # nothing burns it any more
    assert f"Credit of {paid.kind}: $60.00 (" in cost_text(cost_document(paid.session), None)
