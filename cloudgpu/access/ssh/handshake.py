"""Opens an SSH transport: connect, verify the pinned host key, log in with our key and no other."""

from __future__ import annotations

import threading
import time

from cloudgpu.access.ssh import jump
from cloudgpu.access.ssh.client_files import check_private
from cloudgpu.access.ssh.jump import dial, no_answer_error
from cloudgpu.access.ssh.target import KeyRefused, LoginRefused, Target, reason
from cloudgpu.access.ssh.transport import (
    CONNECTION_ERRORS,
    Ed25519Key,
    IncompatiblePeer,
    PasswordRequiredException,
    PKey,
    SSHException,
    SshTransport,
)
from cloudgpu.errors import InvalidRequest, WrongHostKey


def open_transport(target: Target, host_key: str, deadline: float) -> SshTransport:
    """Return a transport to the machine that owns this host key, logged in with our key.

    `deadline` is in monotonic seconds. Raises WrongHostKey (nothing secret was sent), LoginRefused, Unreachable,
    InvalidRequest (the key file here).
    """
    return open_transport_with(target, host_key, _read_client_key(target), deadline)


def open_transport_with(target: Target, host_key: str, key: PKey, deadline: float) -> SshTransport:
    """Return a transport to the machine that owns this host key, logged in with `key`; raises as `open_transport`."""
    connected_socket = dial(target, deadline)
    deadline += jump.LOGIN_TIMEOUT_S if target.jump else 0
    transport = SshTransport(connected_socket, host_key.split(" ", 1)[0])
    try:
        _start_client(target, transport, deadline)
        _check_host_key(target, host_key, transport)
        _log_in(target, transport, key, deadline)
    except BaseException as error:
        transport.close()
        connected_socket.close()
        if isinstance(connected_socket, jump.ProxySocket):
            raise connected_socket.explain(target, error) from error
        raise
    return transport


def _read_client_key(target: Target) -> Ed25519Key:
    check_private(target.key_file)
    try:
        return Ed25519Key.from_private_key_file(str(target.key_file))
    except (SSHException, PasswordRequiredException, OSError, ValueError) as error:
        raise InvalidRequest(
            f"The private key {target.key_file} cannot be used: it is not an OpenSSH ed25519 key without a passphrase.",
            field="keys",
            value=str(target.key_file),
            next="Restore it from a backup, or move it away (a new one logs in to new machines only).",
        ) from error


def _start_client(target: Target, transport: SshTransport, deadline: float) -> None:
    """Exchange keys; paramiko verifies here that the server owns the host key that it shows."""
    seconds_left = max(0.1, deadline - time.monotonic())
    transport.banner_timeout = transport.handshake_timeout = seconds_left
    try:
        transport.start_client(timeout=seconds_left)
    except IncompatiblePeer as error:
        if "host key" in str(error):
            raise _wrong_key_error(target, "a host key of another kind") from error
        raise _incompatible_error(target, error) from error
    except SSHException as error:
        if not transport.remote_version:  # no banner: the server is just starting, or is no SSH server
            raise no_answer_error(target, "it did not introduce itself as an SSH server") from error
        raise _incompatible_error(target, error) from error
    except (EOFError, OSError) as error:
        raise no_answer_error(target, "it closed the connection") from error
    if not transport.initial_kex_done:
        raise no_answer_error(target, "it stopped answering during the key exchange")


def _check_host_key(target: Target, host_key: str, transport: SshTransport) -> None:
    server_key = transport.get_remote_server_key()
    if f"{server_key.get_name()} {server_key.get_base64()}" != host_key:
        raise _wrong_key_error(target, "another host key")


def _log_in(target: Target, transport: SshTransport, key: PKey, deadline: float) -> None:
    answered = threading.Event()
    try:
        transport.auth_publickey(target.address.user, key, answered)
    except CONNECTION_ERRORS as error:
        raise no_answer_error(target, "it closed the connection during the login") from error
    if not answered.wait(max(0.1, deadline - time.monotonic())):
        raise no_answer_error(target, "it stopped answering during the login")
    if transport.is_authenticated():
        return
    if isinstance(transport.get_exception(), (EOFError, OSError)):
        raise no_answer_error(target, "it closed the connection during the login")
    raise KeyRefused(
        f"{target.name} does not accept our key for the user {target.address.user}.",
        field="keys",
        value=str(target.key_file),
        next="Connect from the computer that launched it, or add our public key to its ~/.ssh/authorized_keys.",
    )


def _wrong_key_error(target: Target, shown_key: str) -> WrongHostKey:
    """Return the error for a wrong host key; `shown_key` says what the machine showed, such as `another host key`."""
    return WrongHostKey(
        f"The machine at {target.host_and_port} showed {shown_key} than the one pinned for "
        f"{target.name}: it is another machine, or somebody is in between.",
        field="known_hosts",
        value=target.id,
        next=f"Nothing was sent to it. Compare with what the provider says: cloudgpu show {target.name} --refresh",
    )


def _incompatible_error(target: Target, error: Exception) -> LoginRefused:
    return LoginRefused(
        f"{target.name} and this computer could not agree on how to encrypt: {reason(error)}.",
        field="name",
        value=target.name,
        next="Bring the machine's SSH server up to date.",
    )
