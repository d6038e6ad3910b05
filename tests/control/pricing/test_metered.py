"""What an own machine's GPUs drew makes its price from then on, where the settings leave its watts to its meter."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from cloudgpu.control.alerts.alerts import deliver
from cloudgpu.control.cost.cost import cost_document
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.ledger.samples.store import SampleStore
from tests.control.conftest import Lab

MINUTE = timedelta(minutes=1)


class Own(Lab):
    """A machine of one's own with a V100 (300 W by its board), at half a dollar a kilowatt-hour; 20 cents an hour."""

    cloud_kind = "tests.control.metered:MeteredProvider"

    def draws(self, minutes, watts):
        """Live so long, while the GPU draws so much (None: nobody measured), and look at it at the end."""
        shelf, begin = SampleStore(self.session.home.samples, self.rows()[0].id), self.clock()
        self.later(minutes=minutes)
        times = [(begin + n * MINUTE).timestamp() for n in range(1, minutes + 1)]
        samples = [{"t": at, "s": 60, "cpu": 0.02, "net": 4, "disk": 0, "gpu": 97.0, "power": watts} for at in times]
        shelf.keep(samples, self.clock().timestamp() + 60, self.clock() + MINUTE)
        return self.look()

    def look(self):
        sync_all(self.session)
        price = self.rows()[0].price
        return price.nanos_per_hour / 1e9, price.basis

    def says(self, **settings):
        self.cloud.own = replace(self.cloud.own, **{name: Decimal(text) for name, text in settings.items()})

    def lines(self):
        (row,) = self.rows()
        return [one.body for one in self.session.ledger.events(row.id) if one.kind == "price_observed"]

    @property
    def usd(self):
        return Decimal(cost_document(self.session)["total"]["usd"])


@pytest.fixture
def own(tmp_path, monkeypatch):
    made = Own(tmp_path, monkeypatch)
    made.up()
    made.later(minutes=1)
    sync_all(made.session)
    return made


def test_an_hour_of_measured_power_is_the_price_from_then_on(own):
    assert own.draws(30, None) == (0.2, "assumed")
    assert own.draws(59, 212.4) == (0.2, "assumed")
    before = own.usd
    assert own.draws(1, 212.4) == (0.156, "measured")  # (212 + 100) W x 0.5 $/kWh
    (line,) = own.lines()
    assert line["price"]["source"] == (
        "your own machine's electricity: measured: 212 W on average over 1h + 100 W assumed for the rest, x 0.5 $/kWh "
        "(accounts.lab.hosts[0])"
    )
    at = own.usd
    assert at - before == Decimal("0.003333333")  # what it has cost stays as it was counted
    own.later(hours=1)
    assert own.usd - at == Decimal("0.156")
    found = cost_document(own.session)["total"]
    assert found["low_usd"] == found["usd"] == found["high_usd"]
    assert own.session.ledger.verify().faults == ()


def test_only_another_price_is_a_line_and_an_hour_has_one_at_most(own):
    own.draws(60, 212)
    assert own.draws(60, 230) == (0.156, "measured")  # 221 W on average: no tenth more
    assert own.draws(59, 600) == (0.223, "measured")  # (346 + 100) W
    assert own.draws(59, 600) == (0.223, "measured")
    assert len(own.lines()) == 2
    assert own.draws(1, 600) == (0.255, "measured")
    assert len(own.lines()) == 3
    own.look()
    assert len(own.lines()) == 3


def test_what_nobody_measured_is_not_zero_and_zero_is_measured(own):
    assert own.draws(180, None) == (0.2, "assumed")
    assert own.draws(60, 0.0) == (0.05, "measured")


def test_the_users_own_watts_win_over_the_meter_before_and_after(own):
    own.says(watts="450")
    assert own.draws(120, 212) == (0.225, "setting")
    own.cloud.own = replace(own.cloud.own, watts=None)
    assert own.draws(1, 212) == (0.156, "measured")
    own.says(watts="450")
    own.later(minutes=1)
    assert own.look() == own.look() == (0.225, "setting")
    assert [one["price"]["basis"] for one in own.lines()] == ["setting", "measured", "setting"]


def test_without_a_tariff_of_the_users_the_price_stays_assumed(own):
    own.cloud.own = replace(own.cloud.own, usd_per_kwh=None)
    assert own.draws(120, 212) == (0.048, "assumed")


def test_a_meter_in_place_of_a_usual_figure_is_no_price_that_leapt(own):
    own.draws(120, 5)
    assert own.look() == (0.0525, "measured")  # a quarter of what was assumed
    assert deliver(own.session, []).raised == ()


def test_another_run_is_measured_anew(own):
    own.draws(60, 212)
    stop(own.session, own.rows()[0], why="asked by the user")
    own.later(hours=1)
    (row,) = own.rows()
    start(own.session, row, new_lease(own.session, row, None))
    own.later(minutes=1)
    assert own.draws(59, 5) == (0.2, "assumed")
    assert own.draws(2, 5) == (0.0525, "measured")
