from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time

import pytest

from cloudgpu.access.ssh import client_files
from cloudgpu.access.ssh.client_files import client_key, new_host_key
from cloudgpu.access.ssh.connection import connect
from cloudgpu.access.ssh.keepalive import Keepalive
from cloudgpu.access.ssh.target import LoginRefused, Target
from cloudgpu.access.ssh.transport import SshChannel
from cloudgpu.core.model.instances import Address
from cloudgpu.errors import Frozen, InvalidRequest, Unreachable, WrongHostKey
from tests.access.remote import listening
from tests.access.sshserver import ROOT, wait_for


def replaced(target, **changes):
    values = {name: getattr(target, name) for name in ("id", "name", "address", "key_file", "known_hosts")}
    return Target(**{**values, **changes})


def test_a_command_answers_with_its_status_and_both_streams(connection):
    done = connection.capture("cat; echo err >&2; exit 7", timeout=10, input=b"in\x00\xff")
    assert (done.status, done.stdout, done.stderr) == (7, b"in\x00\xff", b"err\n")


def test_the_strongest_and_fastest_cipher_is_agreed_on(connection):
    assert connection.transport.local_cipher == connection.transport.remote_cipher == "aes128-gcm@openssh.com"
    assert connection.transport.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_much_input_and_much_output_at_once_do_not_block_each_other(connection):
    data = bytes(range(256)) * 40_000
    done = connection.capture("tee /dev/stderr", timeout=60, input=data)
    assert done.stdout == data
    assert done.stderr == data


def test_a_command_that_says_too_much_is_hung_up_on_and_its_errors_are_cut(connection):
    done = connection.capture("echo 12345; yes | head -c 99999 >&2", timeout=20, max_bytes=6)
    assert (done.stdout, done.stderr) == (b"12345\n", b"y\ny\ny\n")
    with pytest.raises(Unreachable, match="A command on box printed more than 5 bytes"):
        connection.capture("echo 12345; sleep 60", timeout=20, max_bytes=5)
    assert connection.capture("echo still here", timeout=10).stdout == b"still here\n"


def test_a_command_that_takes_too_long_is_hung_up_on(connection):
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"not done after 0\.5 seconds"):
        connection.capture("sleep 60", timeout=0.5)
    assert time.monotonic() - began < 10
    assert connection.capture("echo still here", timeout=10).stdout == b"still here\n"


def test_a_command_that_is_not_even_accepted_in_time_is_said_to_have_taken_too_long(server, connection, monkeypatch):
    run = SshChannel.exec_command
    monkeypatch.setattr(SshChannel, "exec_command", lambda *values: (server.freeze(), run(*values))[1])
    with pytest.raises(Unreachable, match=r"A command on box was not done after 0\.3 seconds"):
        connection.capture("echo", timeout=0.3)
    server.thaw()


def test_another_host_key_is_refused_at_once_however_long_one_would_wait(server):
    server.kill()
    server.host_key = new_host_key()
    server.start()
    with pytest.raises(WrongHostKey) as caught:
        connect(server.target, timeout=10, wait=60)
    assert server.connections == 1
    assert caught.value.field == "known_hosts"


