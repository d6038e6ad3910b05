"""The SSH server of a local machine: loopback and keys only, as one user; it is no sandbox.

Whoever may log in has the rights of the user who launched the machine, no more and no less.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import ipaddress
import os
import signal
import struct
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

CHUNK_BYTES = 256 * 1024  # read at once; the client's window bounds memory
PIPE_BYTES = 1024 * 1024  # size of a pipe, where the system lets us set it
FINAL_OUTPUT_S = 0.2  # how long a terminal is still read after its shell has ended
EXIT_INTERNAL_ERROR = 255  # the same status as OpenSSH's
CLIENT_VARIABLES = ("LANG", "LC_", "TERM", "COLORTERM")


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How sessions run: the login name, HOME and working directory, the environment, the shell.

    `on_input` is called when somebody types into a terminal.
    """

    user: str
    home: Path
    environ: Mapping[str, str]
    shell: str
    on_input: Callable[[], None]


class Session(asyncssh.SSHServerProcess[bytes]):
    """One session; signals and terminal sizes reach its process even while its input is stuck."""

    child: Child | None = None

    def terminal_size_changed(self, width: int, height: int, pixwidth: int, pixheight: int) -> None:
        """Pass a new size of the window on to the terminal."""
        if self.child is not None and self.child.terminal is not None:
            _set_size(self.child.terminal, (width, height, pixwidth, pixheight))

    def signal_received(self, signal: str) -> None:
        """Pass `INT`, `TERM`, ... on to what runs in the session."""
        if self.child is not None:
            self.child.send(signal)

    def break_received(self, msec: int) -> bool:  # noqa: ARG002  (asyncssh names it)
        """Treat a break as an interrupt."""
        self.signal_received("INT")
        return True


async def run(process: asyncssh.SSHServerProcess[bytes], settings: SessionSettings) -> None:
    """Run the client's command to its end. Never raises: an exception here would cut the whole connection."""
    try:
        await _run(process, settings)
    except Exception as error:  # noqa: BLE001  (see above)
        with contextlib.suppress(OSError):
            process.stderr.write(f"cloudgpu: {type(error).__name__}: {error}\n".encode())
        process.exit(EXIT_INTERNAL_ERROR)


async def _run(process: asyncssh.SSHServerProcess[bytes], settings: SessionSettings) -> None:
    child = await Child.start(process, settings)
    if isinstance(process, Session):
        process.child = child
    finished, closed = asyncio.create_task(child.finish()), asyncio.create_task(process.channel.wait_closed())
    try:
        await asyncio.wait((finished, closed), return_when=asyncio.FIRST_COMPLETED)
        if finished.done():
            child.report(finished.result())
    finally:
        finished.cancel()
        closed.cancel()
        await asyncio.gather(finished, closed, return_exceptions=True)
        child.close_pumps()


