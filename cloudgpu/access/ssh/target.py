"""Which machine to connect to and with which keys; reads the host key of an unknown machine.

A person compares that host key before it is pinned.
"""

from __future__ import annotations

import base64
import hashlib
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from cloudgpu.core.model.instances import Address
from cloudgpu.core.values.network import JumpHost
from cloudgpu.errors import Unreachable


@dataclass(frozen=True, slots=True)
class Target:
    """A machine as SSH sees it. Its host key is pinned in `known_hosts` under the alias `id`, whatever its address.

    `jump` is the host through which `address` is reached, None for a direct connection.
    """

    id: str
    name: str
    address: Address
    key_file: Path
    known_hosts: Path
    jump: JumpHost | None = None

    @property
    def host_and_port(self) -> str:
        """Where it is, for a sentence."""
        through = f" through {self.jump}" if self.jump else ""
        return f"{self.address.host}:{self.address.port}{through}"


class LoginRefused(Unreachable):
    """The machine is the right one and does not let us in. Never retried: nothing would change."""


class AccessBlocked(LoginRefused):
    """Something on the way does not let us through; the machine itself may be well."""


def reason(error: Exception) -> str:
    """Return what an operating system or SSH error says, as the end of a sentence."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).strip().rstrip(".").lower()


TIMEOUT_S = 10.0
# The server's first type in this order is shown and pinned; later connections accept only that type.
KEY_TYPES = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)


def shown_host_key(host: str, port: int, *, within_s: float = TIMEOUT_S) -> str:
    """Return the key that the SSH server at `host:port` owns, as `ssh-ed25519 AAAA...`. Nothing is sent, no login.

    Whoever is in between could show a key of their own: a person has to compare its `fingerprint`.
    Raises Unreachable when no SSH server answers within `within_s` seconds.
    """
    from cloudgpu.access.ssh.transport import CONNECTION_ERRORS, SSHException, SshTransport

    deadline = time.monotonic() + within_s
    try:
        connected = socket.create_connection((host, port), within_s)
    except (OSError, UnicodeError) as error:
        raise _no_answer(host, port, reason(error)) from error
    transport = SshTransport(connected, KEY_TYPES[0])
    try:
        transport.get_security_options().key_types = KEY_TYPES
        left = max(0.1, deadline - time.monotonic())
        transport.banner_timeout = transport.handshake_timeout = left
        transport.start_client(timeout=left)
        key = transport.get_remote_server_key()
    except (SSHException, *CONNECTION_ERRORS) as error:
        why = reason(error) if transport.remote_version else "it did not introduce itself as an SSH server"
        raise _no_answer(host, port, why) from error
    finally:
        transport.close()
        connected.close()
    return f"{key.get_name()} {key.get_base64()}"


def fingerprint(public_line: str) -> str:
    """Return a key's fingerprint as OpenSSH prints it: `SHA256:` and base64 without padding."""
    blob = base64.b64decode(public_line.split(" ")[1])
    return f"SHA256:{base64.b64encode(hashlib.sha256(blob).digest()).decode('ascii').rstrip('=')}"


def _no_answer(host: str, port: int, why: str) -> Unreachable:
    return Unreachable(
        f"{host} shows no SSH host key at port {port}: {why}.",
        field="--host",
        value=f"{host}:{port}",
        next="Correct the address, or start the machine and its SSH server, and run the same again.",
    )
