"""Half a year of 100 machines on three made-up clouds, with crashes of cloudgpu between any two writes.

The clouds keep a book of their own (`world.py`). At the end the folded ledger equals it to the cent: every machine's
charges, whole and month by month, and no budget was passed by more than its stated overshoot.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from cloudgpu.control.budgets.commands import BudgetOptions, set_budget_document
from cloudgpu.control.inputs.launch_request import UpRequest
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.launch.restore import start_machine
from cloudgpu.control.lifecycle.lifecycle import stop, terminate_one
from cloudgpu.control.outage.opening import open_session
from cloudgpu.core.billing.charges import period_charges
from cloudgpu.core.billing.rules import PARTS_PER_NANO
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.core.values.times import iso
from cloudgpu.errors import BudgetRefused, CloudgpuError
from tests.soak.striking import struck
from tests.soak.world import SHOPS, Sim

pytestmark = pytest.mark.soak
START = datetime(2026, 1, 1, tzinfo=UTC)
HALF_YEAR = timedelta(days=182)
MACHINES = 100
CENT = Fraction(1, 100)
LAB, ALPHA = 800, 150  # USD: of everything in a month, of one project in a week


class Killed(BaseException):
    """cloudgpu's process is gone, in the middle of what it did."""


class HalfYear:
    """The world, its clock, and the one user of it."""

    def __init__(self, home, seed):
        self.chance = random.Random(seed)
        self.now = START
        self.crashes, self.until_crash = 0, None
        self.home = home
        home.mkdir()
        text = "".join(f'[accounts.{shop.kind}]\nprovider = "{shop.kind}"\n' for shop in SHOPS)
        (home / "config.toml").write_text('provider = "aws"\naddress_services = []\n' + text)
        self.sims = {shop.kind: Sim(shop, shop.kind, self.clock, self.chance, self.strike) for shop in SHOPS}
        self.session = self.opened()
        self.refused = 0
        set_budget_document(self.session, BudgetOptions("lab", str(LAB), "month"), overwrite=False)
        set_budget_document(self.session, BudgetOptions("alpha", str(ALPHA), "week", "project=alpha"), overwrite=False)

    def clock(self):
        return self.now

    def advance(self, seconds):
        """Go on by whole seconds: the ends of the clouds' books are whole, too."""
        self.now += timedelta(seconds=max(1, round(seconds)))

    def strike(self):
        """Kill cloudgpu here when its time has come."""
        if self.until_crash is not None:
            self.until_crash -= 1
            if self.until_crash <= 0:
                self.until_crash = None
                self.crashes += 1
                raise Killed

    def opened(self):
        session = open_session({"CLOUDGPU_HOME": str(self.home), "USER": "ada"}, clock=self.clock)
        session.pause = self.advance
        session._providers.update(self.sims)
        return struck(session, self.strike)

    def do(self, act):
        """Let cloudgpu do something; in one of six it is killed on the way, and the next command is a new process."""
        self.until_crash = self.chance.randrange(1, 12) if self.chance.random() < 1 / 6 else None
        try:
            return act()
        except Killed:
            self.session.ledger.close()
            self.session = self.opened()
        except BudgetRefused:
            self.refused += 1
        except CloudgpuError:
            pass  # no capacity, gone meanwhile, cannot be stopped: as clouds are
        finally:
            self.until_crash = None
        return None

    def go_on(self, seconds):
        """Let time pass, with a look every six hours."""
        while seconds > 6 * 3600:
            self.advance(6 * 3600)
            seconds -= 6 * 3600
            self.look()
        self.advance(seconds)

    def look(self):
        """Look until a look was not killed: what cron does again a little later."""
        while self.do(lambda: sync_all(self.session)) is None:
            self.advance(60)


def lived(year, start):
    """One machine's life: launched, and then what happens to it at random until it is over."""
    chance, shop = year.chance, year.chance.choice(SHOPS)
    sim, spot = year.sims[shop.kind], year.chance.random() < 0.5
    name = f"m-{start}"
    want = Requirements(instance_type=chance.choice(list(shop.types)), market=Market.SPOT if spot else Market.ON_DEMAND)
    lease = timedelta(seconds=chance.randrange(600, 3 * 86400))
    wish = UpRequest(
        want,
        spot=spot,
        account=shop.kind,
        name=name,
        lease=lease,
        renew_until=lease,
        template="bare",
        project=chance.choice(["alpha", "beta"]),
    )

    def up():
        return launch(year.session, prepare(year.session, wish), wait=False)

    year.do(up)
    if chance.random() < 0.5:
        year.do(up)  # the user tries again, or asks for what is there
    for _ in range(chance.randrange(1, 7)):
        year.go_on(chance.choice([chance.randrange(1, 90), chance.randrange(60, 7200), chance.randrange(3600, 90000)]))
        if chance.random() < 0.6:
            sim.move_price(want.instance_type)
        sim.settle()
        box = next(
            (
                one
                for one in sim.boxes.values()
                if one.tags["cloudgpu-name"] == name and one.state is not State.TERMINATED
            ),
            None,
        )
        happens(year, sim, box, name, spot)
        if chance.random() < 0.7:
            year.do(lambda: sync_all(year.session))


