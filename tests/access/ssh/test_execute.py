from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import os
import pty
import resource
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from queue import SimpleQueue

import pytest

from cloudgpu.access.ssh.connection import connect
from cloudgpu.access.ssh.execute import _as_terminal, run
from cloudgpu.access.ssh.streams import exchange
from cloudgpu.errors import Frozen, InvalidRequest, Unreachable
from tests.access.opensshd import opensshd
from tests.access.sshserver import ROOT, wait_for

CALLER = """
import sys
from pathlib import Path
from cloudgpu.access.ssh.connection import connect
from cloudgpu.access.ssh.execute import run
from tests.access.sshserver import Server
server = Server(Path(sys.argv[1]))
server.port = int(sys.argv[2])
with connect(server.target, timeout=10) as connection:
    status = run(connection, sys.argv[3:], stdin=sys.stdin.buffer, stdout=sys.stdout.buffer,
                 stderr=sys.stderr.buffer, tty=None)
sys.exit(status)
"""


@pytest.fixture
def streams():
    return {"stdin": None, "stdout": io.BytesIO(), "stderr": io.BytesIO()}


def caller(server, *argv, **more):
    """Start a process of its own that runs a command there, as the command line does."""
    command = [sys.executable, "-c", CALLER, str(server.root), str(server.port), *argv]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **more)


@pytest.mark.parametrize("status", [0, 1, 42, 255])
def test_the_status_is_the_commands_own(connection, streams, status):
    assert run(connection, ["sh", "-c", f"exit {status}"], **streams) == status


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV"])
def test_a_signal_is_told_as_a_shell_tells_it(connection, streams, name):
    number = getattr(signal, f"SIG{name}")
    assert run(connection, ["sh", "-c", f"exec sh -c 'kill -{name} $$'"], **streams) == 128 + number


def test_a_command_that_does_not_exist_is_127(connection, streams):
    assert run(connection, ["no-such-command"], **streams) == 127
    assert b"no-such-command" in streams["stderr"].getvalue()


def test_the_streams_are_kept_apart_and_binary(connection, streams):
    streams["stdin"] = io.BytesIO(bytes(range(256)))
    assert run(connection, ["sh", "-c", "printf '\\377\\000' >&2; cat"], **streams) == 0
    assert streams["stdout"].getvalue() == bytes(range(256))
    assert streams["stderr"].getvalue() == b"\xff\x00"


@pytest.mark.parametrize("word", ["", "two words", "$HOME", "a'b", 'a"b', "*", "ü", "; echo no", "a\nb", "\\"])
def test_every_word_arrives_as_it_was_given(connection, streams, word):
    assert run(connection, ["printf", "%s", word], **streams) == 0
    assert streams["stdout"].getvalue().decode() == word


def test_no_command_is_refused(connection, streams):
    with pytest.raises(InvalidRequest):
        run(connection, [], **streams)


@pytest.mark.soak
def test_the_end_of_input_is_passed_on_and_much_of_it_arrives(connection, streams, tmp_path):
    data = os.urandom(1 << 20) * 30
    (tmp_path / "input").write_bytes(data)
    with (tmp_path / "input").open("rb") as streams["stdin"]:
        assert run(connection, ["sha256sum"], **streams) == 0
    assert streams["stdout"].getvalue().split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_without_input_the_command_sees_its_end_at_once(connection, streams):
    assert run(connection, ["cat"], **streams) == 0


def test_a_command_that_reads_nothing_does_not_wait_for_input(connection, streams):
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as streams["stdin"], os.fdopen(writer, "wb"):
        assert run(connection, ["echo", "done"], **streams) == 0
    streams["stdin"] = io.BytesIO(b"x" * 10_000_000)
    assert run(connection, ["true"], **streams) == 0


def test_input_arrives_from_a_file_whose_number_is_above_1023(connection, streams, tmp_path):
    (tmp_path / "input").write_bytes(b"all of it")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    try:
        with (tmp_path / "input").open("rb") as low:
            number = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 1024)
        with os.fdopen(number, "rb") as streams["stdin"]:
            assert run(connection, ["cat"], **streams) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert streams["stdout"].getvalue() == b"all of it"


