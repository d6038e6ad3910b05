"""What machines on one computer cost is what it was measured to draw, each its part, and never more than the whole."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from cloudgpu.control.alerts.alerts import deliver
from cloudgpu.control.cost.cost import cost_document
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.lifecycle.start import new_lease, start
from cloudgpu.control.pricing.shared_computer import may_cost_less
from cloudgpu.errors import ProviderUnavailable
from cloudgpu.ledger.samples.store import SampleStore
from tests.control.conftest import Lab
from tests.control.metered import DeskProvider
from tests.examples import some

MINUTE = timedelta(minutes=1)
MOST = Decimal("0.2")  # an hour: (300 W by the V100's board + 100 W) x 0.5 $/kWh


class Desk(Lab):
    """A computer with one V100, at half a dollar a kilowatt-hour, and the machines on it."""

    cloud_kind = "tests.control.metered:DeskProvider"

    def __init__(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", "/nowhere")  # no nvidia-smi: the board's watts are the most
        super().__init__(tmp_path, monkeypatch)

    def draws(self, minutes, *watts):
        """Live so long, while each machine's agent measures so much (None: nothing), and look."""
        begin = self.clock()
        self.later(minutes=minutes)
        for number, drawn in enumerate(watts):
            self.samples(number, begin, minutes, drawn)
        sync_all(self.session)

    def samples(self, number, begin, minutes, watts):
        times = [(begin + n * MINUTE).timestamp() for n in range(1, minutes + 1)]
        said = [{"t": at, "s": 60, "cpu": 0.02, "net": 4, "disk": 0, "gpu": 97.0, "power": watts} for at in times]
        shelf = SampleStore(self.session.home.samples, self.rows()[number].id)
        shelf.keep(said, self.clock().timestamp() + 60, self.clock())

    def lines(self, number=0):
        row = self.session.ledger.machines()[number]
        return [one for one in self.session.ledger.events(row.id) if one.kind == "price_observed"]

    @property
    def spent(self):
        return Decimal(cost_document(self.session)["total"]["usd"])


@pytest.fixture
def desk(tmp_path, monkeypatch):
    made = Desk(tmp_path, monkeypatch)
    made.up()
    return made


def test_a_span_costs_what_was_measured_over_it_and_what_comes_next_costs_the_most(desk):
    desk.draws(60, 80)
    assert desk.spent == Decimal("0.09")  # (80 + 100) W x 0.5 $/kWh
    assert (desk.rows()[0].price.nanos_per_hour, desk.rows()[0].price.basis) == (200_000_000, "assumed")
    desk.draws(60, 240)
    assert desk.spent == Decimal("0.26")  # no mean of both hours: the first stays as it was counted
    desk.later(hours=1)
    assert desk.spent == Decimal("0.46")
    assert [one.body["price"]["basis"] for one in desk.lines()] == ["measured", "assumed"] * 2
    assert desk.lines()[2].body["price"]["source"] == (
        "measured: 240 W of GPUs on average, over 1h + 100 W (default of accounts.lab.watts), x 0.5 $/kWh "
        "(accounts.lab.usd_per_kwh)"
    )
    assert desk.session.ledger.verify().faults == ()


def test_a_ledger_gets_two_lines_an_hour_at_most_and_none_for_what_is_no_news(desk):
    desk.draws(4, 0)
    assert desk.lines() == []
    for _ in range(36):
        desk.draws(5, 100)
    assert len(desk.lines()) == 2 * 5  # of the parts up to 9, 19, 39, 79 and 139 minutes
    count = len(desk.lines())
    desk.draws(240, 290)
    assert len(desk.lines()) == count  # a fortieth less than the most: nothing is written, and no more is charged
    sync_all(desk.session)
    assert len(desk.lines()) == count


def test_what_nobody_measured_costs_the_most_and_says_so_and_zero_is_measured(desk):
    desk.draws(120, None)
    assert (desk.spent, desk.lines()) == (2 * MOST, [])
    desk.draws(60, 0)
    (line, _) = desk.lines()
    assert line.body["price"]["basis"] == "assumed"
    assert "2h that nobody measured at 1 x 300 W for v100" in line.body["price"]["source"]
    assert desk.spent == 2 * MOST + Decimal("0.05")


