"""Three months of a small lab, on a clock that a test moves: four machines on three made-up clouds, and a desktop.

The clouds are those of `tests/soak/world.py`; what machines cost there is made up, what disks and addresses cost is the
embedded catalogue's. Samples are written as the agents would have said them.

    2026-08-03 09:00  fox, V100 at AWS for vision; works until 08-04 03:48, is left alone, is stopped at 09:00
    2026-08-12 12:00  owl, a spot A100 at Google for language; works until 08-13 10:54, somebody types until 11:30;
                      dearer from midnight on; Google takes it at 12:00, its disk stays until it is ended on 08-23 12:00
    2026-08-20 09:00  desk, the user's own machine, for vision; works until 17:00 with 300 W, is ended at 19:00
    2026-09-01 08:00  fox is started for ten hours and not used: the pass of 18:00 stops it at its lease's end
    2026-09-10 06:00  elk, V100 at Azure for vision; its agent is dead; ended on 09-12 03:48
    2026-10-27 00:00  yak, V100 at AWS for nobody's project; works from 9 to 15 each day, somebody types until 16
    2026-10-31 12:00  the report is asked for
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import cloudgpu
from cloudgpu.core.model.instances import State
from cloudgpu.ledger.samples.store import SampleStore
from cloudgpu.providers.abilities import Resolved
from tests.soak.world import HOUR, MINUTE, Shop, Sim

AWS = Shop(
    "aws",
    "us-east-1",
    {"p3.2xlarge": ("v100", "3.06")},
    ("gp3", 93, "0.08", False),  # 93 GB at 8 cents: a cent an hour in a month of 31 days
    ("public_ipv4", "0.005"),
    ("ebs_snapshot", "0.05"),
    State.STOPPED,
    MINUTE,
    HOUR,
)
GOOGLE = Shop(
    "gcp",
    "us-central1",
    {"a2-highgpu-1g": ("a100", "3.60")},
    ("pd-balanced", 372, "0.1", False),  # 372 GB at 10 cents: 5 cents an hour in a month of 31 days
    None,
    ("snapshot(standard)", "0.05"),
    State.STOPPED,
    MINUTE,
    MINUTE,
)
AZURE = Shop(
    "azure",
    "eastus",
    {"NC6s_v3": ("v100", "3.06")},
    ("P10 128 GiB", 128, "19.71", True),  # 2.7375 cents an hour in September, 2.7 in a month of 730 hours
    None,
    ("snapshot", "0.05"),
    State.DEALLOCATED,
)
DESK = Shop("ssh", "home", {"desk": ("rtx3090", "0")}, ("", 0, "0", True), None, ("", "0"), State.STOPPED)
ACCOUNTS = {"aws": AWS, "gcp": GOOGLE, "azure": AZURE, "desk": DESK}
CONFIG = """
provider = "aws"
owner = "ada"
address_services = []
desktop = "lab"
""" + "".join(f'[accounts.{name}]\nprovider = "{shop.kind}"\n' for name, shop in ACCOUNTS.items())
DESKTOP = """
gpu: RTX 3090
purchase_usd: 400
gpu_watts: 350
system_watts: 100
idle_watts: 50
usd_per_kwh: 0.20
life_years: 4
source: what this lab paid for a used one
as_of: "2026-07-01"
"""
POLICY = """
lease: 8h
renew_until: 30d
idle: {do: off}
unknown: end
"""
BUSY = {"gpu": 97.0, "cpu": 1.0}
TYPED = {"gpu": 0.0, "cpu": 0.01, "in": 5.0}
QUIET = {"gpu": 0.0, "cpu": 0.01}


class Cloud(Sim):
    """A made-up cloud that always has capacity, where nothing fails and no timer ends anything: passes alone do."""

    def __init__(self, shop, account, clock):
        super().__init__(shop, account, clock, self, lambda: None)

    def random(self):
        return 1.0

    def settle(self):
        pass


class Home(Cloud):
    """The user's own machines: nobody sends a bill for them."""

    def resolve(self, request, item):
        return Resolved({})


