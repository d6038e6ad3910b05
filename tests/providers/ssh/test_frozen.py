"""A host that takes a connection and never says anything: it alone is named, and hides no other host of its account."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from cloudgpu.control.api.down import end_machines, machines_to_end
from cloudgpu.control.inputs.launch_request import UpRequest
from cloudgpu.control.inventory.sync import sync_all
from cloudgpu.control.inventory.sync_accounts import list_accounts
from cloudgpu.control.inventory.sync_some import sync_some
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.reaper.reaper import ReapOptions, reap
from cloudgpu.control.session.identity import AccountScope, by_account
from cloudgpu.core.model.facts import RecordedIdentity
from cloudgpu.core.model.offers import Requirements
from cloudgpu.errors import ProviderUnavailable
from cloudgpu.providers.patience import CallTimeouts
from cloudgpu.providers.ssh import client
from cloudgpu.providers.ssh.provider import SshProvider
from cloudgpu.providers.ssh.translate import instance_id
from cloudgpu.testing import write_plugin
from tests.core.machines import machine
from tests.providers.ssh.hosts import Lab, now

PATIENCE_S = 2  # in which the host that is well has to answer
BOUND_S = 20  # against a test that hangs


@dataclass
class Frozen:
    """A host whose kernel takes connections; it has the keys of another one."""

    options: dict[str, Any]


@pytest.fixture
def frozen(lab):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield Frozen({**lab.hosts[0].options, "name": "frozen", "port": listening.getsockname()[1]})


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Open a session of somebody whose account has these hosts, where no cloud may be silent for long."""
    monkeypatch.setenv("CLOUDGPU_PATIENCE", str(PATIENCE_S))
    monkeypatch.syspath_prepend(write_plugin(tmp_path / "plugin", {"ssh": "cloudgpu.providers.ssh.provider:make"}))

    def open_(*hosts):
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        tables = ["{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in one.items()) + "}" for one in hosts]
        (home / "config.toml").write_text(f'[accounts.lab]\nprovider = "ssh"\nhosts = [{", ".join(tables)}]\n')
        return open_session({"CLOUDGPU_HOME": str(home), "USER": "ada"})

    return open_


@pytest.fixture
def session(lab, frozen, opened):
    """Somebody whose account has both hosts."""
    return opened(*(one.options for one in Lab(lab.hosts[0].root, frozen, lab.hosts[0]).hosts))


def up(session, host):
    return launch(
        session, prepare(session, UpRequest(Requirements(zone=host), name=host, account="lab")), wait=False
    ).machine


@pytest.mark.soak
def test_a_frozen_host_alone_is_missing_in_the_look_of_a_pass(lab, session):
    made = lab.launch()
    (found,) = list_accounts(session, ["lab"])
    assert ([one.id for one in found.instances], [gap.scope for gap in found.unanswered]) == ([made.id], ["lab/frozen"])


@pytest.fixture
def visits(monkeypatch):
    """The names of the hosts that are contacted, one for each time."""
    names = []
    monkeypatch.setattr(
        client, "log_in", lambda name, *a, real=client.log_in, **k: names.append(name) or real(name, *a, **k)
    )
    return names


@pytest.mark.soak
def test_a_frozen_host_is_waited_for_once_whatever_is_asked_of_it(session, visits):
    provider = session.provider("lab")
    provider._timeouts = CallTimeouts(0.1)
    with pytest.raises(ProviderUnavailable):
        provider.identity("frozen")
    provider._timeouts = CallTimeouts(3600)
    with pytest.raises(ProviderUnavailable):
        provider.identity("frozen")
    (gap,) = provider.available(Requirements()).unanswered
    assert (visits.count("frozen"), gap.scope) == (1, "frozen")


@pytest.mark.soak
def test_a_frozen_host_alone_is_unknown_where_machines_are_asked_for_by_their_ids(session):
    time = now().isoformat()
    known = RecordedIdentity.of(session.provider("lab").identity("bigbox").to_json())
    usual = {"provider": "ssh", "account": "lab", "identity": known, "owner": "ada"}
    usual |= {"terminated_at": time, "intended_at": time, "seen_at": None}
    ids = {name: instance_id(name, "a token") for name in ("frozen", "bigbox")}
    rows = [machine(**usual, id=name, name=name, region=name, provider_id=id_) for name, id_ in ids.items()]
    assert list(sync_some(session, rows)) == ["frozen"]


