"""Three months on our models of AWS, Google Cloud and Azure, by the command line, and every figure of the report.

As `tests/control/story.py`, with the real providers, their SDKs and the embedded catalogue's prices; the models' clocks
stand still between the commands, so that the bill is exact to a nano-dollar. The user's own machine is that of there.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from types import SimpleNamespace

import pytest

from cloudgpu.cli.common import open_session
from cloudgpu.control.outage import opening as sessions
from tests.cli.line import Line, on_time_of
from tests.clouds import clock as clock_of_models
from tests.clouds.aws import model as model_of_aws
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.control.story import BUSY, DESK, POLICY, QUIET, TYPED, Home, said

__all__ = ["aws", "aws_process", "azure_arm", "azure_process", "gcp", "gcp_process"]
pytestmark = pytest.mark.soak
START = datetime(2026, 8, 1, tzinfo=UTC)
CONFIG = """
provider = "aws"
owner = "ada"
address_services = []
[accounts.aws]
regions = ["us-east-1"]
[accounts.azure]
regions = ["eastus"]
[accounts.gcp]
regions = ["us-central1"]
[accounts.desk]
provider = "ssh"
"""
OWN = "--no-wait --yes --template bare --policy story --renew-until 30d"
UP = f"--ssh-from 203.0.113.7 {OWN}"
# What the embedded catalogue has today; where a refresh changes it, the sums below change with it.
PRICES = {"fox": "3.06", "owl": "1.92802", "elk": "0.526", "yak": "3.06"}

# fox, as in tests/control/cost/test_story.py: 34 h x (3.06 + 0.005), 93 GB at $0.08 for 687 h, September and 732 h.
FOX = Decimal("125.84")
# owl, from the second after 12:00, as Google dates it, for 86,399 s x 1.92802 / 3600 = 46.271944439; its address for as
# long at 0.0025: 0.059999306; its disk, 372 GB at $0.10, 950,399 s x 0.05 / 3600 = 13.199986111.
OWL = Decimal("46.271944439") + Decimal("0.059999306") + Decimal("13.199986111")
# elk: 45.8 h x 0.526; its disk 46 started hours of September x 0.027375, or x 0.027; its static address 46 x 0.005.
ELK, ELK_LOW = Decimal("24.0908") + Decimal("1.25925") + Decimal("0.23"), Decimal("24.0908") + Decimal("1.472")
# yak: 108 h x (3.06 + 0.005 + 0.01).
YAK = Decimal("332.10")
TOTAL = FOX + OWL + ELK + YAK
# fox and yak were launched with --no-wait, and seen by nobody for more than 15 minutes after that, in which they
# may have been starting still: 2 x 0.25 h x (3.06 + 0.005).
STARTS = Decimal("1.5325")


class Clouds:
    """The three models, on one clock."""

    def __init__(self, *models):
        self.models, self.calls, self.clock = models, [], self

    def now(self):
        return self.models[-1].clock.now()

    def advance(self, seconds):
        for one in self.models:
            one.advance(seconds)

    def at(self, text):
        self.advance((datetime.fromisoformat(f"{text}+00:00") - self.now()).total_seconds())


class Months(Line):
    """The command line, and what agents say."""

    def done(self, words):
        ended = self(words)
        assert ended.code == 0, f"{words}: {ended.err}"
        return ended

    def agent(self, name, *parts):
        session = open_session()
        said(session, self.server.now(), name, *parts)
        session.ledger.close()


@pytest.fixture
def months(own_home, capsys, monkeypatch, aws, gcp, azure_arm):
    standing = SimpleNamespace(time=START.timestamp)
    for module in (clock_of_models, model_of_aws):
        monkeypatch.setattr(module, "time", standing)
    aws.model.began = START
    clouds = Clouds(aws, azure_arm, gcp)
    on_time_of(monkeypatch, clouds)
    own = Home(DESK, "desk", clouds.now)
    monkeypatch.setattr(sessions, "open_session", partial(with_own, sessions.open_session, own))
    (own_home / "policies").mkdir()
    (own_home / "policies" / "story.yaml").write_text(POLICY)
    return Months(own_home, capsys, clouds, CONFIG)


def with_own(opened, own, *args, **more):
    """Open a session that knows the user's own machine."""
    found = opened(*args, **more)
    found._providers["desk"] = own
    return found