class Story:
    """The lab, its clock and its home; `gpu` is the library's face, by which all of it is done."""

    def __init__(self, home, more=""):
        self.now = datetime(2026, 8, 1, tzinfo=UTC)
        (home / "desktops").mkdir(parents=True)
        (home / "policies").mkdir()
        (home / "config.toml").write_text(CONFIG + more)
        (home / "desktops" / "lab.yaml").write_text(DESKTOP)
        (home / "policies" / "story.yaml").write_text(POLICY)
        self.gpu = cloudgpu.connect(home=home, clock=self.clock)
        self.session = self.gpu._session
        self.session.pause = self.advance
        self.clouds = {
            name: (Home if shop is DESK else Cloud)(shop, name, self.clock) for name, shop in ACCOUNTS.items()
        }
        self.session._providers.update(self.clouds)

    def clock(self):
        return self.now

    def advance(self, seconds):
        self.now += timedelta(seconds=seconds)

    def at(self, text):
        """Let time go by up to then."""
        then = datetime.fromisoformat(f"{text}+00:00")
        assert then >= self.now
        self.now = then

    def up(self, name, gpu, account, project=None, *, lease="30d", **more):
        asked = {"account": account, "gpu": gpu, "name": name, "project": project, "lease": lease} | more
        made = self.gpu.machines.up(wait=False, template="bare", policy="story", renew_until="30d", **asked)
        assert made["machine"]["state"] == "running"

    def worked(self, name, *parts):
        """Keep what the agent said up to now."""
        said(self.session, self.now, name, *parts)

    def lines(self, kind):
        """Return the ledger's lines of a kind, as (machine's name, when)."""
        names = {row.id: row.name for row in self.session.ledger.billable_machines()}
        found = self.session.ledger.events()
        return [(names[one.subject], one.occurred_at[:16]) for one in found if one.kind == kind]


def said(session, now, name, *parts):
    """Keep what a machine's agent said up to now: (sample, minutes) one after the other, and what else was in each."""
    row = session.find(name, ended=True)
    at = now.timestamp() - sum(minutes for _, minutes, *_ in parts) * MINUTE
    samples = []
    for sample, minutes, *more in parts:
        for _ in range(minutes):
            at += MINUTE
            samples.append(
                {"t": at, "s": 60.0, "net": 0.0, "disk": 0.0, "busy": [], "fault": ""} | sample | dict(*more)
            )
    assert SampleStore(session.home.samples, row.id).keep(samples, at + MINUTE, now) == len(samples)


def lived(story):
    """Live through the three months."""
    gpu = story.gpu
    gpu.money.set_budget("lab", "400", "month", action="notify")
    story.at("2026-08-03T09:00")
    story.up("fox", "v100", "aws", "vision", lease="3d")
    story.at("2026-08-04T09:00")
    story.worked("fox", (BUSY, 18 * 60 + 48), (QUIET, 5 * 60 + 12))
    gpu.machines.stop("fox")

    story.clouds["gcp"].spot["a2-highgpu-1g"].append((story.now, Fraction("1.08")))
    story.at("2026-08-12T12:00")
    story.up("owl", "a100", "gcp", "language", spot=True)
    story.at("2026-08-13T00:00")
    story.clouds["gcp"].spot["a2-highgpu-1g"].append((story.now, Fraction("1.44")))
    story.at("2026-08-13T12:00")
    story.worked("owl", (BUSY, 22 * 60 + 54), (TYPED, 36), (QUIET, 30))
    (box,) = story.clouds["gcp"].boxes.values()
    story.clouds["gcp"].take(box)
    gpu.machines.ls(refresh=True)

    story.at("2026-08-20T09:00")
    story.up("desk", "rtx3090", "desk", "vision")
    story.at("2026-08-20T19:00")
    story.worked("desk", (BUSY, 8 * 60, {"power": 300.0}), (QUIET, 2 * 60, {"power": 0.0}))
    gpu.machines.down("desk")
    story.at("2026-08-23T12:00")
    gpu.machines.down("owl")

    story.at("2026-09-01T08:00")
    gpu.machines.start("fox", lease="10h", renew_until="24h", wait=False)
    for time in ("17:40", "17:50", "18:00"):
        story.at(f"2026-09-01T{time}")
        gpu.automation.reap()
    story.worked("fox", (QUIET, 10 * 60))

    story.at("2026-09-10T06:00")
    story.up("elk", "v100", "azure", "vision")
    story.at("2026-09-12T03:48")
    gpu.machines.down("elk")

    story.at("2026-10-27T00:00")
    story.up("yak", "v100", "aws")
    for day in (27, 28, 29, 30):
        story.at(f"2026-10-{day + 1}T00:00")
        story.worked("yak", (QUIET, 9 * 60), (BUSY, 6 * 60), (TYPED, 60), (QUIET, 8 * 60))
    story.at("2026-10-31T12:00")
    story.worked("yak", (QUIET, 9 * 60), (BUSY, 3 * 60))
    gpu.automation.reap()
    return story
