"""Two laptops on one ledger in PostgreSQL: neither takes the other's living launch for dead."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from cloudgpu.access.ssh import client_files
from cloudgpu.control.inventory.settle import settle_abandoned_launches
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.outage import opening
from cloudgpu.control.setup.doctor import examine
from cloudgpu.errors import LedgerUnavailable
from tests.access.sshserver import wait_for
from tests.control.conftest import Lab
from tests.postgres import Server

ROOT = Path(__file__).parents[3]
UP = """
import sys; sys.path.insert(0, sys.argv[4])
from pathlib import Path
import pytest
from tests.control.inventory.test_shared_ledger import Laptop
laptop = Laptop(Path(sys.argv[1]), pytest.MonkeyPatch(), sys.argv[2], sys.argv[3])
send = laptop.cloud.launch
def launch(attempt, *, deadline):
    print("sending", flush=True)
    sys.stdin.readline()
    return send(attempt, deadline=deadline)
laptop.cloud.launch = launch
print(laptop.up(name="shared").machine.launch_status, flush=True)
"""


class Laptop(Lab):
    """One of several homes whose cloud and ledger are the same."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, name: str, url: str) -> None:
        self.name, self.url = name, url
        super().__init__(root, monkeypatch)

    def environ(self) -> dict[str, str]:
        home = self.home.with_name(self.name)
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text((self.home / "config.toml").read_text())
        return {"CLOUDGPU_HOME": str(home), "USER": self.name, "CLOUDGPU_LEDGER": self.url}

    def opened(self):
        session = opening.open_session(self.environ(), clock=self.clock, tell=self.said.append)
        session.pause = self.clock.advance
        return session


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.schema()


@pytest.fixture
def laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> Callable[[str], Laptop]:
    return lambda name: Laptop(tmp_path, monkeypatch, name, url)


@pytest.fixture
def ada_launches(tmp_path: Path, url: str, laptop: Callable[[str], Laptop]) -> Iterator[subprocess.Popen[str]]:
    """A process on Ada's laptop that has written its intent and is about to send the call."""
    laptop("ada")  # the plugin and the settings are there for all
    command = [sys.executable, "-c", UP, str(tmp_path), "ada", url, str(ROOT)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "sending\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def attempts(laptop: Laptop) -> list[str]:
    return [row.launch_status for row in laptop.session.ledger.machines()]


@pytest.mark.soak
def test_a_launch_that_goes_on_elsewhere_is_left_alone_and_ends_as_it_does(
    laptop: Callable[[str], Laptop], ada_launches: subprocess.Popen[str]
) -> None:
    bob = laptop("bob")
    bob.later(days=2)  # long enough for a listing to prove what is absent
    settle_abandoned_launches(bob.session)
    sync_all(bob.session)
    assert attempts(bob) == ["open"]
    out, _ = ada_launches.communicate("\n", timeout=60)
    assert out == "made\n"
    assert attempts(bob) == ["made"]
    assert len(bob.machines()) == 1


def test_a_launch_whose_process_was_killed_elsewhere_is_settled_by_the_listing(
    laptop: Callable[[str], Laptop], ada_launches: subprocess.Popen[str]
) -> None:
    ada_launches.kill()
    ada_launches.wait()
    bob = laptop("bob")
    bob.later(days=2)

    def settled() -> bool:
        settle_abandoned_launches(bob.session)
        return attempts(bob) == ["void"]

    assert wait_for(settled)  # the server may see a moment later that who held the lock is gone
    assert bob.machines() == []


@pytest.mark.soak
def test_nothing_is_sent_by_a_launch_that_was_cut_off_from_its_lock(
    laptop: Callable[[str], Laptop], monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    ada = laptop("ada")
    pin = client_files.pin

    def cut_off(*facts: str) -> None:
        with psycopg.connect(url, autocommit=True) as raw:
            raw.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
        pin(*facts)

    with monkeypatch.context() as patch:
        patch.setattr(client_files, "pin", cut_off)
        with pytest.raises(LedgerUnavailable, match="nothing was sent"):
            ada.up(name="shared")
    assert ada.machines() == []
    assert attempts(ada) == ["open"]
    assert ada.up(name="shared").machine.launch_status == "made", "the same again settles it"
    assert len(ada.machines()) == 1


def test_a_laptop_whose_clock_the_database_contradicts_goes_by_the_databases(
    laptop: Callable[[str], Laptop], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = laptop("ada")
    ada.url = f"{url}%20-ccloudgpu.clock%3Don"
    ada.clock = lambda: datetime.now(UTC) + timedelta(hours=1)
    monkeypatch.setattr(opening, "utc_now", ada.clock)
    wrong = opening.open_session(ada.environ(), clock=ada.clock, tell=ada.said.append)
    wrong.ledger.machines()
    assert abs(wrong.clock() - datetime.now(UTC)) < timedelta(minutes=1)
    assert round(wrong.clock_ahead() / timedelta(hours=1)) == 1
    assert [said.partition(" is ")[0] for said in ada.said] == ["This computer's clock"]
    wrong.check_launchable()


def test_a_time_that_a_program_sets_counts_although_the_database_contradicts_it_and_doctor_warns(
    laptop: Callable[[str], Laptop], url: str
) -> None:
    ada = laptop("ada")
    ada.url = f"{url}%20-ccloudgpu.clock%3Don"  # the lab's clock stands in another week than the server's
    session = ada.opened()
    session.ledger.machines()
    assert (session.clock(), session.clock_ahead()) == (ada.clock(), timedelta(0))
    (said,) = ada.said
    assert said.endswith(
        "Set the wrong one right: the times that this computer writes may be wrong, and so may bills be."
    )
    session.check_launchable()
    (check,) = (one for one in examine(ada.environ(), clock=ada.clock, account="lab") if one.name == "ledger")
    assert (check.verdict, check.next) == ("warn", "Set the wrong one of the two.")


@pytest.mark.soak
def test_what_one_laptop_launched_another_can_end(laptop: Callable[[str], Laptop]) -> None:
    from cloudgpu.control.lifecycle.lifecycle import terminate_one

    row = laptop("ada").up(name="shared").machine
    bob = laptop("bob")
    assert bob.session.find("shared").id == row.id
    terminate_one(bob.session, row, why="over")
    assert bob.machines() == []
    assert [one.terminated_at is not None for one in laptop("ada").session.ledger.machines()] == [True]