def test_a_terminal_that_went_away_ends_the_input_of_the_command(connection, streams):
    ours, theirs = pty.openpty()
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as streams["stdin"]:  # reading it fails with EIO
        assert run(connection, ["sh", "-c", "cat; exit 3"], **streams) == 3


def test_a_file_that_cannot_be_read_to_its_end_is_an_error_when_the_command_has_ended(connection, streams):
    # The first page of a process cannot be read: EIO.
    memory = Path("/proc/self/mem")
    with memory.open("rb", buffering=0) as streams["stdin"], pytest.raises(OSError, match="Input/output"):
        run(connection, ["sh", "-c", "cat; echo ended"], **streams)
    assert streams["stdout"].getvalue() == b"ended\n"


def test_a_connection_that_breaks_while_the_end_of_input_is_sent_is_no_status(connection, streams):
    with connection.session() as channel:
        channel.exec_command("cat")
        connection.transport.sock.shutdown(socket.SHUT_WR)
        assert exchange(channel, **streams) is None


def test_a_file_that_could_not_be_read_is_an_error_also_where_the_connection_breaks_after_it(connection, streams):
    class Unreadable(io.RawIOBase):
        def read(self, size=-1):
            raise OSError(errno.EIO, "Input/output error")

    class Breaking(io.BytesIO):
        def write(self, data):  # the first output comes after the end of the input
            with contextlib.suppress(OSError):  # broken already
                connection.transport.sock.shutdown(socket.SHUT_WR)
            return super().write(data)

    streams.update(stdin=Unreadable(), stdout=Breaking())
    with connection.session() as channel:
        channel.exec_command("cat; yes | head -c 10000000")
        with pytest.raises(OSError, match="Input/output"):
            exchange(channel, **streams)


def test_the_channel_is_closed_when_the_output_could_not_be_written(connection, streams):
    with Path("/dev/full").open("wb", buffering=0) as streams["stdout"], connection.session() as channel:
        channel.exec_command("echo x")
        with pytest.raises(OSError, match="space"):
            exchange(channel, **streams)
        assert channel.closed


def test_output_after_the_streams_were_closed_does_not_hide_the_status(connection, streams):
    assert run(connection, ["sh", "-c", "exec >&- 2>&-; sleep 0.3; exit 9"], **streams) == 9


