"""A host that takes a connection and never says anything: it alone is named, and hides no other host of its account."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any

import pytest

from cloudgpu.control.look_again import look_again
from cloudgpu.control.look_asked import listed_all
from cloudgpu.control.session import open_session
from cloudgpu.errors import ProviderUnavailable
from cloudgpu.providers.patience import Patience
from cloudgpu.providers.ssh import client
from cloudgpu.providers.ssh.translate import instance_id
from cloudgpu.testing import write_plugin
from tests.providers.ssh.hosts import Lab, now

PATIENCE_S = 2  # in which the host that is well has to answer


@dataclass
class Frozen:
    """A host whose kernel takes connections; it has the keys of another one."""

    options: dict[str, Any]


@pytest.fixture
def frozen(lab):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield Frozen({**lab.hosts[0].options, "name": "frozen", "port": listening.getsockname()[1]})


@pytest.fixture
def session(lab, frozen, tmp_path, monkeypatch):
    """Somebody whose account has both hosts, on a computer where no cloud may be silent for long."""
    monkeypatch.setenv("CLOUDGPU_PATIENCE", str(PATIENCE_S))
    monkeypatch.syspath_prepend(write_plugin(tmp_path / "plugin", {"ssh": "cloudgpu.providers.ssh.provider:make"}))
    home = tmp_path / "home"
    home.mkdir()
    hosts = [
        "{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in one.options.items()) + "}"
        for one in Lab(tmp_path, frozen, lab.hosts[0]).hosts
    ]
    (home / "config.toml").write_text(f'[accounts.lab]\nprovider = "ssh"\nhosts = [{", ".join(hosts)}]\n')
    return open_session({"CLOUDGPU_HOME": str(home), "USER": "ada"})


def test_a_frozen_host_alone_is_missing_in_the_look_of_a_pass(lab, session):
    made = lab.launch()
    (found,) = listed_all(session, ["lab"])
    assert ([one.id for one in found.instances], [gap.scope for gap in found.unanswered]) == ([made.id], ["lab/frozen"])


def test_a_frozen_host_is_waited_for_once_whatever_is_asked_of_it(session, monkeypatch):
    visits = []
    monkeypatch.setattr(
        client, "visit", lambda name, *a, real=client.visit, **k: visits.append(name) or real(name, *a, **k)
    )
    provider = session.provider("lab")
    provider._patience = Patience(0.1)
    with pytest.raises(ProviderUnavailable):
        provider.identity("frozen")
    provider._patience = Patience(3600)
    with pytest.raises(ProviderUnavailable):
        provider.identity("frozen")
    assert visits == ["frozen"]


def test_a_frozen_host_alone_is_unknown_where_machines_are_asked_for_by_their_ids(session):
    time = now().isoformat()
    known = session.provider("lab").identity("bigbox").to_json()
    usual = {"provider": "ssh", "account": "lab", "identity": known, "owner": "ada"}
    usual |= {"ended": time, "intended_at": time, "seen_at": None}
    ids = {name: instance_id(name, "a token") for name in ("frozen", "bigbox")}
    rows = [{**usual, "id": name, "name": name, "region": name, "provider_id": id_} for name, id_ in ids.items()]
    assert list(look_again(session, rows)) == ["frozen"]
