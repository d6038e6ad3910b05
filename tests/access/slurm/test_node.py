"""The program that looks after a node's engine, on a host of its own over real SSH."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from cloudgpu.access.slurm import node as engine_node
from cloudgpu.access.slurm.node import EngineNode
from cloudgpu.access.ssh.user_hosts import log_in
from cloudgpu.core.clusters.conf import Files
from cloudgpu.core.clusters.nodes import Ports
from cloudgpu.core.model.instances import Address
from cloudgpu.errors import Unreachable
from tests.providers.ssh.hosts import USER, OwnHost

PROGRAMS = {
    "slurmd": "[ \"$1\" = -V ] && exec echo slurm-wlm 23.11.4\necho 'slurmd: error: no such node' >&2; exit 1",
    "munged": 'cat /proc/net/tcp >"$HOME/tcp-while-munged-begins"; exec sleep 0.2',
    "nvidia-smi": "exec sleep 0",
}


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """A host whose Slurm is a stand-in: what it says is known."""
    root = tmp_path_factory.mktemp("host")
    (root / "bin").mkdir()
    for name, text in PROGRAMS.items():
        (root / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (root / "bin" / name).chmod(0o755)
    made = OwnHost(root, "box", path=f"{root / 'bin'}:{os.environ['PATH']}").start()
    yield made
    psutil.wait_procs(made.processes(), timeout=10)  # a program whose connection was closed is about to end
    assert made.clean_up() == []


def connect_to(host):
    known = host.host_key.public_line.rpartition(" ")[0]
    return log_in("box", Address("127.0.0.1", host.port, USER), host_key=known, key=host.users_key, timeout=20)


@pytest.fixture
def opened(host, request):
    """Open the program for a node of a cluster of this test's own."""
    made = []

    def node(number=0):
        made.append(EngineNode(connect_to(host), f"cg-{request.node.name}", number))
        return made[-1]

    yield node
    for one in made:
        one.remove()
        one.close()


def test_a_node_says_what_it_is(opened, host):
    (host.home / ".cloudgpu").mkdir(exist_ok=True)
    (host.home / "card").symlink_to("/dev/null")
    (host.home / ".cloudgpu" / "gpu-devices").write_text(f"{host.home}/card\n{host.home}/.ssh\n")
    said = opened().read_facts([USER, "root"])
    assert (str(said.version), said.munge, said.cores) == ("23.11.4", True, len(os.sched_getaffinity(0)))
    assert (said.uid, said.people["root"], said.home) == (os.getuid(), 0, str(host.home))
    assert said.gpus == (f"{host.home}/card",)  # the other one is no device
    assert (said.address, said.running_daemons, said.files_digest, said.ports) == ("127.0.0.1", (), "", None)
    assert said.clock_ahead_s == 0.0
    assert said.memory_mb > said.job_memory_mb > 100


def test_an_answer_that_is_too_long_is_said(host, monkeypatch):
    monkeypatch.setattr(engine_node, "MAX_ANSWER_BYTES", 20)
    with EngineNode(connect_to(host), "cg-long", 0) as one, pytest.raises(Unreachable, match="its answer is too long"):
        one.read_facts([USER])


@pytest.mark.parametrize(
    ("old", "new", "ask"),
    [
        (
            'return {"ports": [port_numbers',
            'return {"port": [port_numbers',
            lambda node: node.reserve_ports(shared=True),
        ),
        ('return {"ports": [port_numbers[0]', 'return {"ports": [None', lambda node: node.reserve_ports(shared=True)),
        ('return {"began": sorted(started)}', 'return {"began": None}', lambda node: node.start(Ports(1, None))),
        ('return {"alive": False, "why": "slurmctld', 'return {"alive": False, "": "slurmctld', EngineNode.state),
        ('return {"alive": False, "why": "slurmctld does not run"}', 'return {"alive": True}', EngineNode.state),
    ],
)
def test_an_answer_that_is_none_of_the_programs_is_unreachable(host, monkeypatch, old, new, ask):
    text = engine_node.program().decode()
    assert text.count(old) == 1
    head, _, node_text = text.rpartition('"""Reads the facts of the node')
    altered = ('"""Reads the facts of the node' + node_text).replace(old, new).encode()
    monkeypatch.setattr(engine_node, "program", lambda: head[:-8].encode() + b"%08d" % len(altered) + altered)
    monkeypatch.setattr(engine_node, "DAEMONS", ())
    with EngineNode(connect_to(host), "cg-wrong", 1) as node, pytest.raises(Unreachable, match="not an answer of"):
        ask(node)


@pytest.mark.soak
def test_ports_are_held_until_they_are_used(opened):
    first, second = opened(0), opened(1)
    one, two = first.reserve_ports(shared=True), second.reserve_ports(shared=True)
    assert len({one.node, one.controller, two.node}) == 3
    assert two.controller is None
    with closing(socket.socket()) as other, pytest.raises(OSError, match="in use"):
        other.bind(("", one.node))
    first.stop()
    with closing(socket.socket()) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("", one.node))


def test_a_short_directory_that_others_may_write_to_is_not_used(opened):
    node = opened()
    short = Path(node.paths.socket_directory)
    short.parent.mkdir(mode=0o700)
    short.mkdir()
    short.chmod(0o777)
    with pytest.raises(Unreachable) as refused:
        node.write(Files({"slurm.conf": "x"}, ()), b"key")
    assert refused.value.message.endswith(f"{short} is not a directory of this user alone.")


def test_a_daemon_that_ends_says_why_in_its_own_words(opened, host):
    node = opened(1)
    node.write(Files({"slurm.conf": "x", "go": "y"}, ("go",)), b"a key")
    at = host.home / node.paths.directory
    modes = [oct(path.stat().st_mode & 0o777) for path in (at, at / "munge.key", at / "slurm.conf", at / "go")]
    assert (modes, (at / "munge.key").read_bytes()) == (["0o700", "0o600", "0o600", "0o700"], b"a key")
    with pytest.raises(Unreachable) as refused:
        node.start(Ports(1, None))
    assert "munged ended: it said nothing" in refused.value.message


def test_ports_are_held_while_munged_begins(opened, host):
    node = opened(1)
    ports = node.reserve_ports(shared=True)
    node.write(Files({"slurm.conf": "x"}, ()), b"a key")
    with pytest.raises(Unreachable, match="munged ended"):
        node.start(ports)
    assert f":{ports.node:04X} 00000000:0000 0A" in (host.home / "tcp-while-munged-begins").read_text()


def test_nothing_is_left_of_a_node_that_was_removed(opened, host):
    node = opened(2)
    node.write(Files({"slurm.conf": "x"}, ()), b"key")
    node.record_plan("digest", Ports(1, None))
    assert (node.read_facts().files_digest, node.read_facts().ports) == ("digest", Ports(1, None))
    node.remove()
    assert not (host.home / node.paths.directory).exists()
    assert not Path(node.paths.socket_directory).exists()