class Child:
    """The process of a session, with our ends of its pipes, or its terminal; pumps are tasks that move its data."""

    def __init__(self, process: asyncssh.SSHServerProcess[bytes], settings: SessionSettings) -> None:
        self.process = process
        self.settings = settings
        self.terminal: int | None = None
        self.subprocess: asyncio.subprocess.Process
        self._own_fds: list[int] = []
        self._pumps: list[asyncio.Task[None]] = []

    @classmethod
    async def start(cls, process: asyncssh.SSHServerProcess[bytes], settings: SessionSettings) -> Child:
        """Start the command, or a login shell, and begin to move its data."""
        child = cls(process, settings)
        try:
            await (child._start_in_terminal() if process.term_type is not None else child._start_with_pipes())
        except BaseException:
            child.close_pumps()
            raise
        return child

    async def _start_in_terminal(self) -> None:
        master, slave = os.openpty()
        self._own_fds.append(master)
        self.terminal = master
        _set_size(master, self.process.term_size)
        try:
            await self._spawn((slave,) * 3, {"TERM": self.process.term_type or "dumb", "SSH_TTY": os.ttyname(slave)})
        finally:
            os.close(slave)
        os.set_blocking(master, False)
        self._pump(_pump_input(self.process.stdin, master, on_input=self.settings.on_input))
        self._pump(_pump_output(master, self.process.stdout))

    async def _start_with_pipes(self) -> None:
        child_fds: list[int] = []
        try:
            for own_end in (1, 0, 0):  # of its standard input we have the end to write to
                pipe = os.pipe()
                self._own_fds.append(pipe[own_end])
                child_fds.append(pipe[1 - own_end])
            await self._spawn(child_fds, {})
        finally:
            for child_fd in child_fds:
                os.close(child_fd)
        for own_fd in self._own_fds:
            os.set_blocking(own_fd, False)
            _enlarge_pipe(own_fd)
        stdin, stdout, stderr = self._own_fds
        self._own_fds.remove(stdin)
        self._pump(_pump_input(self.process.stdin, stdin))
        self._pump(_pump_output(stdout, self.process.stdout))
        self._pump(_pump_output(stderr, self.process.stderr))

    async def _spawn(self, streams: Sequence[int], extra_environ: Mapping[str, str]) -> None:
        """Start the command; `streams` are the descriptors of its standard input, output and error."""
        shell, command = self.settings.shell, self.process.command
        argv = [shell, "-c", command] if command is not None else [f"-{os.path.basename(shell)}"]  # noqa: PTH119
        self.subprocess = await asyncio.create_subprocess_exec(
            *argv,
            executable=shell,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            cwd=self.settings.home,
            env={
                **_client_environ(self.process),
                **self.settings.environ,
                **_connection_environ(self.process),
                **extra_environ,
            },
            start_new_session=True,
            preexec_fn=_take_controlling_terminal if self.terminal is not None else None,
        )

    def _pump(self, pump: Any) -> None:
        self._pumps.append(asyncio.create_task(pump))

    async def finish(self) -> int:
        """Wait for the end and for the last of the output; return the status as Popen has it (negative: a signal).

        As OpenSSH does, pipes are read until nobody holds them any more; a terminal ends with its shell.
        """
        status = await self.subprocess.wait()
        await asyncio.wait(self._pumps[1:], timeout=FINAL_OUTPUT_S if self.terminal is not None else None)
        return status

    def report(self, status: int) -> None:
        """Tell the client how the command ended."""
        if status >= 0:
            self.process.exit(status)
        else:
            self.process.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))

    def send(self, name: str) -> None:
        """Send the named signal to the session's processes; an unknown name is no signal."""
        number = getattr(signal, f"SIG{name}", None)
        if not isinstance(number, signal.Signals) or self.subprocess.returncode is not None:
            return
        group = self.subprocess.pid
        if self.terminal is not None:
            with contextlib.suppress(OSError):
                group = os.tcgetpgrp(self.terminal) or group
        with contextlib.suppress(OSError):
            os.killpg(group, number)

    def close_pumps(self) -> None:
        """Stop moving data and close our ends: a terminal's processes get a hang-up, others a broken pipe."""
        for pump in self._pumps:
            pump.cancel()
        while self._own_fds:
            fd = self._own_fds.pop()
            loop = asyncio.get_running_loop()
            loop.remove_reader(fd)
            loop.remove_writer(fd)
            os.close(fd)
        self.terminal = None


async def _pump_input(stdin: asyncssh.SSHReader[bytes], fd: int, on_input: Callable[[], None] | None = None) -> None:
    """Move the client's input to the child. A child that reads no more does not stop the client."""
    try:
        is_open = True
        while data := await stdin.read(CHUNK_BYTES):
            if on_input is not None:
                on_input()
            is_open = is_open and await _write(fd, data)
        if on_input is not None and is_open:
            await _write(fd, b"\x04")  # the end of input, as a terminal has it
    except (OSError, asyncssh.Error):
        pass  # the connection is gone: the end of the session cleans up
    finally:
        if on_input is None:
            asyncio.get_running_loop().remove_writer(fd)
            os.close(fd)


async def _pump_output(fd: int, writer: asyncssh.SSHWriter[bytes]) -> None:
    try:
        while data := await _read(fd):
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(0)  # a loud command must not silence the other sessions
    except (OSError, asyncssh.Error):
        pass


async def _read(fd: int) -> bytes:
    while True:
        try:
            return os.read(fd, CHUNK_BYTES)
        except BlockingIOError:
            await _wait_ready(fd, writing=False)
        except OSError as error:
            if error.errno == errno.EIO:  # a terminal that nobody holds any more (Linux)
                return b""
            raise


async def _write(fd: int, data: bytes) -> bool:
    """Write all of `data`; return False when the reader has closed the other end."""
    remaining = memoryview(data)
    while remaining:
        try:
            remaining = remaining[os.write(fd, remaining) :]
        except BlockingIOError:
            await _wait_ready(fd, writing=True)
        except OSError:
            return False
    return True


async def _wait_ready(fd: int, *, writing: bool) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    add, remove = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
    add(fd, _set_ready, ready)
    try:
        await ready
    finally:
        remove(fd)


