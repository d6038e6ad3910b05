"""A machine to connect to, with its keys; and the host key of an unknown machine, which a person has to compare."""

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
        """Its address as text for a message."""
        through = f" through {self.jump}" if self.jump else ""
        return f"{self.address.host}:{self.address.port}{through}"


class LoginRefused(Unreachable):
    """The machine showed the right host key, and refuses our login. Never retried: nothing would change."""


class KeyRefused(LoginRefused):
    """The machine does not let our key in for its user; another key, or another home's, may be."""


class AccessBlocked(LoginRefused):
    """The jump host or the firewall before the machine refuses this client; the machine itself may be fine."""


def reason(error: Exception) -> str:
    """Return the text of an operating system or SSH error, as the end of a sentence."""
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


def shown_host_key(host: str, port: int, *, timeout_s: float = TIMEOUT_S) -> str:
    """Return the host key of the SSH server at `host:port`, as `ssh-ed25519 AAAA...`, without a login.

    An attacker in between could show another key: a person has to compare its `fingerprint`.
    Raises Unreachable when no SSH server answers within `timeout_s` seconds.
    """
    from cloudgpu.access.ssh.transport import CONNECTION_ERRORS, SSHException, SshTransport

    deadline = time.monotonic() + timeout_s
    try:
        connection = socket.create_connection((host, port), timeout_s)
    except (OSError, UnicodeError) as error:
        raise _no_answer_error(host, port, reason(error)) from error
    transport = SshTransport(connection, KEY_TYPES[0])
    try:
        transport.get_security_options().key_types = KEY_TYPES
        seconds_left = max(0.1, deadline - time.monotonic())
        transport.banner_timeout = transport.handshake_timeout = seconds_left
        transport.start_client(timeout=seconds_left)
        key = transport.get_remote_server_key()
    except (SSHException, *CONNECTION_ERRORS) as error:
        reason_text = reason(error) if transport.remote_version else "it did not introduce itself as an SSH server"
        raise _no_answer_error(host, port, reason_text) from error
    finally:
        transport.close()
        connection.close()
    return f"{key.get_name()} {key.get_base64()}"


def fingerprint(public_line: str) -> str:
    """Return a key's fingerprint as OpenSSH prints it: `SHA256:` and base64 without padding."""
    blob = base64.b64decode(public_line.split(" ")[1])
    return f"SHA256:{base64.b64encode(hashlib.sha256(blob).digest()).decode('ascii').rstrip('=')}"


def _no_answer_error(host: str, port: int, reason_text: str) -> Unreachable:
    return Unreachable(
        f"{host} shows no SSH host key at port {port}: {reason_text}.",
        field="--host",
        value=f"{host}:{port}",
        next="Correct the address, or start the machine and its SSH server, and run the same again.",
    )