def test_machines_on_one_computer_cost_what_the_computer_does_together(desk):
    desk.draws(30, 200)
    desk.up(new=True)
    desk.draws(60, 200, 0)
    assert desk.spent == Decimal("0.225")  # an hour and a half of 300 W
    desk.draws(60, 240, 240)  # each agent measures the whole GPU
    assert desk.spent == Decimal("0.395")
    assert "split among up to 2 machines" in desk.lines(1)[-2].body["price"]["source"]
    desk.draws(60, None, None)
    assert desk.spent == Decimal("0.595")


def test_one_whose_samples_are_not_here_is_waited_for_a_day(desk):
    desk.up(new=True)
    begin = desk.clock()
    desk.later(hours=1)
    desk.samples(0, begin, 60, 200)
    sync_all(desk.session)
    assert desk.spent == 2 * MOST
    desk.later(hours=24)
    sync_all(desk.session)
    assert desk.lines(0)
    assert desk.lines(1)


def test_the_end_of_a_run_is_written_however_short_it_was_and_another_run_costs_the_most(desk):
    desk.draws(3, 60)
    stop(desk.session, desk.rows()[0], why="asked by the user")
    assert desk.spent == MOST / 20
    sync_all(desk.session)
    assert desk.spent == MOST / 50
    count = len(desk.lines())
    desk.later(hours=1)
    sync_all(desk.session)
    assert (len(desk.lines()), desk.spent) == (count, MOST / 50)
    (row,) = desk.rows()
    start(desk.session, row, new_lease(desk.session, row, None))
    desk.later(hours=1)
    assert desk.spent == MOST / 50 + MOST


def agent_has(desk, minutes, watts, unfinished_s=0):
    """Give every agent a sample for each minute from now on, and one that is not finished; live so long."""
    begin = desk.clock()
    desk.later(minutes=minutes, seconds=unfinished_s)
    ends = [(begin + n * MINUTE).timestamp() for n in range(1, minutes + 1)]
    last = [{"t": ends[-1] + unfinished_s, "s": unfinished_s, "power": 1.0}] if unfinished_s else []
    DeskProvider.samples = [
        {"cpu": 0.02, "net": 4, "disk": 0, "gpu": 97.0, **one}
        for one in [*({"t": at, "s": 60, "power": watts} for at in ends), *last]
    ]


@pytest.fixture
def agents():
    yield
    DeskProvider.samples = []


@pytest.mark.usefixtures("agents")
def test_a_sync_fetches_the_samples_of_a_machine_in_use_that_no_run_of_reap_asks(desk):
    agent_has(desk, 60, 80)
    sync_all(desk.session)
    assert desk.spent == Decimal("0.09")  # (80 + 100) W x 0.5 $/kWh


@pytest.mark.usefixtures("agents")
@pytest.mark.parametrize("unfinished_s", [0, 30])
@pytest.mark.parametrize("end", [stop, terminate_one])
def test_the_last_samples_of_a_machine_count_though_it_has_ended(desk, end, unfinished_s):
    agent_has(desk, 20, 80, unfinished_s)
    end(desk.session, desk.rows()[0], why="asked by the user")
    sync_all(desk.session)
    assert desk.spent == round(Decimal("0.03") + MOST * unfinished_s / 3600, 9)  # an unfinished sample tells too little


@pytest.mark.usefixtures("agents")
def test_the_last_samples_of_an_interrupted_machine_count_as_its_files_are_still_there(desk):
    agent_has(desk, 20, 80)
    desk.cloud.take(desk.rows()[0].provider_id)
    sync_all(desk.session)
    assert desk.rows() == []
    assert desk.spent == Decimal("0.03")
    count = len(desk.lines())
    desk.later(hours=1)
    sync_all(desk.session)
    assert (len(desk.lines()), desk.spent) == (count, Decimal("0.03"))


@pytest.mark.usefixtures("agents")
def test_a_run_counts_as_measured_though_the_machine_was_started_again_before_anybody_looked(desk):
    agent_has(desk, 20, 80)
    stop(desk.session, desk.rows()[0], why="asked by the user")
    start(desk.session, desk.rows()[0], new_lease(desk.session, desk.rows()[0], None))
    sync_all(desk.session)
    assert desk.spent == Decimal("0.03")


@pytest.mark.usefixtures("agents")
def test_samples_that_come_late_do_not_delay_an_end(desk, monkeypatch):
    def fail(*_):
        raise ProviderUnavailable("The disk has gone.")

    monkeypatch.setattr(DeskProvider, "agent_status", fail)
    desk.later(minutes=20)
    terminate_one(desk.session, desk.rows()[0], why="asked by the user")
    sync_all(desk.session)
    assert desk.spent == round(MOST / 3, 9)