def test_a_host_key_of_another_kind_is_refused(server, tmp_path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", tmp_path / "other"], check=True)
    client_files.pin(server.target.known_hosts, "cg-test", (tmp_path / "other.pub").read_text())
    with pytest.raises(WrongHostKey, match="of another kind"):
        connect(server.target, timeout=10, wait=60)


def test_without_a_pinned_key_nobody_is_contacted(server):
    client_files.unpin(server.target.known_hosts, "cg-test")
    with pytest.raises(WrongHostKey, match="No host key is pinned"):
        connect(server.target, timeout=10, wait=60)
    assert server.connections == 0


def test_the_key_belongs_to_the_machine_and_not_to_its_address(server):
    server.kill()
    server.port = 0
    server.start()
    connect(server.target, timeout=10).close()


@pytest.mark.parametrize("wrong", ["key", "user"])
def test_a_refused_login_is_said_and_not_tried_again(server, tmp_path, wrong):
    target = server.target
    if wrong == "key":
        target = replaced(target, key_file=client_key(tmp_path / "other").path)
    else:
        target = replaced(target, address=Address(target.address.host, target.address.port, "root"))
    with pytest.raises(LoginRefused) as caught:
        connect(target, timeout=10, wait=60)
    assert server.connections == 1
    assert caught.value.exit_code == 10


@pytest.mark.parametrize("fault", ["open", "damaged", "missing"])
def test_our_own_key_must_be_good_before_anybody_is_contacted(server, fault):
    target = server.target
    if fault == "open":
        target.key_file.chmod(0o644)
    elif fault == "damaged":
        target.key_file.write_text("no key")
    else:
        target.key_file.unlink()
    with pytest.raises(InvalidRequest) as caught:
        connect(target, timeout=10, wait=60)
    assert caught.value.value == str(target.key_file)
    assert server.connections == 0


def test_a_machine_that_is_still_starting_is_waited_for(server):
    target = server.target
    server.kill()
    later = threading.Timer(0.5, server.start)
    later.start()
    connect(target, timeout=10, wait=30).close()
    later.join()


def test_one_that_does_not_answer_is_given_up_in_time(server):
    server.kill()
    began = time.monotonic()
    with pytest.raises(Unreachable, match="refused"):
        connect(server.target, timeout=5, wait=0.5)
    assert 0.4 < time.monotonic() - began < 5


@pytest.mark.parametrize("serve", [lambda one: one.recv(1), lambda one: one.sendall(b"HTTP/1.1 400 Bad\r\n\r\n"), None])
def test_what_is_no_ssh_server_is_tried_again_and_then_said(server, serve):
    seen = []

    def count(connection):
        seen.append(1)
        if serve:
            serve(connection)

    with listening(count) as port:
        target = replaced(server.target, address=Address("127.0.0.1", port, "tester"))
        with pytest.raises(Unreachable, match="does not answer"):
            connect(target, timeout=0.3, wait=1)
    assert len(seen) > 1


def test_a_frozen_server_does_not_hold_us_up(server):
    target = server.target
    server.freeze()
    began = time.monotonic()
    with pytest.raises(Unreachable):
        connect(target, timeout=0.5)
    assert time.monotonic() - began < 5
    server.thaw()


def test_a_lost_connection_is_said_as_such(server, connection):
    answer = []

    def ask():
        try:
            connection.capture("sleep 60", timeout=60)
        except Unreachable as fault:
            answer.append(fault)

    asking = threading.Thread(target=ask)
    asking.start()
    wait_for(connection.transport._channels.values)
    server.kill()
    asking.join(10)
    assert "was lost" in answer[0].message
    with pytest.raises(Unreachable, match="was lost"):
        connection.capture("echo", timeout=5)


def test_a_quiet_line_whose_machine_answers_is_asked_again_and_not_given_up(server, connection, monkeypatch):
    asked = []
    ask = connection.transport.global_request
    monkeypatch.setattr(connection.transport, "global_request", lambda *a, **k: asked.append(1) or ask(*a, **k))
    with Keepalive(connection, ping_after_s=0.02, answer_timeout_s=60) as alive:
        wait_for(lambda: len(asked) > 2)
        assert alive.error is None


def test_a_frozen_machine_is_noticed_and_the_connection_closed(server, connection):
    with Keepalive(connection, ping_after_s=0.2, answer_timeout_s=0.5) as is_open:
        assert connection.capture("echo", timeout=10).status == 0
        server.freeze()
        wait_for(lambda: not connection.is_open)
    assert isinstance(is_open.error, Frozen)
    server.thaw()


def test_a_quiet_machine_that_lives_is_left_alone(server, connection):
    with Keepalive(connection, ping_after_s=0.1, answer_timeout_s=1) as is_open:
        assert connection.capture("sleep 0.7", timeout=10).status == 0
    assert is_open.error is None
    assert connection.is_open


def test_nothing_is_left_of_a_closed_connection(server):
    before = set(threading.enumerate())  # some of an earlier test may be about to end
    connection = connect(server.target, timeout=10)
    connection.capture("echo", timeout=5)
    assert set(threading.enumerate()) - before
    connection.close()
    connection.close()
    wait_for(lambda: not set(threading.enumerate()) - before)


def test_a_failed_handshake_prints_nothing(server):
    server.kill()
    server.host_key = new_host_key()
    server.start()
    script = (
        "import sys, pickle; from cloudgpu.access.ssh.connection import connect\n"
        "from cloudgpu.errors import WrongHostKey\n"
        "from tests.access.sshserver import Server; from pathlib import Path\n"
        "server = Server(Path(sys.argv[1])); server.port = int(sys.argv[2])\n"
        "try: connect(server.target, timeout=5)\n"
        "except WrongHostKey: pass\n"
    )
    command = [sys.executable, "-c", script, server.root, str(server.port)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})
    assert (said.stdout, said.stderr) == ("", "")


def test_the_modules_that_every_command_imports_do_not_import_paramiko():
    script = (
        "import sys, cloudgpu.access.ssh.connection, cloudgpu.access.ssh.client_files\n"
        "import cloudgpu.access.tunnel.tunnel\n"
        "import cloudgpu.access.copy.copy, cloudgpu.access.ssh.execute\n"
        "assert not {'paramiko', 'cryptography'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": str(ROOT)})
