"""A ledger that moves takes along what this home did while the old place was away."""

from __future__ import annotations

import fcntl
from contextlib import closing

import pytest

from cloudgpu.control.moving import carry_out, plan
from cloudgpu.control.session import open_session
from cloudgpu.core.events import Draft
from cloudgpu.errors import ProviderUnavailable


def test_a_move_does_not_leave_behind_what_another_command_has_at_hand(tmp_path):
    environ = {"CLOUDGPU_HOME": str(tmp_path / "home")}
    session = open_session(environ)
    ledger, config = session.ledger, session.home.config_file
    ledger.settle("It begins.")
    ledger.outbox.add(ledger.id, [Draft("scope_looked", "scope:x", {}, session.clock(), "x")])
    url = f"sqlite://{tmp_path}/new.db"
    with ledger.outbox.path.open("rb") as other, closing(plan(session, url)) as wanted:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ProviderUnavailable, match="another command is at what was done"):
            carry_out(session, wanted, environ)
        assert not config.exists()
    with closing(plan(session, url)) as wanted:
        carry_out(session, wanted, environ)
    assert not ledger.outbox.path.exists()
    now = open_session(environ).ledger
    assert now.place == str(tmp_path / "new.db")
    assert [line.dedupe for line in now.events("scope:x")] == ["x"]
