"""Passes on a ledger in PostgreSQL, which several computers share: one pass at a time, and none without its lock."""

from __future__ import annotations

import psycopg
import pytest

from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.errors import LedgerUnavailable
from tests.control.conftest import Fleet
from tests.control.reaper.test_hanging import SILENT, let_all_be_over


class Shared(Fleet):
    """A fleet whose ledger is on a server; `elsewhere` opens it from another computer's home."""

    def __init__(self, url, *given):
        self.url = url
        super().__init__(*given)

    def opened(self, home=None):
        environ = {"CLOUDGPU_HOME": str(home or self.home), "USER": "ada", "CLOUDGPU_LEDGER": self.url}
        session = open_session(environ, clock=self.clock, tell=self.said.append)
        session.pause = self.clock.advance
        return session

    def elsewhere(self, *, account="cloud.json"):
        """Return a session of another computer; its account has the same name, and may be another one."""
        home = self.home.with_name("desk")
        home.mkdir()
        (home / "config.toml").write_text((self.home / "config.toml").read_text().replace("cloud.json", account))
        return self.opened(home)


@pytest.fixture
def shared(postgres, tmp_path, monkeypatch, agents):
    fleet = Shared(postgres.schema(), tmp_path, monkeypatch, f'{agents.options}timer = "moves"\n', agents)
    fleet.up(name="fox")
    fleet.idle(hours=2)
    fleet.later(minutes=10)
    agents.says(fleet.clock())
    return fleet


def test_while_one_computer_makes_a_pass_another_makes_none(shared):
    other = shared.elsewhere()
    seen = []
    shared.cloud.fail_next("stop_many", lambda: seen.append(reap(other, ReapOptions())))
    assert [one.name for one in shared.pass_().ended] == ["fox"]
    assert [bool(one.busy) for one in seen] == [True]
    assert reap(other, ReapOptions()).ended == ()
    assert shared.kinds().count("stop_requested") == 1


@pytest.mark.soak
def test_a_pass_from_another_account_leaves_the_warnings_and_the_end_of_a_machine_as_they_are(shared):
    """Both make passes, each for the own account: the stranger's word must not lift the warning before the end."""
    other = shared.elsewhere(account="other.json")
    before = shared.kinds()
    found = reap(other, ReapOptions())
    assert found.decisions == ()
    assert [one.scope for one in found.unanswered] == ["fake account cloud"]
    assert shared.kinds() == before
    assert [one.name for one in shared.pass_().ended] == ["fox"]


@pytest.mark.soak
@pytest.mark.parametrize("silent", [False, True])
def test_a_pass_whose_lock_the_server_has_forgotten_stops_nothing(shared, postgres, silent):
    """Where a region was silent, each other one's machines are ended in a thread of their own."""

    def forget():
        with psycopg.connect(postgres.url(), autocommit=True) as raw:
            raw.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")

    if silent:
        shared.up(name="owl", region="south", key="b")
        let_all_be_over(shared)
        shared.cloud.fail_next("list", SILENT, times=2)
    shared.cloud.fail_next("get_many", forget)
    with pytest.raises(LedgerUnavailable, match="nothing was sent"):
        shared.pass_()
    assert len(shared.machines()) == 1 + silent
    assert "stop_requested" not in shared.kinds()