def test_a_machine_that_ended_leaves_the_rest_to_the_other_one(desk):
    desk.up(new=True)
    desk.draws(3, 100, 0)
    terminate_one(desk.session, desk.rows()[1], why="asked by the user")
    desk.draws(57, 100)
    assert desk.spent == Decimal("0.1")
    assert desk.session.ledger.machines()[1].price.nanos_per_hour == 25_000_000


def test_what_a_machine_has_cost_is_told_at_most_until_its_part_is_written(desk):
    desk.draws(60, 80)
    assert not may_cost_less(desk.session, terminate_one(desk.session, desk.rows()[0], why="asked by the user"))
    desk.up(name="elk")
    desk.later(minutes=1)
    (row,) = desk.rows()
    assert may_cost_less(desk.session, terminate_one(desk.session, row, why="asked by the user"))
    sync_all(desk.session)
    assert not may_cost_less(desk.session, desk.session.ledger.machine(row.id))


def test_a_process_that_dies_before_it_has_written_leaves_all_of_it_to_the_next(desk, monkeypatch):
    def dies(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cloudgpu.control.pricing.shared_computer.price_observed", dies)
        with pytest.raises(KeyboardInterrupt):
            desk.draws(60, 80)
    assert desk.spent == MOST
    sync_all(desk.opened())
    assert desk.spent == Decimal("0.09")


def test_a_second_process_that_saw_the_same_writes_nothing_twice(desk):
    desk.draws(60, 80)
    lines = len(desk.lines())
    sync_all(desk.opened())
    assert (len(desk.lines()), desk.spent) == (lines, Decimal("0.09"))


def test_two_processes_that_look_at_once_write_a_part_once(desk):
    def other():
        desk.later(minutes=7)
        desk.samples(0, desk.clock() - 7 * MINUTE, 7, 280)
        sync_all(desk.opened())

    DeskProvider.meanwhile.append(other)
    desk.draws(60, 80)
    assert len(desk.lines()) == 2
    desk.draws(60, 80)
    assert desk.spent == Decimal("0.202166666")  # an hour at 180 W, 7 minutes at 380 W, an hour at 180 W
    assert desk.session.ledger.verify().faults == ()


def test_a_clock_that_goes_back_changes_nothing_that_is_written(desk):
    desk.draws(60, 80)
    spent, lines = desk.spent, len(desk.lines())
    desk.clock.advance(-1800)
    sync_all(desk.session)
    assert len(desk.lines()) == lines
    desk.clock.advance(1800)
    assert desk.spent == spent


def test_a_draw_that_is_measured_in_place_of_the_most_is_no_price_that_leapt(desk):
    desk.draws(60, 5)
    assert deliver(desk.session, []).raised == ()


def test_budgets_count_the_most_though_less_was_measured(desk):
    desk.draws(60, 0)
    (found,) = desk.session.ledger.exposures()
    assert found.id == desk.rows()[0].id
    assert desk.rows()[0].price.nanos_per_hour == 200_000_000


LIVES = st.lists(
    st.tuples(st.integers(1, 90), st.sampled_from([None, 0, 40, 280]), st.sampled_from([None, 0, 40, 280])),
    min_size=1,
    max_size=6,
)


@settings(max_examples=some(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LIVES, st.booleans())
def test_spans_add_up_to_the_integral_of_what_the_computer_drew(tmp_path_factory, lives, two):
    with pytest.MonkeyPatch.context() as patch:
        desk = Desk(tmp_path_factory.mktemp("desk"), patch)
        desk.up()
        if two:
            desk.up(new=True)
        wh = Decimal(0)
        for minutes, *both in lives:
            watts = both[: 1 + two]
            drew = [one for one in watts if one]
            gpus = sum(drew) / Decimal(len(drew)) if drew else 300 * (None in watts)
            wh += Decimal(gpus + 100) * minutes / 60
            desk.draws(minutes, *watts)
        for row in desk.rows():
            terminate_one(desk.session, row, why="asked by the user")
        sync_all(desk.session)
        whole = wh / 1000 / 2
        written = [line for number in range(1 + two) for line in desk.lines(number)]
        off = whole * Decimal("0.1") + Decimal(len(written)) * Decimal("1e-9")
        assert abs(desk.spent - whole) <= off
        assert desk.session.ledger.verify().faults == ()
        desk.session.ledger.close()
