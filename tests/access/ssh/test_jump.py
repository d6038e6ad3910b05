"""Through a jump host: two real SSH servers, the system's ssh between them, and nothing left of it afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from io import BytesIO

import psutil
import pytest

from cloudgpu.access.copy.copy import copy
from cloudgpu.access.ssh import jump as jump_module
from cloudgpu.access.ssh.client_files import SshHost, client_key, new_host_key, ssh_command, write_config
from cloudgpu.access.ssh.connection import connect
from cloudgpu.access.ssh.execute import run
from cloudgpu.access.ssh.target import AccessBlocked
from cloudgpu.access.tunnel.tunnel import Tunnel, TunnelChange
from cloudgpu.core.values.network import JumpHost
from cloudgpu.errors import InvalidRequest, Unreachable, WrongHostKey
from tests.access.remote import get, web
from tests.access.sshserver import Server, wait_for

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="the system's ssh is not installed")


class Way:
    """A jump host beside the machine, and a user whose own SSH setup knows it: an `ssh` on PATH that reads theirs."""

    def __init__(self, root, server, monkeypatch):
        self.machine = server
        self.host = Server(root / "bastion")
        (root / "bastion").mkdir()
        self.host.start()
        self.known = root / "known"
        self.config = root / "config"
        self.key = client_key(self.host.root / "keys").path
        self.settle(self.host.host_key.public_line)
        bin_ = root / "bin"
        bin_.mkdir()
        (bin_ / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.config} "$@"\n')
        (bin_ / "ssh").chmod(0o755)
        self.bin = bin_
        monkeypatch.setenv("PATH", f"{bin_}{os.pathsep}{os.environ['PATH']}")

    def settle(self, line, key=None):
        """Write the user's own config and known_hosts."""
        self.known.write_text(f"[127.0.0.1]:{self.host.port} {line}\n")
        self.config.write_text(
            f"Host 127.0.0.1\n  IdentityFile {key or self.key}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {self.known}\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
        )

    @property
    def jump(self):
        return JumpHost("127.0.0.1", "tester", self.host.port)

    @property
    def target(self):
        return replace(self.machine.target, jump=self.jump)


@pytest.fixture
def way(server, tmp_path, monkeypatch):
    made = Way(tmp_path, server, monkeypatch)
    yield made
    made.host.kill()


def carriers():
    """The ssh processes that this process has started and that still live."""
    return [one for one in psutil.Process().children() if one.name() in ("ssh", "sh") and one.is_running()]


def test_a_command_and_files_go_through_the_jump_host(way, tmp_path):
    (tmp_path / "sent").write_bytes(bytes(range(256)) * 4000)
    with connect(way.target, timeout=10) as connection:
        out = BytesIO()
        assert run(connection, ["cat"], stdin=BytesIO(b"there"), stdout=out, stderr=BytesIO()) == 0
        assert out.getvalue() == b"there"
        copy(connection, [str(tmp_path / "sent")], "box:got")
        assert len(carriers()) == 1
    assert (way.machine.home / "got").read_bytes() == (tmp_path / "sent").read_bytes()
    assert way.host.connections == 1
    assert carriers() == []


def test_a_tunnel_goes_through_it_and_comes_back_when_the_way_was_lost(way):
    seen = []
    with web() as port, Tunnel(lambda: way.target, port, first_port=0, on_event=seen.append) as tunnel:
        assert get(tunnel.port, "before") == "answer to /before"
        carriers()[0].kill()
        wait_for(lambda: any(event.kind is TunnelChange.LOST for event in seen))
        assert get(tunnel.port, "after") == "answer to /after"
    wait_for(lambda: not carriers())


def test_the_machine_is_verified_as_ever_and_not_the_jump_hosts_to_vouch_for(way):
    way.machine.kill()
    way.machine.host_key = new_host_key()
    way.machine.start()
    with pytest.raises(WrongHostKey, match="through tester@127"):
        connect(way.target, timeout=10, wait=60)
    assert carriers() == []


def test_a_jump_host_that_refuses_the_login_is_said_in_sshs_words_and_not_tried_again(way, tmp_path):
    way.settle(way.host.host_key.public_line, client_key(tmp_path / "other").path)
    with pytest.raises(AccessBlocked, match=r"ssh says: .*Permission denied") as caught:
        connect(way.target, timeout=10, wait=60)
    assert caught.value.field == "--jump"
    assert caught.value.next.endswith(f"ssh -p {way.host.port} tester@127.0.0.1")
    assert carriers() == []


def test_a_jump_host_with_another_key_than_the_user_knows_is_refused(way):
    way.settle(new_host_key().public_line)
    with pytest.raises(AccessBlocked, match="Host key verification failed"):
        connect(way.target, timeout=10, wait=60)
    assert way.machine.connections == 0


def test_a_machine_that_does_not_listen_is_said_and_tried_again(way):
    way.machine.kill()
    with pytest.raises(Unreachable, match=r"ssh says: .*connect failed") as caught:
        connect(way.target, timeout=10, wait=1.5)
    assert not isinstance(caught.value, AccessBlocked)
    assert way.host.connections > 1
    assert carriers() == []


def test_a_jump_host_that_is_not_there_is_said(way):
    way.host.kill()
    with pytest.raises(Unreachable, match=r"ssh says: .*Connection refused"):
        connect(way.target, timeout=5)


def test_a_frozen_jump_host_does_not_hold_us_up(way, monkeypatch):
    monkeypatch.setattr(jump_module, "LOGIN_TIMEOUT_S", 0.2)
    way.host.freeze()
    began = time.monotonic()
    with pytest.raises(Unreachable):
        connect(way.target, timeout=0.3)
    assert time.monotonic() - began < 5
    assert carriers() == []


def test_without_the_systems_ssh_the_way_out_is_said(way, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(InvalidRequest, match="no ssh client"):
        connect(way.target, timeout=5)


def test_a_ctrl_c_is_not_for_the_ssh_in_between(way):
    script = (
        "import signal, sys, time; from cloudgpu.access.ssh.jump import open_through\n"
        "from cloudgpu.access.ssh.target import Target; from cloudgpu.core.model.instances import Address\n"
        "from cloudgpu.core.values.network import parse_jump_host; from pathlib import Path\n"
        "signal.signal(signal.SIGINT, lambda *_: print('heard', flush=True))\n"
        f"target = Target('i', 'box', Address('127.0.0.1', {way.machine.port}, 't'), Path('k'), Path('h'), "
        f"parse_jump_host('{way.jump}'))\n"
        "carried = open_through(target); print(carried.recv(4), flush=True)\n"
        "sys.stdin.readline(); print(carried.process.poll(), flush=True); carried.close()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout.readline() == "b'SSH-'\n"
    os.killpg(child.pid, 2)
    assert child.stdout.readline() == "heard\n"
    assert child.communicate("\n", timeout=20)[0] == "None\n"


def test_the_systems_client_and_its_config_take_the_same_way(way, tmp_path):
    target, file = way.target, tmp_path / "ssh_config"
    host = SshHost("box", target.id, target.address, target.jump)
    write_config(file, [host], key_file=target.key_file, known_hosts=target.known_hosts)
    real = shutil.which("ssh", path=os.environ["PATH"].partition(os.pathsep)[2])
    command = [real, *ssh_command(file, "box", ["echo", "hello"])[1:]]
    said = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    assert (said.stdout, said.returncode) == ("hello\n", 0), said.stderr
    assert way.host.connections == 1
