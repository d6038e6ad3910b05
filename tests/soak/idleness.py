"""A made-up lab whose machines are used by people: the truth about their use, and agents that see it or do not.

Clouds are cloudgpu's fake one, the ledger is real, and the clock is moved by hand. What a machine's agent would answer
over SSH is made here of what people did at it, minute by minute; whoever judges a pass compares with the same truth.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cloudgpu.control.inputs.launch_request import UpRequest
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.core.activity.report import Report
from cloudgpu.core.model.instances import State
from cloudgpu.core.model.offers import Market, Requirements
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.testing import FakeProvider

MINUTE = timedelta(minutes=1)
TEN = timedelta(minutes=10)
BACK = 90  # minutes of samples that an agent answers with: more than any window here
START = datetime(2026, 10, 23, 9, 0, tzinfo=UTC)  # two days before Paris sets its clocks back


@dataclass
class Box:
    """A machine and the truth about it. `used` are spans in which somebody was at it; `by` is how it shows."""

    id: str
    name: str
    account: str
    provider_id: str
    by: str
    up: datetime
    used: list[tuple[datetime, datetime]] = field(default_factory=list)
    deaf: list[tuple[datetime, datetime | None]] = field(default_factory=list)  # when its agent did not run
    skew: float = 0.0  # seconds that its clock is ahead of the truth
    blind: bool = False  # its GPU cannot be read
    scratch: bool = False  # something lies on a disk that a stop erases
    over: bool = False  # its people are done with it

    def last_used(self, now: datetime) -> datetime:
        """Return the last moment of use at or before `now`; a start counts as one."""
        return max([self.up, *(min(end, now) for begin, end in self.used if begin <= now)])

    def is_used(self, begin: datetime, end: datetime) -> bool:
        """Say whether anybody was at it within a span."""
        return any(first < end and last > begin for first, last in self.used)

    def lives(self, at: datetime) -> bool:
        """Say whether its agent runs."""
        return not any(begin <= at and (end is None or at < end) for begin, end in self.deaf)

    def samples(self, now: datetime) -> tuple[dict, ...]:
        """Return what its agent wrote down, a bucket for each minute that it ran."""
        first = max(self.up, now - BACK * MINUTE)
        count = (now - first) // MINUTE
        found = []
        for number in range(count + 1):
            end = now - (count - number) * MINUTE
            if self.lives(end) and end > self.up:
                found.append(self._sample(end))
        return tuple(found)

    def _sample(self, end: datetime) -> dict:
        busy = self.is_used(end - MINUTE, end)
        sample = {"t": end.timestamp() + self.skew, "s": 60.0, "gpu": 0.0, "cpu": 0.02, "net": 200.0, "disk": 0.0}
        if busy and self.by == "typing":
            sample["in"] = 5.0
        elif busy:
            sample["gpu"] = 70.0
        if self.blind:
            sample["gpu"] = None
        return sample


class StormyCloud(FakeProvider):
    """The fake cloud, of which calls fail as `weather` says: it is given each method and returns an error or None."""

    weather = staticmethod(lambda _method: None)

    def _run_hook(self, method):
        super()._run_hook(method)
        fault = self.weather(method)
        if fault is not None:
            raise fault


class World:
    """Clouds, machines, their people, and whoever runs passes. `probe` stands in for SSH, and for nothing else."""

    def __init__(self, home, accounts=("red", "green", "blue"), start=START):
        self.now = start
        self.hurry = timedelta(0)  # how wrong the clock of whoever runs passes is
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        text = "".join(f'[accounts.{name}]\nprovider = "fake"\n' for name in accounts)
        (home / "config.toml").write_text(f'provider = "fake"\ntz = "Europe/Paris"\naddress_services = []\n{text}')
        self.session = self.opened()
        self.clouds = {name: self._cloud(name) for name in accounts}
        self.session._providers.update(self.clouds)
        self.boxes: dict[str, Box] = {}
        self.unheard: set[str] = set()  # machines whose SSH does not answer now

    def clock(self):
        """Return what whoever runs passes believes."""
        return self.now + self.hurry

    def truth(self):
        return self.now

    def pause(self, seconds):
        self.now += timedelta(seconds=seconds)

    def opened(self):
        """Return the session of a new process."""
        session = open_session({"CLOUDGPU_HOME": str(self.home), "USER": "ada"}, clock=self.clock)
        session.pause = self.pause
        session._providers.update(getattr(self, "clouds", {}))
        return session

    def _cloud(self, name):
        made = ProviderSettings(name, {}, self.home / name, self.truth, self.pause, self.session.ledger.id)
        return StormyCloud(made)

    # --- people -----------------------------------------------------------------------------------------------------

    def launch(self, name, account, *, policy="default", by="gpu", spot=False, **more):
        """Launch a machine and return its box."""
        market = Market.SPOT if spot else Market.ON_DEMAND
        want = Requirements(gpu="v100", market=market)
        wish = UpRequest(want, spot=spot, account=account, name=name, template="bare", policy=policy, **more)
        row = launch(self.session, prepare(self.session, wish), wait=False).machine
        box = Box(row.id, name, account, row.provider_id, by, self.now)
        self.boxes[row.id] = box
        return box

    def living(self):
        """Return the boxes that are not over for good."""
        return [box for box in self.boxes.values() if not box.over]

    def use(self, box, minutes):
        """Let somebody be at it from now on, for so long."""
        box.used.append((self.now, self.now + minutes * MINUTE))

    # --- the machines' side -----------------------------------------------------------------------------------------

    def instance(self, box):
        """Return the machine as its cloud has it, whatever anybody believes; None for one that is gone."""
        cloud = self.clouds[box.account]
        with cloud._store.open() as known:
            machine = known.machines.get(box.provider_id)
            return None if machine is None else cloud._as_instance(machine)

    def instance_wish(self, box):
        """Return the state that somebody asked for, None where its cloud ended it by itself."""
        with self.clouds[box.account]._store.open() as known:
            machine = known.machines.get(box.provider_id)
            return None if machine is None or machine.requested is State.RUNNING else machine.requested

    def runs(self, box):
        found = self.instance(box)
        return found is not None and found.state is State.RUNNING

    def write_words(self):
        """Let every agent that lives and saw use write its word where it can be read without SSH."""
        for box in self.living():
            last = box.last_used(self.now)
            if box.lives(self.now) and self.now - last < TEN and self.runs(box):
                with suppress(CloudgpuError):
                    word = last + timedelta(seconds=box.skew)
                    self.clouds[box.account].report_activity(box.provider_id, word)

    def probe(self, _session, rows, **_options):
        """Answer as the agents of these machines would."""
        return {row.id: self._report(row.id) for row in rows}

    def _report(self, machine):
        box, now = self.boxes[machine], self.now
        if not self.runs(box) or not box.lives(now) or machine in self.unheard:
            return Report(machine, self.clock(), None, f"{box.name} does not answer")
        skewed = now.timestamp() + box.skew
        up = box.up.timestamp() + box.skew
        lies = (("/mnt/scratch", 5_000_000_000),) if box.scratch else ()
        return Report(machine, self.clock(), {"now": skewed}, "", box.samples(now), skewed, up, lies)

    # --- passes -----------------------------------------------------------------------------------------------------

    def reap(self, **more):
        """Make one pass, with these agents behind its questions."""
        with self.answering():
            return reap(self.session, ReapOptions(cron=True, **more))

    @contextmanager
    def answering(self):
        """Let these agents answer whoever asks over SSH."""
        from cloudgpu.control.reaper import observe as reap_seen

        kept, reap_seen.probe = reap_seen.probe, self.probe
        try:
            yield
        finally:
            reap_seen.probe = kept

    def rows(self):
        return {row.id: row for row in self.session.ledger.machines()}

    def reasons(self, machine):
        """Return (when, kind, why) of what was asked to end it, from its lines."""
        kinds = ("stop_requested", "park_requested", "terminate_requested")
        lines = self.session.ledger.events(machine)
        return [(from_iso(one.occurred_at), one.kind, one.body["why"]) for one in lines if one.kind in kinds]
