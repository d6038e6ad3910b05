"""The SSH server of a local machine: loopback and keys only, as one user; it is no sandbox.

Whoever may log in has the rights of the user who launched the machine, no more and no less.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import asyncssh

from cloudgpu.providers.local import session

LOOPBACK = "127.0.0.1"
LOGIN_S = 20


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
    room = session.Room(user, home, {**environ, "HOME": str(home)}, shell, on_input)
    known = frozenset(asyncssh.import_public_key(line).public_data for line in authorized_keys)
    return await asyncssh.listen(
        LOOPBACK,
        port,
        server_factory=lambda: _Server(room, known),
        server_host_keys=[asyncssh.import_private_key(host_key)],
        encoding=None,
        line_editor=False,
        agent_forwarding=False,
        login_timeout=LOGIN_S,
        reuse_address=True,
    )


class _Server(asyncssh.SSHServer):
    """One connection."""

    def __init__(self, room: session.Room, known: frozenset[bytes]) -> None:
        self._room = room
        self._known = known
        self._connection: asyncssh.SSHServerConnection

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002  (everybody has to prove who they are)
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        known = key.public_data in self._known or key.public_data in _let_in(self._room.home)
        return username == self._room.user and known

    def session_requested(self) -> tuple[asyncssh.SSHServerChannel[bytes], session.Session]:
        channel = self._connection.create_server_channel(encoding=None)
        return channel, session.Session(self._run, self._sftp, 3, False)  # noqa: FBT003  (no scp of asyncssh's own)

    async def _run(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        await session.run(process, self._room)

    def _sftp(self, channel: Any) -> _Files:  # asyncssh does not export the type it names here
        return _Files(channel, self._room.home)

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:  # noqa: ARG002
        if _is_loopback(dest_host):
            return True
        raise asyncssh.ChannelOpenError(
            asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, f"only this machine's loopback can be reached, not {dest_host}"
        )


def _let_in(home: Path) -> set[bytes]:
    """Return the keys in ~/.ssh/authorized_keys, without lines whose options would limit what a key may do."""
    found = set()
    with contextlib.suppress(OSError):
        for line in (home / ".ssh" / "authorized_keys").read_text(errors="replace").splitlines():
            if line.startswith(("ssh-", "ecdsa-")):
                with contextlib.suppress(asyncssh.KeyImportError):
                    found.add(asyncssh.import_public_key(line).public_data)
    return found


class _Files(asyncssh.SFTPServer):
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
