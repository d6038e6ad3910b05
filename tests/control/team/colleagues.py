"""A team on one ledger and one fake cloud: members and a payer, each with a home of their own.

The ledger is a SQLite file whose store answers who asks, as a database of a team does; nothing else of it is changed.
The real database, and what it enforces, is in `test_authorization_postgres`.
"""

from __future__ import annotations

import weakref

import pytest

from cloudgpu.control.outage import opening
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.session import session as sessions
from cloudgpu.core.team.rights import Role
from cloudgpu.ledger.sqlite.connection import SqliteFile
from tests.control import conftest
from tests.control.conftest import Lab

ROLES = {"ada": Role.MEMBER, "bo": Role.MEMBER, "pia": Role.PAYER}


class TeamFile(SqliteFile):
    """A ledger's file that knows who asks."""

    person = ""

    @property
    def required_actor(self):
        return self.person

    def role_and_user(self):
        return (ROLES[self.person], self.person) if self.person else super().role_and_user()

    def members(self):
        return tuple(ROLES)

    def payers(self):
        return tuple(name for name, role in ROLES.items() if role is Role.PAYER)


class Colleague(Lab):
    """Somebody of the team: `name` is the user of the database, `owner` what their settings say."""

    settings_more, tz = "", "UTC"

    def __init__(self, root, monkeypatch, name, clock=None, owner=""):
        self.name, self.owner, self.root, self.shared_clock = name, owner or f"{name}@lab.org", root, clock
        super().__init__(root, monkeypatch)

    def opened(self):
        self.clock = self.shared_clock or self.clock
        self.home = self.root / self.name
        self.home.mkdir(exist_ok=True)
        state = self.root / "cloud.json"
        self.settings(f'[accounts.lab]\nprovider = "fake"\nstate_file = "{state}"\n{self.settings_more}')
        environ = {
            "CLOUDGPU_HOME": str(self.home),
            "USER": self.name,
            "CLOUDGPU_LEDGER": f"sqlite://{self.root}/shared.db",
        }
        session = opening.open_session(environ, clock=self.clock, tell=self.said.append)
        session.pause = self.clock.advance
        conftest.OPENED.append(weakref.ref(session))
        return session

    def settings(self, more):
        (self.home / "config.toml").write_text(f'provider = "fake"\nowner = "{self.owner}"\ntz = "{self.tz}"\n{more}')

    def write(self, name, text):
        path = self.home / "policies" / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
        return path

    def machine(self, name):
        return self.session.find(name, ended=True)

    def asked(self, name):
        """What the lines of a machine say of who asked, whose it is, and by which right."""
        lines = self.session.ledger.events(self.machine(name).id)
        return [(one.kind, one.actor, one.body["whose"], one.body["right"]) for one in lines if "right" in one.body]

    def pass_(self, **wish):
        return reap(self.session, ReapOptions(**wish))


def know_who_asks(monkeypatch):
    """Let every ledger that is opened from a home of the team be that person's."""
    real = opening.open_ledger

    def opened(url, directory, *, actor, clock):
        ledger = real(url, directory, actor=actor, clock=clock)
        store = TeamFile(ledger._store.path, 30.0)
        store.person = directory.parent.name
        ledger._store = store
        return ledger

    for place in (opening, sessions):
        monkeypatch.setattr(place, "open_ledger", opened)


@pytest.fixture
def team(tmp_path, monkeypatch):
    """Two members and a payer; each has made a first launch of their own."""
    know_who_asks(monkeypatch)
    found = {}
    for name in ROLES:
        clock = found["ada"].clock if found else None
        found[name] = Colleague(tmp_path, monkeypatch, name, clock)
        found[name].up(name=f"{name}s")
    return found