def happens(year, sim, box, name, spot):
    chance = year.chance
    what = chance.choice(["stop", "start", "taken", "inside", "by hand", "look", "look", "down"])
    if what == "taken" and box and spot:
        sim.take(box)
    elif what == "inside" and box and not spot:
        sim.shut_down_inside(box)
        year.look()  # a stop that nobody sees before the machine ends is billed through: nobody can know of it
    elif what == "by hand" and box:
        sim.interactive(box)
    elif what == "stop":
        year.do(lambda: stop(year.session, year.session.find(name), why="the user's"))
    elif what == "start":
        year.do(lambda: start_machine(year.session, year.session.find(name), timedelta(hours=5), wait=False))
    elif what == "down":
        year.do(lambda: terminate_one(year.session, year.session.find(name), why="the user's"))


@pytest.fixture(scope="module", params=[1])
def year(request):
    """Live the half-year; in memory where there is such a file system, since thousands of looks sync as many lines."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield through(HalfYear(Path(directory) / "home", request.param))


def through(year):
    for number in range(MACHINES):
        lived(year, number)
        year.go_on((START + HALF_YEAR * (number + 1) / MACHINES - year.now).total_seconds())
    for _ in range(3):
        sync_all(year.session)
        year.advance(3600)
    return year


def charges(year, since=None, until=None):
    """Return what the ledger says each machine cost in a period, exact USD: (amount, lowest, highest) by kind."""
    ledger, found = year.session.ledger, {}
    uses = ledger.ended_usages(iso(since) if since else "")
    for item in period_charges(ledger.billable_machines(), uses, year.now, since=since, until=until):
        key = item.machine.id, item.charge.usage.resource in ("image", "snapshot")
        sums = found.setdefault(key, [Fraction(0)] * 3)
        for place, exact in enumerate((item.charge.amount, item.charge.low, item.charge.high)):
            sums[place] += Fraction(exact, PARTS_PER_NANO * 10**9)
    return found


def book(year, since, until):
    """Return what the clouds' books say each machine cost in a period, exact USD."""
    found = {}
    for sim in year.sims.values():
        for entry in sim.book:
            key = entry.owner, entry.type == "image"
            found[key] = found.get(key, Fraction(0)) + sim.cost(entry, year.now, since, until)
    return {key: usd for key, usd in found.items() if usd}


def months():
    first = START
    while first < START + HALF_YEAR + timedelta(days=62):
        following = (first + timedelta(days=32)).replace(day=1)
        yield first, following
        first = following


def weeks():
    first = START - timedelta(days=START.weekday())
    while first < START + HALF_YEAR + timedelta(days=62):
        yield first, first + timedelta(days=7)
        first += timedelta(days=7)


def agrees(ours, truth, *, image):
    amount, low, high = ours
    return low <= truth + CENT and truth <= high + CENT and (image or abs(amount - truth) < CENT)


def test_the_folded_ledger_equals_the_clouds_own_bill_to_the_cent(year):
    truth, ours = book(year, START, datetime(9000, 1, 1, tzinfo=UTC)), charges(year)
    assert year.crashes > 100
    assert len({machine for machine, _ in truth}) > MACHINES // 2
    nothing = [Fraction(0)] * 3
    wrong = {
        key: (float(ours.get(key, nothing)[0]), float(truth.get(key, 0)))
        for key in truth.keys() | ours.keys()
        if not agrees(ours.get(key, nothing), truth.get(key, Fraction(0)), image=key[1])
    }
    assert wrong == {}
    whole = sum(usd for (_, image), usd in truth.items() if not image)
    assert abs(sum(sums[0] for (_, image), sums in ours.items() if not image) - whole) < CENT


def test_every_months_bill_equals_the_clouds_own_to_the_cent(year):
    for since, until in months():
        truth, ours = book(year, since, until), charges(year, since, until)
        total = sum(usd for (_, image), usd in truth.items() if not image)
        assert abs(sum(sums[0] for (_, image), sums in ours.items() if not image) - total) < CENT, since


def test_nothing_lives_that_the_ledger_does_not_know(year):
    living = {box.id for sim in year.sims.values() for box in sim.boxes.values() if box.state is not State.TERMINATED}
    assert living == {row.provider_id for row in year.session.ledger.machines() if row.terminated_at is None}


def test_rollups_are_what_the_lines_say(year):
    before = year.session.ledger.billable_machines(), sorted(map(str, year.session.ledger.ended_usages()))
    year.session.ledger.rebuild()
    assert (year.session.ledger.billable_machines(), sorted(map(str, year.session.ledger.ended_usages()))) == before
    assert year.session.ledger.verify().faults == ()


def test_no_budget_was_passed(year):
    """Machines end at their renew-until by the clouds' timers, and that is what was admitted: there is no overshoot."""
    projects = {
        box.tags["cloudgpu-id"]: box.tags["cloudgpu-project"]
        for sim in year.sims.values()
        for box in sim.boxes.values()
    }
    assert year.refused > 10
    spent = {}
    for since, until in months():
        spent[since] = sum(book(year, since, until).values())
        assert spent[since] <= LAB, since
    for since, until in weeks():
        alpha = sum(usd for (machine, _), usd in book(year, since, until).items() if projects[machine] == "alpha")
        assert alpha <= ALPHA, since
    assert max(spent.values()) > LAB / 2  # the budget was in the way of something
