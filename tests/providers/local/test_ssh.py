"""A machine's SSH server, with the system's own clients and with paramiko."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import os
import resource
import struct
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import asyncssh
import paramiko
import psutil
import pytest

from cloudgpu.core.model.instances import State
from cloudgpu.providers.local.processes import wait_for
from cloudgpu.providers.local.sshd import Child, SessionSettings, _Server
from cloudgpu.testing.helpers import new_host_key
from tests.providers.local.cloud import PATIENCE_S, needs_rsync, needs_ssh, now, processes_under


class Box:
    """A running machine and the ways to reach it."""

    def __init__(self, cloud) -> None:
        self.cloud = cloud
        self.host_public, private = new_host_key()
        attempt = cloud.attempt(host_key=(self.host_public, private))
        launched = cloud.provider.launch(attempt, deadline=now())
        self.machine = cloud.wait(launched.id, State.RUNNING)
        self.home = cloud.layout(launched.id).home

    def ssh(self, *words, data=b"", user=None):
        return self.cloud.ssh(self.machine, self.host_public, *words, data=data, user=user)

    def copy(self, program, *words):
        options = self.cloud.ssh_options(self.machine, self.host_public)
        command = [program, "-F", "/dev/null", "-q", "-P", str(self.machine.address.port), *options, *words]
        return subprocess.run(command, capture_output=True, timeout=60, check=False)

    @property
    def at(self) -> str:
        return f"{self.machine.address.user}@127.0.0.1"

    @contextlib.contextmanager
    def paramiko(self, key=None, user=None):
        key = key or paramiko.Ed25519Key.from_private_key(io.StringIO(self.cloud.private))
        client = paramiko.SSHClient()
        kind, body = self.host_public.split()[:2]
        pinned = paramiko.PKey.from_type_string(kind, base64.b64decode(body))
        address = self.machine.address
        client.get_host_keys().add(f"[127.0.0.1]:{address.port}", kind, pinned)
        try:
            client.connect(
                "127.0.0.1", address.port, user or address.user, pkey=key, allow_agent=False, look_for_keys=False
            )
            yield client
        finally:
            client.close()


@pytest.fixture
def box(cloud):
    return Box(cloud)


@needs_ssh
def test_a_command_runs_at_home_with_its_own_status_and_streams(box):
    done = box.ssh("pwd; echo $HOME; echo oops >&2; exit 7")
    assert done.returncode == 7
    assert done.stdout.decode().split() == [str(box.home)] * 2
    assert done.stderr == b"oops\n"


@pytest.mark.soak
@needs_ssh
def test_binary_input_comes_back_whole(box):
    data = os.urandom(5_000_000)
    assert box.ssh("cat", data=data).stdout == data


@needs_ssh
def test_a_command_that_reads_no_input_is_not_held_up_by_it(box):
    done = box.ssh("exit 5", data=bytes(5_000_000))
    assert done.returncode == 5


@needs_ssh
def test_only_the_pinned_user_and_key_come_in(box):
    assert b"Permission denied" in box.ssh("true", user="somebody-else").stderr
    stranger = paramiko.Ed25519Key.from_private_key(io.StringIO(new_host_key()[1]))
    with pytest.raises(paramiko.AuthenticationException), box.paramiko(key=stranger):
        pass
    transport = paramiko.Transport(("127.0.0.1", box.machine.address.port))
    try:
        transport.start_client(timeout=10)
        with pytest.raises(paramiko.BadAuthenticationType) as refused:
            transport.auth_password(box.machine.address.user, "")
        assert refused.value.allowed_types == ["publickey"]
    finally:
        transport.close()


@needs_ssh
def test_the_host_key_is_the_injected_one(box):
    box.host_public = new_host_key()[0]
    assert b"Host key verification failed" in box.ssh("true").stderr


@pytest.mark.soak
@needs_ssh
@pytest.mark.parametrize("flags", [(), ("-O",)], ids=["sftp", "rcp"])
def test_scp_copies_both_ways(box, tmp_path, flags):
    here, back = tmp_path / "here", tmp_path / "back"
    here.write_bytes(os.urandom(2_000_000))
    assert box.copy("scp", *flags, str(here), f"{box.at}:there").returncode == 0
    assert (box.home / "there").read_bytes() == here.read_bytes()
    assert box.copy("scp", *flags, f"{box.at}:there", str(back)).returncode == 0
    assert back.read_bytes() == here.read_bytes()


@needs_ssh
def test_sftp_starts_at_home(box, tmp_path):
    batch = tmp_path / "batch"
    batch.write_text("mkdir made\nput batch made/put\nln -s made/put link\nrename made/put made/moved\nls -l made\n")
    options = box.cloud.ssh_options(box.machine, box.host_public)
    command = ["sftp", "-q", "-b", str(batch), "-P", str(box.machine.address.port), *options, box.at]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (box.home / "made" / "moved").read_bytes() == batch.read_bytes()
    assert (box.home / "link").readlink() == Path("made/put")


@pytest.mark.soak
@needs_ssh
@needs_rsync
def test_rsync_copies_a_tree(box, tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "x").write_text("x")
    shell = ["ssh", "-F", "/dev/null", "-p", str(box.machine.address.port)]
    shell += box.cloud.ssh_options(box.machine, box.host_public)
    done = subprocess.run(
        ["rsync", "-a", "-e", " ".join(shell), f"{tree}/", f"{box.at}:copied/"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (box.home / "copied" / "sub" / "x").read_text() == "x"


def test_a_command_that_died_of_a_signal_says_which(box):
    with box.paramiko() as client:
        channel = client.get_transport().open_session()
        channel.exec_command("kill -TERM $$")
        assert channel.recv_exit_status() == -1  # paramiko's word for a signal
        assert channel.closed or wait_for(lambda: channel.closed, PATIENCE_S)


@pytest.mark.soak
def test_a_terminal_has_a_size_that_can_change_and_typing_is_noted(box):
    with box.paramiko() as client:
        channel = client.get_transport().open_session()
        channel.get_pty("xterm-256color", width=101, height=37)
        channel.invoke_shell()
        heard = Heard(channel)
        channel.sendall(b"stty size; echo $TERM; tty\n")
        assert heard.until(b"37 101", b"xterm-256color", b"/dev/")
        channel.resize_pty(width=55, height=21)
        channel.sendall(b"stty size\n")
        assert heard.until(b"21 55")
        channel.sendall(b"sleep 1000\n")
        assert wait_for(lambda: _sleepers(box), PATIENCE_S)
        channel.sendall(b"\x03echo inter''rupted\n")
        assert heard.until(b"interrupted")
        channel.sendall(b"exit 9\n")
        assert channel.recv_exit_status() == 9
    assert (box.home / ".cloudgpu" / "terminal-input").exists()


@pytest.mark.soak
def test_closing_a_terminal_hangs_up_what_runs_in_it(box):
    with box.paramiko() as client:
        channel = client.get_transport().open_session()
        channel.get_pty()
        channel.exec_command("sleep 1000")
        assert wait_for(lambda: _sleepers(box), PATIENCE_S)
    assert wait_for(lambda: not _sleepers(box), PATIENCE_S)


@pytest.mark.soak
def test_a_signal_reaches_a_command_whose_input_is_stuck(box):
    with box.paramiko() as client:
        channel = client.get_transport().open_session()
        channel.exec_command("exec sleep 1000")
        channel.sendall(bytes(500_000))  # more than a pipe holds at once: the server stops reading it on
        assert wait_for(lambda: _sleepers(box), PATIENCE_S)
        _signal(channel, "TERM")
        assert wait_for(lambda: not _sleepers(box), PATIENCE_S)


def test_a_loud_command_does_not_fill_the_memory_or_hold_up_others(box):
    server = int(box.cloud.layout(box.machine.id).lifetime_lock.read_text())
    with box.paramiko() as client:
        loud = client.get_transport().open_session()
        loud.exec_command("cat /dev/zero")  # nobody reads it
        assert len(loud.recv(1)) == 1
        with ThreadPoolExecutor(4) as pool:
            said = list(pool.map(lambda number: _say(client, number), range(12)))
        assert said == [f"{number}\n".encode() for number in range(12)]
        assert psutil.Process(server).memory_info().rss < 200_000_000


def test_forwarding_reaches_loopback_only(box):
    class Hello(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello")

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Hello) as web, box.paramiko() as client:
        threading.Thread(target=web.handle_request, daemon=True).start()
        channel = client.get_transport().open_channel("direct-tcpip", ("127.0.0.1", web.server_port), ("127.0.0.1", 1))
        channel.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert Heard(channel).until(b"hello")
        for place in ("192.0.2.1", "example.com", "10.0.0.1"):
            with pytest.raises(paramiko.ChannelException, match="Administratively prohibited"):
                client.get_transport().open_channel("direct-tcpip", (place, 80), ("127.0.0.1", 1))


def test_a_login_shell_finds_the_machines_python_first(box):
    with box.paramiko() as client:
        channel = client.get_transport().open_session()
        channel.invoke_shell()
        channel.sendall(b"python -c 'import sys; print(sys.prefix)'; exit\n")
        channel.shutdown_write()
        assert Heard(channel).until(b"/python\n")


class Heard:
    """What a channel has said so far."""

    def __init__(self, channel) -> None:
        self.channel = channel
        self.text = b""
        channel.settimeout(PATIENCE_S)

    def until(self, *words) -> bool:
        try:
            while not all(word in self.text for word in words):
                more = self.channel.recv(65536)
                if not more:
                    break
                self.text += more
        except TimeoutError:
            pass
        assert all(word in self.text for word in words), self.text
        return True


def _say(client, number):
    # Not by the client's exec_command: paramiko's file for the input, when it is collected, may send its end after the
    # channel's close, for which an SSH server drops the whole connection.
    channel = client.get_transport().open_session()
    channel.exec_command(f"echo {number}")
    return channel.makefile().read()


def _signal(channel, name) -> None:
    message = paramiko.Message()
    message.add_byte(bytes([98]))  # SSH_MSG_CHANNEL_REQUEST, RFC 4254 section 6.9
    message.add_int(channel.remote_chanid)
    message.add_string("signal")
    message.add_boolean(b=False)
    message.add_string(name)
    channel.transport._send_user_message(message)


def _sleepers(box):
    return [one for one in processes_under(box.cloud.home) if _words(one)[:2] == ["sleep", "1000"]]


def _words(process):
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:  # it has ended since it was listed
        return []


def test_a_session_that_finds_no_descriptor_free_keeps_none(tmp_path):
    settings = SessionSettings("ann", tmp_path, {}, "/bin/sh", lambda: None)

    async def left_open():
        limits, before = resource.getrlimit(resource.RLIMIT_NOFILE), open_descriptors()
        free = [number for number in range(len(before) + 5) if number not in before]
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[4] + 1, limits[1]))  # two pipes and a half
        try:
            with pytest.raises(OSError, match="Too many open files"):
                await Child.start(SimpleNamespace(term_type=None), settings)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        return open_descriptors() - before

    assert asyncio.run(left_open()) == set()


def open_descriptors():
    paths = list(Path("/proc/self/fd").iterdir())  # that of this listing, too, which is closed by now
    return {int(path.name) for path in paths if path.exists()}


def test_a_key_on_a_security_key_that_was_let_in_may_log_in(tmp_path):
    kind = b"sk-ssh-ed25519@openssh.com"
    blob = b"".join(struct.pack(">I", len(part)) + part for part in (kind, bytes(32), b"ssh:"))
    line = f"{kind.decode()} {base64.b64encode(blob).decode()} ann"
    (tmp_path / ".ssh").mkdir()
    server = _Server(SessionSettings("ann", tmp_path, {}, "/bin/sh", lambda: None), frozenset())
    assert not server.validate_public_key("ann", asyncssh.import_public_key(line))
    (tmp_path / ".ssh" / "authorized_keys").write_text(f"{line}\n")
    assert server.validate_public_key("ann", asyncssh.import_public_key(line))