@pytest.mark.soak
def test_a_reader_who_goes_away_ends_the_command(server):
    with caller(server, "yes", stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as one:
        assert one.stdout.read(4) == b"y\ny\n"
        one.stdout.close()
        assert one.wait(20) == 141


@pytest.mark.soak
def test_a_slow_reader_slows_the_command_down(server):
    command = ["sh", "-c", "yes | tee /dev/null & sleep 0.1; wait"]
    with caller(server, *command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as one:
        one.stdout.read(4)
        used = rss(one.pid)
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            assert rss(one.pid) < used + 64_000_000
            time.sleep(0.1)
        one.kill()


def test_a_word_arrives_at_openssh_whatever_its_bytes_are(tmp_path, streams):
    """As names of files do. The local provider's server refuses what is not UTF-8."""
    with opensshd(tmp_path / "open") as server, connect(server.target, timeout=20) as connection:
        assert run(connection, ["printf", "%s", os.fsdecode(b"caf\xe9 $HOME")], **streams) == 0
    assert streams["stdout"].getvalue() == b"caf\xe9 $HOME"


def test_ctrl_c_interrupts_the_command_there_and_returns_130(server):
    script = "trap 'echo interrupted > seen; exit' INT; echo ready; while :; do sleep 0.05; done"
    with caller(server, "sh", "-c", script, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as one:
        assert one.stdout.readline() == b"ready\n"
        one.send_signal(signal.SIGINT)
        assert one.wait(20) == 130
    wait_for((server.home / "seen").exists)


def test_a_connection_lost_on_the_way_is_no_status_of_the_command(server, connection, streams):
    answer = []

    def go():
        try:
            answer.append(run(connection, ["sh", "-c", "echo ready; sleep 60"], **streams))
        except Unreachable as fault:
            answer.append(fault)

    running = threading.Thread(target=go)
    running.start()
    wait_for(streams["stdout"].getvalue)
    server.kill()
    running.join(10)
    assert isinstance(answer[0], Unreachable)
    assert "was lost" in answer[0].message


def test_a_machine_that_freezes_on_the_way_is_said(server, connection, streams):
    threading.Timer(0.3, server.freeze).start()
    with pytest.raises(Frozen):
        run(connection, ["sleep", "60"], **streams, ping_after_s=0.2, answer_timeout_s=0.6)
    server.thaw()


def test_a_full_disk_here_is_not_taken_for_a_lost_connection(connection, streams):
    with Path("/dev/full").open("wb", buffering=0) as streams["stdout"], pytest.raises(OSError, match="space"):
        run(connection, ["echo", "x"], **streams)
    assert connection.is_open


def test_a_reader_who_went_away_is_141(connection):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb", buffering=0) as stdout:
        assert run(connection, ["echo", "said"], stdin=None, stdout=stdout, stderr=io.BytesIO()) == 141


def test_a_terminal_hands_on_each_key_and_size_and_is_as_it_was_afterwards():
    class Sized:
        """The other library's channel, which is told sizes."""

        sizes = SimpleQueue()

        def resize_pty(self, *size):
            self.sizes.put(size)

    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    with os.fdopen(theirs, "r+b", buffering=0) as terminal:
        with _as_terminal(Sized(), terminal, terminal):
            assert not termios.tcgetattr(theirs)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
            os.kill(os.getpid(), signal.SIGWINCH)
            assert Sized.sizes.get(timeout=60) == (100, 30)
        assert termios.tcgetattr(theirs) == before
    os.close(ours)


def test_a_terminal_is_as_it_was_after_a_signal_that_ends_us(server):
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    with caller(server, "sh", "-c", "echo go; sleep 60", stdin=slave, stdout=slave, stderr=slave) as one:
        Screen(master).shows(b"go")
        one.send_signal(signal.SIGTERM)
        assert one.wait(20) == -signal.SIGTERM
    assert termios.tcgetattr(slave)[:4] == before[:4]
    os.close(master)
    os.close(slave)


@pytest.mark.soak
def test_on_a_terminal_keys_sizes_and_status_are_those_of_a_terminal(server):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
    before = termios.tcgetattr(slave)
    script = "stty size; trap 'stty size' WINCH; echo go; read -r line; echo got:$line; read -r line; exit 5"
    one = caller(server, "bash", "-c", script, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    said = Screen(master)
    said.shows(b"33 101")
    said.shows(b"go")
    os.write(master, b"hello\r")
    said.shows(b"got:hello")
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 111, 0, 0))
    one.send_signal(signal.SIGWINCH)  # the kernel sends it to a controlling terminal's own group only
    os.write(master, b"\r")
    assert one.wait(20) == 5
    assert termios.tcgetattr(slave)[:4] == before[:4]
    os.close(master)
    os.close(slave)


@pytest.mark.soak
def test_ctrl_c_on_a_terminal_goes_to_the_command_and_not_to_us(server):
    master, slave = pty.openpty()
    script = "trap 'echo caught; exit 6' INT; echo go; while :; do sleep 0.05; done"
    one = caller(server, "bash", "-c", script, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    said = Screen(master)
    said.shows(b"go")
    os.write(master, b"\x03")
    said.shows(b"caught")
    assert one.wait(20) == 6
    os.close(master)
    os.close(slave)


class Screen:
    """What has appeared on a terminal so far."""

    def __init__(self, master):
        self.master = master
        self.seen = b""
        os.set_blocking(master, False)

    def shows(self, text):
        def looked():
            with contextlib.suppress(BlockingIOError):
                self.seen += os.read(self.master, 65536)
            return text in self.seen

        try:
            wait_for(looked, 20)
        except AssertionError:
            raise AssertionError(f"{text!r} never appeared in {self.seen!r}") from None


def rss(pid):
    """Return the bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