def lived(line, gcp):
    at, done = line.server.at, line.done
    done("budget set lab --amount 400 --period month --action notify")
    at("2026-08-03T09:00")
    done(f"up --account aws --gpu v100 --name fox --project vision --disk 93 --lease 3d {UP}")
    at("2026-08-04T09:00")
    line.agent("fox", (BUSY, 18 * 60 + 48), (QUIET, 5 * 60 + 12))
    done("stop fox --yes")
    at("2026-08-12T12:00")
    done(f"up --account gcp --gpu a100 --name owl --project language --spot --disk 372 --lease 30d {UP}")
    at("2026-08-13T12:00")
    line.agent("owl", (BUSY, 22 * 60 + 54), (TYPED, 36), (QUIET, 30))
    gcp.interrupt(gcp.instances()[0])
    done("ls --refresh")
    at("2026-08-20T09:00")
    done(f"up --account desk --gpu rtx3090 --name desk --project vision --lease 30d {OWN}")
    at("2026-08-20T19:00")
    line.agent("desk", (BUSY, 8 * 60, {"power": 300.0}), (QUIET, 2 * 60, {"power": 0.0}))
    done("down desk --yes")
    at("2026-08-23T12:00")
    done("down owl --yes")
    at("2026-09-01T08:00")
    done("start fox --lease 10h --renew-until 24h --no-wait --yes")
    for time in ("17:40", "17:50", "18:00"):
        at(f"2026-09-01T{time}")
        done("reap")
    line.agent("fox", (QUIET, 10 * 60))
    at("2026-09-10T06:00")
    done(f"up --account azure --gpu t4 --name elk --project vision --lease 30d {UP}")
    at("2026-09-12T03:48")
    done("down elk --yes")
    at("2026-10-27T00:00")
    done(f"up --account aws --gpu v100 --name yak --disk 93 --lease 30d {UP}")
    for day in (28, 29, 30, 31):
        at(f"2026-10-{day}T00:00")
        line.agent("yak", (QUIET, 9 * 60), (BUSY, 6 * 60), (TYPED, 60), (QUIET, 8 * 60))
    at("2026-10-31T12:00")
    line.agent("yak", (QUIET, 9 * 60), (BUSY, 3 * 60))
    done("reap")


def test_every_figure_of_the_report_is_what_happened(months, gcp, tmp_path):
    lived(months, gcp)
    machines = {one["name"]: one for one in months.done("ls --all -o json").json["machines"]}
    assert {name: machines[name]["price"]["usd_per_hour"] for name in PRICES} == PRICES
    found = months.done("report -o json").json

    low = TOTAL - ELK + ELK_LOW - STARTS
    total = {name: Decimal(found["total"][name]) for name in ("usd", "low_usd", "high_usd")}
    assert total == {"usd": TOTAL, "low_usd": low, "high_usd": TOTAL}
    by_name = {one["name"]: one for one in found["machines"]}
    assert {name: Decimal(one["usd"]) for name, one in by_name.items()} == {
        "fox": FOX, "owl": OWL, "elk": ELK, "yak": YAK, "desk": 0,
    }  # fmt: skip
    assert {one["name"]: Decimal(one["usd"]) for one in found["projects"]} == {
        "vision": FOX + ELK, "language": OWL, "default": YAK,
    }  # fmt: skip
    assert {one["provider"] for one in by_name.values()} == {"aws", "azure", "gcp", "ssh"}
    assert sum(Decimal(one["usd"]) for one in found["days"]) == TOTAL

    hours = {name: tuple(round(one[part] / 3600, 3) for part in PARTS) for name, one in by_name.items()}
    assert hours == {
        "fox": (34, 18.8, 0, 15.2, 0), "owl": (24, 22.9, 0.6, 0.5, 0), "elk": (45.8, 0, 0, 0, 45.8),
        "yak": (108, 27, 4, 77, 0), "desk": (10, 8, 0, 2, 0),
    }  # fmt: skip
    # fox 15.2 h x 3.06, owl 0.5 h x 1.92802, yak 77 h x 3.06; at the most elk's 45.8 h x 0.526, too.
    idle = Decimal("46.512") + Decimal("0.96401") + Decimal("235.62")
    assert (Decimal(found["idle"]["usd"]), Decimal(found["idle"]["high_usd"])) == (idle, idle + Decimal("24.0908"))
    assert Decimal(found["savings"]["stops"]["usd"]) == Decimal("42.84")  # fox's lease: 14 h x 3.06
    # owl: 86,399 s x 3.67339 / 3600, less what it was: 41.888395175.
    spot = {name: Decimal(found["savings"]["spot"][name]) for name in ("usd", "on_demand_usd")}
    assert spot == {"usd": Decimal("41.888395175"), "on_demand_usd": Decimal("88.160339614")}
    assert found["burn"]["usd_per_hour"] == "3.085"
    (lab,) = found["budgets"]
    assert Decimal(lab["remaining_usd"]) == 400 - Decimal("7.32") - YAK  # October: fox's disk, and yak
    assert Decimal(found["comparison"]["cloud"]["usd"]) == TOTAL
    (desk,) = found["comparison"]["own_machines"]
    assert (desk["name"], Decimal(desk["kwh"]), Decimal(desk["electricity_usd"])) == (
        "desk", Decimal("2.4"), 0,  # 8 h at 300 W; what it cost is what the ledger says, at its price of 0
    )  # fmt: skip

    page = tmp_path / "report.html"
    months.done(f"report --to {page}")
    assert "yak" in page.read_text()
    assert f"{TOTAL:.2f}" in months.done("report --format md").out


PARTS = ("billed_s", "gpu_s", "used_s", "idle_s", "unknown_s")