def rows_on(session, **usual):
    """Machines of the ledger, one on each host of the account."""
    usual |= {
        "provider": "ssh",
        "account": "lab",
        "owner": "ada",
        "identity": RecordedIdentity("ssh host", "", ""),
    }
    hosts = session.settings.accounts["lab"].options["hosts"]
    return [machine(**usual, id=one["name"], name=one["name"], region=one["name"]) for one in hosts]


class Meeting:
    """Hosts that say nothing until all of them have been contacted, and then hang up."""

    def __init__(self, lab, number):
        self.barrier, self.met = threading.Barrier(number), threading.Event()
        self.sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
        ports = [one.getsockname()[1] for one in self.sockets]
        self.hosts = [{**lab.hosts[0].options, "name": f"m{port}", "port": port} for port in ports]
        for one in self.sockets:
            threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, listening):
        with listening, listening.accept()[0]:
            self.barrier.wait(BOUND_S)
            self.met.set()


@pytest.mark.parametrize(
    "ask", [by_account, lambda session, rows: AccountScope(session, "lab").query(row.region for row in rows)]
)
def test_hosts_that_say_nothing_are_asked_who_they_are_side_by_side(lab, opened, monkeypatch, ask):
    meeting = Meeting(lab, 3)
    session = opened(*meeting.hosts)
    monkeypatch.setenv("CLOUDGPU_PATIENCE", str(2 * BOUND_S))  # nobody who asks one after the other sees all in time
    ask(session, rows_on(session))
    assert meeting.met.is_set()


@pytest.mark.soak
def test_a_host_that_is_listed_is_known_where_it_was_not_told_in_time_who_it_is(lab, session, monkeypatch):
    released = threading.Event()
    row = up(session, "bigbox")
    again = open_session({"CLOUDGPU_HOME": str(session.home.root), "USER": "ada"})
    monkeypatch.setattr(SshProvider, "identity", lambda *_: released.wait(BOUND_S))
    look = sync_all(again)
    released.set()
    assert look.answered == {row.id}


@pytest.fixture
def off(own, opened):
    """A session with machines on four hosts, of which the first two have been switched off since."""
    hosts = [own(f"h{at}") for at in range(4)]
    first = opened(*(one.options for one in hosts))
    for one in hosts:
        up(first, one.name)
    with ExitStack() as listening:
        for one in hosts[:2]:
            one.off()
            listening.enter_context(socket.create_server(("127.0.0.1", one.port)))
        yield opened(*(one.options for one in hosts))
    for one in hosts:
        one.ended()


SILENT = ["lab/h0", "lab/h1"]


@pytest.mark.soak
def test_hosts_that_are_off_are_named_each_and_hide_none_that_is_on(off, visits):
    ids = {row.name: row.id for row in off.ledger.machines()}
    look = sync_all(off)
    assert ([gap.scope for gap in look.unanswered], look.answered) == (SILENT, {ids["h2"], ids["h3"]})
    off.provider("lab").terminate(off.ledger.machine(ids["h3"]).provider_id)
    for dry in (True, False):  # what is gone from a host that answers is gone, whichever other one is off
        found = reap(off, ReapOptions(dry_run=dry))
        assert (found.exit_code, [gap.scope for gap in found.unanswered]) == (8, SILENT)
    ends = [off.ledger.machine(ids[host]).terminated_at for host in ("h3", "h0")]
    assert (ends[0] is None, ends[1]) == (False, None)
    document, gravest = end_machines(off, machines_to_end(off, [], all_=True))
    assert ([one["name"] for one in document["terminated"]], gravest.exit_code) == (["h2"], 8)
    visits.clear()
    up(open_session({"CLOUDGPU_HOME": str(off.home.root), "USER": "ada"}), "h2")
    assert set(visits) == {"h2"}, "who launches on a host that was just looked at waits for no other one"
