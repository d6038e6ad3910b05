"""The lab of `idleness.py` as a machine of random steps: what happens, and what must hold whatever happens."""

from __future__ import annotations

import itertools
from contextlib import suppress
from datetime import datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule

from cloudgpu.control.budgets.commands import BudgetOptions, set_budget_document
from cloudgpu.control.launch.restore import start_machine
from cloudgpu.control.lifecycle.lease import extend, plan_extension, set_hold
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.core.billing.charges import charge, money
from cloudgpu.core.model.instances import TAG_RENEW_UNTIL, State
from cloudgpu.core.values.times import from_epoch, from_iso
from cloudgpu.errors import CloudgpuError, ProviderUnavailable, RateLimited
from tests.soak.idleness import MINUTE, TEN, World

AFTER = {"default": 60, "nightly": 60, "training": 30}  # minutes of the shipped policies
UPTIME = {"default": 30, "nightly": 30, "training": 60}
GRACE, INTERVAL, SLACK = 10, 10, 3  # minutes; samples are a minute long, and looks come between them
PARIS = ZoneInfo("Europe/Paris")
REGIONS = ("us-east", "eu-west")
CALLS = ("list", "get", "get_many", "stop", "stop_many", "tag", "resources", "prices", "terminate_keeping_disk")


