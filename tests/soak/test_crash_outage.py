"""`stop` and `down` on our model of AWS while the ledger's server is away, killed at every point; it never was AWS.

At each of their calls that change something, at the first and last that read, around each line of the outbox, with one
half written, and during the replay. Then the ledger is back: the machine's end stands there once, at AWS's time.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle

import pytest

from cloudgpu.ledger.open import open_ledger
from tests.cli.many import shared
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.aws.plain import client
from tests.soak.crash import check_each
from tests.soak.crash_aws import ON_DEMAND, READS, REGION, SDK, AwsLife, moments
from tests.soak.crash_cloud import Watch
from tests.soak.lab_server import LabServer
from tests.soak.struck_outbox import STRIKE

__all__ = ["aws", "aws_process"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]
KILLED, GONE, UNREACHED = -9, 7, 8
OVER = {"stop": "stopped", "down": "terminated"}
REPLAY = ["append 1 before", "write 1 after", "append 1 after", "keep 1 before", "keep 1 after"]


@dataclass(frozen=True)
class Place:
    """Where to kill, as `struck_outbox` is told."""

    said: str


class Outage(AwsLife):
    """One home on a ledger of its own in PostgreSQL, with one machine that runs."""

    def __init__(self, server, postgres, home):
        super().__init__(server, home)
        self.program.many = shared(*SDK, "tests.soak.struck_outbox")
        self.postgres, self.url = postgres, postgres.schema()
        self.program.environ["CLOUDGPU_LEDGER"] = self.url
        self.machine = self.done(*ON_DEMAND)["machine"]

    def run(self, *args, strike=""):
        """Run a command that is struck there; return how it ended."""
        self.program.environ[STRIKE] = strike
        try:
            return self.program(*args, timeout=120)
        finally:
            del self.program.environ[STRIKE]

    def ended(self, verb, strike=""):
        """Stop or end the machine; return how the command ended."""
        return self.run(verb, self.machine["name"], "--yes", strike=strike)

    def there(self):
        """What AWS says of the machine: its state, and since when."""
        (found,) = client(region=REGION).describe_instances()["Reservations"][0]["Instances"]
        since = found["StateTransitionReason"].partition("(")[2].removesuffix(" GMT)")
        return found["State"]["Name"], since and datetime.fromisoformat(f"{since}+00:00")

    def struck(self, verb, point):
        """Run it and kill it at a place or a moment; return whether that came."""
        if isinstance(point, Place):
            return self.ended(verb, strike=point.said).code == KILLED
        return self.killed(verb, self.machine["name"], "--yes", at=point, codes=(UNREACHED,))

    @contextmanager
    def away(self):
        """Have no ledger in this block."""
        self.postgres.kill()
        yield
        self.postgres.start()

    def points(self, verb):
        """Return where to kill a verb that ends the machine while the ledger is away."""
        noted = self.home.parent / "noted"
        with self.away():
            self.server.on_call = watch = Watch()
            assert self.ended(verb, strike=str(noted)).code == UNREACHED
            self.server.on_call = None
        self.done("ls")
        self.check_end(verb)
        found = moments(watch.actions)
        reads = [one for one in found if one.action.startswith(READS)]
        calls = [one for one in found if one not in reads[1:-1]]
        lines = [line for line in noted.read_text().splitlines() if line.startswith("add ")]
        assert len(lines) >= 6, "what was asked and what was seen is not in the outbox"
        return [*calls, *map(Place, lines)]

    def check_end(self, verb):
        """The machine has ended, and the ledger says so once, at AWS's time; nothing waits, and the chain is right."""
        state, since = self.there()
        assert state == OVER[verb]
        assert not list(self.home.rglob("*.outbox")), "lines wait in the outbox"
        ledger = open_ledger(self.url, self.home.parent / "judge", actor="judge", clock=lambda: datetime.now(UTC))
        try:
            lines = list(ledger.events(self.machine["id"]))
            (row,) = ledger.machines()
            uses = [use.end for _, use in ledger.ended_usages() if use.resource == "instance"]
            assert ledger.verify().faults == ()
        finally:
            ledger.close()
        over = [line for line in lines if line.body.get("state") == state or line.kind == "instance_vanished"]
        assert (row.state, row.billed, len(over)) == (state, False, 1), [line.kind for line in lines]
        # AWS says the second; a machine that lived within one has not ended before it began.
        assert [datetime.fromisoformat(end).replace(microsecond=0) for end in uses] == [since]
        asked = [line.seq for line in lines if line.kind in ("stop_requested", "terminate_requested")]
        assert asked, "nobody has asked for its end"
        assert max(asked) < over[0].seq, "the outbox was not written in its order"


@pytest.fixture(scope="module")
def server():
    """A PostgreSQL of this module's own: it is killed all the time."""
    made = LabServer()
    made.start()
    yield made
    made.remove()


@pytest.fixture
def outage(aws, server, tmp_path):
    """Make a home with one machine that runs, in a cloud that has no other."""
    number = iter(range(1000))
    return lambda: Outage(aws, server, tmp_path / str(next(number)) / "home")


@pytest.mark.parametrize("verb", OVER)
def test_an_end_without_the_ledger_killed_anywhere_stands_in_the_ledger_once(outage, verb):
    points, again = outage().points(verb), cycle([True, False])

    def case(point):
        one = outage()
        with one.away():
            died = one.struck(verb, point)
            if next(again):
                one.ended(verb)  # 8 where there is something to end, or nobody can say whether there is
        one.done("ls")
        assert one.ended(verb).code in (0, GONE)
        one.check_end(verb)
        return died

    assert check_each(points, case) == len(points)


def test_a_replay_killed_anywhere_with_its_command_or_its_server_writes_each_line_once(outage, server):
    def case(point):
        one = outage()
        with one.away():
            assert one.ended("down").code == UNREACHED
        done = one.run("ls", strike=point.said.replace("server", str(server.pid)))
        assert done.code in (0, UNREACHED, KILLED), done
        died = done.code == KILLED
        if not died:
            server.again()
        for _ in range(2):
            one.done("ls")
            one.check_end("down")
        return died

    kills = [Place(at) for at in REPLAY]
    crashes = [Place(f"{at} server") for at in REPLAY[:2]]
    assert check_each([*kills, *crashes], case) == len(kills)
