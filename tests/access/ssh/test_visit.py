"""Logging in as the user does: named keys of every kind, the usual ones, an SSH agent's; and what is said without."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading

import pytest
from paramiko.ed25519key import Ed25519Key
from paramiko.transport import Transport

from cloudgpu.access.ssh.target import LoginRefused
from cloudgpu.access.ssh.user_hosts import MAX_KEYS, log_in
from cloudgpu.core.model.instances import Address
from cloudgpu.errors import InvalidRequest, Unreachable, WrongHostKey
from tests.access.sshserver import USER, Server

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")


@pytest.fixture
def users(tmp_path, monkeypatch):
    """A home of the user's own, without an SSH agent; returns a maker of keys in ~/.ssh."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir(mode=0o700)

    def key(name, kind="ed25519", passphrase=""):
        path = tmp_path / ".ssh" / name
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", path], check=True)
        return path

    return key


@pytest.fixture
def server(tmp_path):
    made = []

    def letting_in(path):
        root = tmp_path / "machine"
        root.mkdir()
        made.append(Server(root).start(path.with_name(path.name + ".pub").read_text()))
        return made[-1]

    yield letting_in
    for one in made:
        one.kill()


def visited(server, key=None, known=None):
    known = known or " ".join(server.host_key.public_line.split()[:2])
    with log_in("box", Address("127.0.0.1", server.port, USER), host_key=known, key=key, timeout=10) as connection:
        return connection.capture("echo hello", timeout=10).stdout


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_a_named_key_of_every_kind_logs_in(users, server, kind):
    key = users("mine", kind)
    assert visited(server(key), key) == b"hello\n"


@pytest.mark.soak
def test_the_usual_keys_are_tried_one_after_the_other(users, server):
    users("id_ed25519")
    assert visited(server(users("id_rsa", "rsa"))) == b"hello\n"


def test_a_usual_key_that_is_not_let_in_is_followed_by_the_next(users, server):
    users("id_ed25519")
    assert visited(server(users("id_ecdsa", "ecdsa"))) == b"hello\n"


@pytest.fixture
def agent(users, tmp_path, monkeypatch):
    """An SSH agent; returns what puts a key of the user's into it."""
    if shutil.which("ssh-agent") is None:
        pytest.skip("OpenSSH's ssh-agent is not installed")
    started = subprocess.run(["ssh-agent", "-s", "-a", tmp_path / "agent"], capture_output=True, text=True, check=True)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    yield lambda key: subprocess.run(["ssh-add", "-q", key], check=True, capture_output=True, env=os.environ)
    os.kill(int(started.stdout.split("SSH_AGENT_PID=")[1].split(";")[0]), signal.SIGTERM)


def lock(key, *options):
    options = ["-N", "secret phrase", *options, "-f", key]
    subprocess.run(["ssh-keygen", "-q", "-p", *options], check=True, capture_output=True)


@pytest.mark.parametrize("named", [True, False])
def test_a_key_with_a_passphrase_is_used_through_the_agent(users, server, agent, named):
    key = users("locked")
    agent(key)
    lock(key)
    assert visited(server(key), key if named else None) == b"hello\n"


@pytest.mark.parametrize("known_by", ["its file", "the public one beside it"])
def test_a_named_key_is_found_among_more_of_an_agents_than_a_server_lets_try(users, server, agent, known_by):
    for number in range(MAX_KEYS):
        agent(users(f"other{number}"))
    key = users("locked", "rsa")
    there = server(key)
    agent(key)
    if known_by == "its file":
        lock(key)
        key.with_name("locked.pub").unlink()
    else:
        lock(key, "-m", "PEM")
    assert visited(there, key) == b"hello\n"


def test_another_key_of_an_agent_does_not_log_in_for_a_named_one(users, server, agent):
    other, key = users("other"), users("locked", passphrase="secret phrase")
    agent(other)
    with pytest.raises(InvalidRequest, match="no SSH agent holds it") as refused:
        visited(server(other), key)
    assert "ssh-add" in refused.value.next


def test_a_named_key_of_which_the_public_half_is_not_known_is_said(users, server, agent):
    other, key = users("other"), users("locked", "rsa")
    agent(other)
    lock(key, "-m", "PEM")
    key.with_name("locked.pub").unlink()
    with pytest.raises(InvalidRequest, match="is not known") as refused:
        visited(server(other), key)
    assert "ssh-keygen -y" in refused.value.next


def test_a_damaged_usual_key_is_skipped_and_said_where_there_is_no_other(users, server, tmp_path):
    (tmp_path / ".ssh" / "id_ed25519").write_text("damaged")
    key = users("id_rsa", "rsa")
    there = server(key)
    assert visited(there) == b"hello\n"
    key.unlink()
    with pytest.raises(InvalidRequest, match="id_ed25519 cannot be used"):
        visited(there)


def test_a_key_with_a_passphrase_and_no_agent_says_ssh_add(users, server):
    key = users("locked", passphrase="secret phrase")
    with pytest.raises(InvalidRequest) as refused:
        visited(server(key), key)
    assert "passphrase" in refused.value.message
    assert "ssh-add" in refused.value.next


def test_no_key_at_all_is_said(users, server):
    other = users("other")
    with pytest.raises(InvalidRequest, match="There is no SSH key"):
        visited(server(other))


@pytest.mark.parametrize("content", ["hello", "", None])
def test_what_is_no_private_key_is_said(users, server, tmp_path, content):
    bad = tmp_path / "bad"
    if content is not None:
        bad.write_text(content)
    with pytest.raises(InvalidRequest, match="cannot be used"):
        visited(server(users("other")), bad)


def test_a_key_that_is_not_let_in_is_said_with_ssh_copy_id(users, server):
    there = server(users("other"))
    with pytest.raises(LoginRefused) as refused:
        visited(there, users("mine"))
    assert "ssh-copy-id" in refused.value.next


@pytest.fixture
def outdated(users):
    """A server that knows no cipher of ours; returns its port and its host key."""
    key = Ed25519Key.from_private_key_file(str(users("host")))
    listener, served = socket.create_server(("127.0.0.1", 0)), []

    def serve():
        with contextlib.suppress(OSError):
            while True:
                transport = Transport(listener.accept()[0])
                transport.get_security_options().ciphers = ("aes128-cbc",)
                transport.add_server_key(key)
                served.append(transport)
                transport.start_server(threading.Event())

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1], f"{key.get_name()} {key.get_base64()}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for transport in served:
        transport.close()


def test_a_server_without_a_cipher_of_ours_is_not_told_to_let_a_key_in(users, outdated):
    port, known = outdated
    with pytest.raises(LoginRefused, match="could not agree on how to encrypt") as refused:
        log_in("box", Address("127.0.0.1", port, USER), host_key=known, key=users("mine"), timeout=10)
    assert refused.value.next == "Bring the machine's SSH server up to date."


def test_another_host_key_is_refused_before_any_login(users, server):
    mine = users("mine")
    there = server(mine)
    with pytest.raises(WrongHostKey):
        visited(there, mine, known=" ".join(mine.with_name("mine.pub").read_text().split()[:2]))


def test_nobody_there_is_unreachable(users, server):
    mine = users("mine")
    there = server(mine)
    there.kill()
    with pytest.raises(Unreachable, match="does not answer"):
        visited(there, mine)
