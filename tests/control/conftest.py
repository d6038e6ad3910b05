from __future__ import annotations

import logging
import sys
import weakref
from datetime import timedelta
from functools import cache

import pytest

from cloudgpu.control.inputs.launch_request import UpRequest, cluster_request
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.core.model.offers import Requirements
from cloudgpu.testing import FAKE, ManualClock, write_plugin
from tests.control.agents import Agents, patient
from tests.receivers.mail import MailReceiver
from tests.receivers.web import WebReceiver

OPENED: list[weakref.ref] = []  # sessions of the labs of one test


@cache
def _plugin(directory, kind):
    """Offer this kind of cloud as the provider `fake`: one directory for all tests, which the registry reads once."""
    return str(write_plugin(directory / kind.replace(":", "."), {"fake": kind}))


@pytest.fixture(autouse=True)
def closed_ledgers():
    """Close what a test has opened: thousands of tests would leave three open files each."""
    yield
    for session in filter(None, (one() for one in OPENED)):
        session.ledger.close()
    OPENED.clear()


@pytest.fixture
def web():
    """A receiver of alerts over HTTP."""
    receiver = WebReceiver()
    yield receiver
    receiver.end()


@pytest.fixture
def mail():
    """A receiver of alerts by SMTP."""
    receiver = MailReceiver()
    yield receiver
    receiver.end()


class Lab:
    """A user of the fake cloud: a home, a clock, and the cloud itself behind the real registry."""

    cloud_kind = FAKE

    def __init__(self, tmp_path, monkeypatch, options=""):
        monkeypatch.setattr(sys, "path", [_plugin(tmp_path.parent / "plugins", self.cloud_kind), *sys.path])
        self.home = tmp_path / "home"
        self.home.mkdir(exist_ok=True)
        state = tmp_path / "cloud.json"
        table = f'provider = "fake"\n[accounts.lab]\nprovider = "fake"\nstate_file = "{state}"\n{options}\n'
        (self.home / "config.toml").write_text(table)
        self.clock = ManualClock()
        self.said: list[str] = []
        self.session = self.opened()
        self.cloud = self.session.provider("lab")

    def opened(self):
        """A new process, as far as a test can have one: everything is read from disk again."""
        environ = {"CLOUDGPU_HOME": str(self.home), "USER": "ada"}
        session = open_session(environ, clock=self.clock, tell=self.said.append)
        session.pause = self.clock.advance
        OPENED.append(weakref.ref(session))
        return session

    def prepare(self, *, gpu="v100", max_price=None, **more):
        want = Requirements(gpu=gpu, region=more.pop("region", None), zone=more.pop("zone", None), max_price=max_price)
        words = [more.pop(word, None) for word in ("nodes", "engine", "on_node_loss")]
        return prepare(self.session, UpRequest(want, cluster=cluster_request(*words), **more))

    def up(self, **more):
        return launch(self.session, self.prepare(**more), wait=False)

    def machines(self):
        """What the cloud has that costs money, whatever the ledger says."""
        return [one for one in self.cloud.list().instances if one.billed]

    def rows(self):
        return [row for row in self.session.ledger.machines() if row.terminated_at is None]

    def later(self, **span):
        self.clock.advance(timedelta(**span).total_seconds())


class Fleet(Lab):
    """A lab whose machines have an agent: all of them the same one, that says what the test wants."""

    def __init__(self, tmp_path, monkeypatch, options, agents):
        super().__init__(tmp_path, monkeypatch, options)
        self.agents = agents

    def pass_(self, **wish):
        return reap(self.session, ReapOptions(**wish))

    def idle(self, **span):
        """Let time go by in which nobody does anything, and make a pass."""
        self.later(**span)
        self.agents.says(self.clock())
        return self.pass_()

    def machine(self, name="fox"):
        (row,) = [one for one in self.session.ledger.machines() if one.name == name]
        return row

    def kinds(self, name="fox"):
        return [line.kind for line in self.session.ledger.events(self.machine(name).id)]

    def policy(self, name, text):
        """Write a policy of one's own."""
        path = self.session.home.policies / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


@pytest.fixture
def lab(tmp_path, monkeypatch):
    return Lab(tmp_path, monkeypatch)


@pytest.fixture
def make_lab(tmp_path, monkeypatch):
    return lambda options: Lab(tmp_path, monkeypatch, options)


@pytest.fixture
def agents(tmp_path, monkeypatch):
    """The agents of all machines, behind one SSH server."""
    patient(monkeypatch)
    made = Agents(tmp_path / "agents", tmp_path / "home" / "keys")
    yield made
    made.end()


@pytest.fixture
def fleet(tmp_path, monkeypatch, agents):
    """A lab whose machines are reached over SSH, and which no timer of the cloud's ends."""
    return Fleet(tmp_path, monkeypatch, f'{agents.options}timer = "moves"\n', agents)


class Logged(logging.Handler):
    """All that libraries and cloudgpu log, whatever the level."""

    def __init__(self):
        super().__init__(1)
        self.text, self.names = "", set()

    def emit(self, record):
        self.text += self.format(record) + "\n"
        self.names.add(record.name)


@pytest.fixture
def logged():
    """Collect what is logged, in place of pytest's own: that costs a hundredth of the suite and serves two tests."""
    root, handler = logging.getLogger(), Logged()
    level = root.level
    root.addHandler(handler)
    root.setLevel(1)
    yield handler
    root.setLevel(level)
    root.removeHandler(handler)