class Lab(RuleBasedStateMachine):
    """People, agents, clouds and passes in any order."""

    boxes = Bundle("boxes")

    @initialize(
        target=boxes,
        kinds=st.lists(
            st.tuples(
                st.sampled_from(sorted(AFTER)), st.sampled_from(["gpu", "typing"]), st.booleans(), st.integers(0, 90)
            ),
            min_size=3,
            max_size=5,
        ),
    )
    def opened(self, kinds):
        memory = Path("/dev/shm")
        self.directory = TemporaryDirectory(dir=memory if memory.is_dir() else None)
        self.world = World(Path(self.directory.name) / "home")
        self.policies, self.holds = {}, {}
        self.wrong_until = {}  # by machine, and "" for all: until when something kept passes from knowing or acting
        self.hidden, self.asked_to_stop = set(), set()
        self.budget = None
        self.storm = None
        for cloud in self.world.clouds.values():
            cloud.weather = self.weather
        accounts = itertools.cycle(self.world.clouds)
        made = [self.somebody_launches(account, *kind) for account, kind in zip(accounts, kinds, strict=False)]
        return multiple(*made)

    def teardown(self):
        if hasattr(self, "world"):
            try:
                self.heal_and_converge()
                self.check_the_ledger()
            finally:
                self.world.session.ledger.close()
                self.directory.cleanup()

    # --- what happens -----------------------------------------------------------------------------------------------

    @rule(
        target=boxes,
        account=st.sampled_from(["red", "green", "blue"]),
        policy=st.sampled_from(sorted(AFTER)),
        by=st.sampled_from(["gpu", "typing"]),
        spot=st.booleans(),
        minutes=st.integers(0, 90),
    )
    def somebody_launches_one(self, account, policy, by, spot, minutes):
        return self.somebody_launches(account, policy, by, spot, minutes)

    def somebody_launches(self, account, policy, by, spot, minutes):
        name = f"m{len(self.world.boxes)}"
        with suppress(CloudgpuError):
            box = self.world.launch(name, account, policy=policy, by=by, spot=spot)
            box.skew = (0, -90, 120)[len(self.world.boxes) % 3]
            self.policies[box.id] = policy
            self.world.use(box, minutes)
            return box
        return None

    @rule(box=boxes, minutes=st.integers(1, 240))
    def somebody_works(self, box, minutes):
        if box and self.world.runs(box):
            self.world.use(box, minutes)

    @rule(box=boxes)
    def an_agent_dies_or_comes_back(self, box):
        if box and box.lives(self.world.now):
            box.deaf.append((self.world.now, None))
        elif box:
            box.deaf[-1] = (box.deaf[-1][0], self.world.now)
            self.wrong(box.id, self.world.now)

    @rule(box=boxes, blind=st.booleans())
    def a_gpu_cannot_be_read(self, box, blind):
        if box and box.blind != blind:
            box.blind = blind
            self.wrong(box.id, self.world.now)

    @rule(box=boxes)
    def a_scratch_disk_fills_or_is_emptied(self, box):
        if box:
            box.scratch = not box.scratch
            self.wrong(box.id, self.world.now - AFTER[self.policies[box.id]] * MINUTE)

    @rule(usd=st.sampled_from(["0.50", "3", "40"]))
    def somebody_sets_a_budget(self, usd):
        self.world.now += timedelta(seconds=1)
        set_budget_document(
            self.world.session, BudgetOptions("lab", usd, "total", action="notify,stop"), overwrite=True
        )
        self.budget = usd

    @rule(box=boxes, hours=st.integers(1, 12), releases=st.booleans())
    def somebody_holds(self, box, hours, releases):
        self.world.now += timedelta(seconds=1)  # nobody says two things in one moment
        if box and releases and box.id in self.holds:
            self.somebody_releases(box)
        elif box:
            until = (self.world.clock() + timedelta(hours=hours)).replace(microsecond=0)
            with suppress(CloudgpuError):
                set_hold(self.world.session, self.machine(box), until)
                self.holds[box.id] = until

    def somebody_releases(self, box):
        with suppress(CloudgpuError):
            set_hold(self.world.session, self.machine(box), None)
            del self.holds[box.id]
            self.wrong(box.id, self.world.now - AFTER[self.policies[box.id]] * MINUTE)

    @rule(box=boxes, hours=st.integers(1, 30))
    def somebody_extends(self, box, hours):
        if box:
            with suppress(CloudgpuError):
                extend(
                    self.world.session, plan_extension(self.world.session, self.machine(box), timedelta(hours=hours))
                )

    @rule(box=boxes)
    def somebody_stops_or_starts(self, box):
        if box and self.world.runs(box):
            self.asked_to_stop.add(box.id)
            with suppress(CloudgpuError):
                stop(self.world.session, self.machine(box), why="asked")
        elif box:
            self.asked_to_stop.discard(box.id)
            with suppress(CloudgpuError):
                row = start_machine(self.world.session, self.machine(box), None, wait=False)
                row = self.world.rows()[box.id]
                if box.provider_id != row.provider_id or self.world.runs(box):
                    box.provider_id, box.up = row.provider_id, self.world.now

    @rule(region=st.sampled_from(REGIONS), account=st.sampled_from(["red", "green", "blue"]))
    def a_region_falls_silent_or_speaks(self, region, account):
        cloud = self.world.clouds[account]
        if (account, region) in self.hidden:
            self.hidden.discard((account, region))
            cloud.show(region)
            self.wrong("", self.world.now)
        else:
            self.hidden.add((account, region))
            cloud.hide(region)

    @rule(calls=st.sets(st.sampled_from(CALLS), min_size=1, max_size=3), minutes=st.integers(5, 60), kind=st.booleans())
    def calls_fail(self, calls, minutes, kind):
        self.storm = (calls, self.world.now + minutes * MINUTE, RateLimited if kind else ProviderUnavailable)
        self.wrong("", self.storm[1])

    def weather(self, method):
        if self.storm is None or self.world.now >= self.storm[1] or method not in self.storm[0]:
            return None
        return self.storm[2]("the test's storm", next="wait")

    @rule(jump=st.sampled_from([-60, 60]))
    def the_clock_of_the_passes_jumps_by_an_hour(self, jump):
        self.world.hurry = timedelta(0) if self.world.hurry else jump * MINUTE
        self.wrong("", self.world.now + 70 * MINUTE)

    @rule(passes=st.integers(1, 6))
    def some_passes_come(self, passes):
        self.passes_come(passes)

    @rule(passes=st.integers(6, 20))
    def passes_come(self, passes):
        for _ in range(passes):
            self.go(TEN)
            self.passed()

    @rule(minutes=st.integers(1, 20))
    def a_moment_passes(self, minutes):
        self.go(minutes * MINUTE)
        self.wrong("", self.world.now)
        self.passed()

    @rule(hours=st.sampled_from([1, 2, 3, 12, 60]))
    def nobody_makes_passes(self, hours):
        for _ in range(hours):
            self.go(60 * MINUTE)
        self.wrong("", self.world.now)

    # --- what must hold ---------------------------------------------------------------------------------------------

    def go(self, span):
        """Let time pass; agents write their words on the way."""
        self.world.now += span
        self.world.write_words()
        for box in self.world.boxes.values():
            found = self.world.instance(box)
            if found is not None and found.state is State.RUNNING:
                end = from_epoch(found.tags[TAG_RENEW_UNTIL])
                assert self.world.now < end, f"{box.name} runs past the timer of its cloud"

    def passed(self):
        """Make a pass, and check what it ended and what it left."""
        world = self.world
        before = {box.id for box in world.boxes.values() if world.runs(box)}
        known = {machine: len(world.reasons(machine)) for machine in before}
        begun = world.now
        found = world.reap()
        for box in world.boxes.values():
            if box.id in before and not world.runs(box) and world.instance_wish(box) is not None:
                self.check_end(box, known[box.id], begun)
            elif box.id in before and world.runs(box):
                self.check_bound(box, found)

    def check_end(self, box, known, begun):
        row, new = self.world.rows()[box.id], self.world.reasons(box.id)[known:]
        assert new, f"{box.name} was ended without a reason in the ledger"
        assert all(why for _, _, why in new)
        by, now = row.decision.rule, self.world.clock()
        assert row.decision.do in ("stop", "park", "terminate"), row.decision
        policy = self.policies[box.id]
        window = AFTER[policy] * MINUTE
        used = box.is_used(begun - window + 2 * MINUTE, begun - MINUTE) or begun - box.up < window - 2 * MINUTE
        if by == "idle":
            assert not used, f"{box.name} was ended while it was used"
            assert box.lives(begun), f"{box.name} was ended and nobody knew"
            assert not box.blind or not self.blind_long(box, begun)
            assert not self.is_held(box, now), f"{box.name} was ended and is held"
            assert not box.scratch, f"{box.name} was ended with something on its scratch disk"
            assert (box.account, row.region) not in self.hidden
        elif by == "lease":
            assert from_iso(row.expires) <= now
            assert not self.is_held(box, now)
            assert not used, f"{box.name} was ended by its lease while it was used"
            assert box.lives(begun)
        elif by == "renew-until":
            assert from_iso(row.renew_until) <= now
        elif by == "schedule":
            assert policy == "nightly"
            assert any(box.up < off <= now for off in offs(box.up, now)), f"{box.name} was ended at no off time"
        elif by == "budget":
            assert self.budget is not None
            spent = sum(counted(row, now).dollars for row in world_bills(self.world))
            assert spent >= Decimal(self.budget)
            held = self.is_held(box, now)
            assert not held or self.warned_of_budget(box) >= 2, f"{box.name} was held and hardly warned"
        elif by == "requested-end":
            assert box.id in self.asked_to_stop, f"{box.name} was ended though nobody had asked"
        else:
            raise AssertionError(f"{box.name} was ended by {by}")

    def warned_of_budget(self, box):
        lines = self.world.session.ledger.events(box.id)
        return sum(one.kind == "warning_sent" and one.body["rule"] == "budget" for one in lines)

    def blind_long(self, box, now):
        return now - self.wrong_until.get(box.id, box.up) > 7 * MINUTE

    def is_held(self, box, now):
        return box.id in self.holds and self.holds[box.id] > now

    def was_held(self, box):
        """Say whether its hold ends just now, or ended so lately that its warning may not be over."""
        if box.id not in self.holds:
            return False
        late = (GRACE + 2 * INTERVAL + SLACK) * MINUTE
        return self.holds[box.id] - MINUTE <= self.world.clock() < self.holds[box.id] + late

    def check_bound(self, box, found):
        """Check that nobody pays for it longer than its policy, one interval and the grace."""
        now, policy = self.world.now, self.policies[box.id]
        row = self.world.rows()[box.id]
        silent = (box.account, row.region) in self.hidden
        if self.is_held(box, self.world.clock()) or box.scratch:  # its samples go on meanwhile
            self.wrong(box.id, now - AFTER[policy] * MINUTE)
        if not box.lives(now) or box.blind or silent:
            self.wrong(box.id, now)
        after = AFTER[policy] * MINUTE
        wrong = max(self.wrong_until.get("", box.up), self.wrong_until.get(box.id, box.up))
        idle_from = max(box.last_used(now) + after, box.up + max(after, UPTIME[policy] * MINUTE), wrong + after)
        behind = max(timedelta(0), -self.world.hurry)  # a clock that is wrong for good makes words look younger
        late = now - idle_from - (GRACE + INTERVAL + SLACK) * MINUTE - timedelta(seconds=max(0, box.skew)) - behind
        assert late <= timedelta(0), f"{box.name} is billed idle {late} too long: {row.decision}"

    def heal_and_converge(self):
        """Let every fault heal and nobody do anything: passes end what is idle, and then have nothing to do."""
        world = self.world
        self.storm, world.hurry = None, timedelta(0)
        for account, region in self.hidden:
            world.clouds[account].show(region)
        self.hidden.clear()
        for box in world.boxes.values():
            box.used = [(begin, min(end, world.now)) for begin, end in box.used if begin < world.now]
            box.blind = box.scratch = False
            if not box.lives(world.now):
                box.deaf[-1] = (box.deaf[-1][0], world.now)
            self.wrong(box.id, world.now)
        self.wrong("", world.now + (70 * MINUTE))
        for _ in range(30):
            self.go(TEN)
            self.passed()
        while any(self.was_held(box) for box in world.boxes.values() if world.runs(box)):
            self.go(TEN)
            self.passed()
        running = [box for box in world.boxes.values() if world.runs(box) and not self.is_held(box, world.clock())]
        left = {box.name: (world.rows()[box.id].decision, box) for box in running}
        last = world.reap()
        assert set(last.decided) <= {"keep"}, last.decided
        assert (last.exit_code, last.ended, last.warned, last.unconfirmed) == (0, (), (), ())
        assert not left, f"{left} still run"

    def check_the_ledger(self):
        assert self.world.session.ledger.verify().faults == ()
        for box in self.world.boxes.values():
            found, row = self.world.instance(box), self.world.rows()[box.id]
            assert row.billed == (found is not None and found.billed), box.name

    def machine(self, box):
        return self.world.rows()[box.id]

    def wrong(self, machine, until):
        self.wrong_until[machine] = max(until, self.wrong_until.get(machine, until))


def counted(row, now):
    """Return what a budget counts for a row at the most: what may have been used, and spot at its on-demand price."""
    ended = sum(max(high, on_demand) for _, _, high, on_demand, *_ in row.usage_totals.values())
    running = (charge(use, now) for use in row.open_usage)
    return money(ended + sum(max(one.high, one.list_cost or 0) for one in running))


def world_bills(world):
    """Return the rows of everything that has cost something."""
    return world.session.ledger.billable_machines()


def offs(begin: datetime, end: datetime):
    """Yield seven in the evening of Paris of each day, reckoned apart from cloudgpu's own schedules."""
    day = begin.astimezone(PARIS).date() - timedelta(days=1)
    while day <= end.astimezone(PARIS).date():
        yield datetime.combine(day, time(19), PARIS)
        day += timedelta(days=1)
