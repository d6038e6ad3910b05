"""Passes on a ledger in PostgreSQL, which several computers share: one pass at a time, and none without its lock."""

from __future__ import annotations

import psycopg
import pytest

from cloudgpu.control.reap import ReapWish, reap
from cloudgpu.control.session import open_session
from cloudgpu.errors import LedgerUnavailable
from tests.control.conftest import Fleet


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

    def elsewhere(self):
        home = self.home.with_name("desk")
        home.mkdir()
        (home / "config.toml").write_text((self.home / "config.toml").read_text())
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
    shared.cloud.fail_next("stop_many", lambda: seen.append(reap(other, ReapWish())))
    assert [one.name for one in shared.pass_().ended] == ["fox"]
    assert [bool(one.busy) for one in seen] == [True]
    assert reap(other, ReapWish()).ended == ()
    assert shared.kinds().count("stop_asked") == 1


def test_a_pass_whose_lock_the_server_has_forgotten_stops_nothing(shared, postgres):
    def forget():
        with psycopg.connect(postgres.url(), autocommit=True) as raw:
            raw.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")

    shared.cloud.fail_next("get_many", forget)
    with pytest.raises(LedgerUnavailable, match="nothing was sent"):
        shared.pass_()
    assert len(shared.machines()) == 1
    assert "stop_asked" not in shared.kinds()