def _set_ready(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _take_controlling_terminal() -> None:
    """Make standard input the controlling terminal (runs in the child, between fork and exec)."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _set_size(fd: int, size: tuple[int, int, int, int]) -> None:
    width, height, pixwidth, pixheight = (min(max(number, 0), 65535) for number in size)
    with contextlib.suppress(OSError):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, pixwidth, pixheight))


def _enlarge_pipe(fd: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # above the user's limit: the default is right too
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _client_environ(process: asyncssh.SSHServerProcess[bytes]) -> dict[str, str]:
    return {key: value for key, value in process.env.items() if key.startswith(CLIENT_VARIABLES)}


def _connection_environ(process: asyncssh.SSHServerProcess[bytes]) -> dict[str, str]:
    client, server = (process.get_extra_info(name) for name in ("peername", "sockname"))
    if not client or not server:
        return {}
    return {"SSH_CONNECTION": f"{client[0]} {client[1]} {server[0]} {server[1]}"}


LOOPBACK = "127.0.0.1"
LOGIN_TIMEOUT_S = 20


async def serve(
    *,
    host_key: str,
    authorized_keys: Sequence[str],
    user: str,
    home: Path,
    environ: Mapping[str, str],
    port: int = 0,
    shell: str = "/bin/sh",
    on_input: Callable[[], None] = lambda: None,
) -> asyncssh.SSHAcceptor:
    """Listen on 127.0.0.1 and return the acceptor; its `get_port()` says where.

    `host_key` is an OpenSSH private key, `authorized_keys` are OpenSSH public lines; only `user` may log in.
    Keys in ~/.ssh/authorized_keys are let in, too, as they stand at each login.
    Sessions run in `home` with `environ` and nothing else. `on_input` is called when somebody types.
    Raises OSError when the port is taken.
    """
    settings = SessionSettings(user, home, {**environ, "HOME": str(home)}, shell, on_input)
    authorized = frozenset(asyncssh.import_public_key(line).public_data for line in authorized_keys)
    return await asyncssh.listen(
        LOOPBACK,
        port,
        server_factory=lambda: _Server(settings, authorized),
        server_host_keys=[asyncssh.import_private_key(host_key)],
        encoding=None,
        line_editor=False,
        agent_forwarding=False,
        login_timeout=LOGIN_TIMEOUT_S,
        reuse_address=True,
    )


class _Server(asyncssh.SSHServer):
    """One connection."""

    def __init__(self, settings: SessionSettings, authorized: frozenset[bytes]) -> None:
        self._settings = settings
        self._authorized = authorized
        self._connection: asyncssh.SSHServerConnection

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002  (everybody has to prove who they are)
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        is_authorized = key.public_data in self._authorized or key.public_data in _keys_in_home(self._settings.home)
        return username == self._settings.user and is_authorized

    def session_requested(self) -> tuple[asyncssh.SSHServerChannel[bytes], Session]:
        channel = self._connection.create_server_channel(encoding=None)
        return channel, Session(self._run, self._sftp, 3, False)  # noqa: FBT003  (no scp of asyncssh's own)

    async def _run(self, process: asyncssh.SSHServerProcess[bytes]) -> None:  # the hosts of tests override it
        await run(process, self._settings)

    def _sftp(self, channel: Any) -> _SftpServer:  # asyncssh does not export the type it names here
        return _SftpServer(channel, self._settings.home)

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:  # noqa: ARG002
        if _is_loopback(dest_host):
            return True
        raise asyncssh.ChannelOpenError(
            asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, f"only this machine's loopback can be reached, not {dest_host}"
        )


def _keys_in_home(home: Path) -> set[bytes]:
    """Return the keys in ~/.ssh/authorized_keys, without lines whose options would limit what a key may do."""
    keys = set()
    with contextlib.suppress(OSError):
        for line in (home / ".ssh" / "authorized_keys").read_text(errors="replace").splitlines():
            if line.startswith(("ssh-", "ecdsa-", "sk-")):
                with contextlib.suppress(asyncssh.KeyImportError):
                    keys.add(asyncssh.import_public_key(line).public_data)
    return keys


class _SftpServer(asyncssh.SFTPServer):
    """File transfer; relative paths start in the machine's home."""

    def __init__(self, channel: asyncssh.SSHServerChannel[bytes], home: Path) -> None:
        super().__init__(channel)
        self._home = os.fsencode(home)

    def map_path(self, path: bytes) -> bytes:
        return os.path.join(self._home, path)  # noqa: PTH118  (paths are bytes here)

    def exit(self) -> None:
        # without a status OpenSSH's scp calls a good copy a failure
        self.channel.exit(0)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
