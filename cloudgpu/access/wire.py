"""The SSH transport as we need it of paramiko. Importing this imports paramiko: do it inside functions.

Two things paramiko does not tell are added: when the other side was last heard, and which signal ended a command.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import time
from typing import Any, cast

from paramiko.channel import Channel
from paramiko.common import MSG_CHANNEL_CLOSE, MSG_CHANNEL_REQUEST
from paramiko.ed25519key import Ed25519Key
from paramiko.message import Message
from paramiko.packet import Packetizer
from paramiko.pkey import PKey
from paramiko.ssh_exception import IncompatiblePeer, PasswordRequiredException, SSHException
from paramiko.transport import Transport

from cloudgpu.access.lane import BROKEN, Lane

__all__ = [
    "BROKEN",
    "Ed25519Key",
    "IncompatiblePeer",
    "Message",
    "PKey",
    "PasswordRequiredException",
    "SSHException",
    "Wire",
    "hang_up",
]

# GCM is encrypted and authenticated in one hardware-assisted pass: 251 to 350 MB/s where aes-ctr gave 133 to 188.
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes256-ctr", "aes192-ctr", "aes128-ctr")
MACS = ("hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha2-256", "hmac-sha2-512")
SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}

# What paramiko does with messages of a channel. Not in its documentation, and there is no other door;
# tests/access would notice a change, and the dependency is bound to paramiko 5.
_PLAIN: dict[int, Any] = vars(Transport)["_channel_handler_table"]

# Its errors reach the user as ours; without a handler Python would print paramiko's tracebacks to stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class _Packetizer(Packetizer):
    """Notes when the last packet came in (monotonic seconds): any packet is a sign of life."""

    heard = 0.0

    def read_message(self) -> tuple[int, Message]:
        read = super().read_message()
        self.heard = time.monotonic()
        return read


def _request(channel: Channel, message: Message) -> None:
    """Take `exit-signal` as a shell does, 128 + its number; leave every other request to paramiko."""
    start = message.packet.tell()
    if message.get_text() != "exit-signal":
        message.packet.seek(start)
        _PLAIN[MSG_CHANNEL_REQUEST](channel, message)
        return
    message.get_boolean()
    number = getattr(signal, f"SIG{message.get_text()}", None)
    channel.exit_status = 128 + (int(number) if number else 0)
    channel.status_event.set()


def _close(channel: Channel, message: Message) -> None:
    if isinstance(channel, Lane):
        channel.hear_close()
    else:  # not yet handed to anybody
        _PLAIN[MSG_CHANNEL_CLOSE](channel, message)


def hang_up(channel: Channel) -> None:
    """Close a channel, whatever has become of its connection."""
    with contextlib.suppress(*BROKEN):
        channel.close()


class Wire(Transport):
    """One SSH connection to a server that shows one known key."""

    _channel_handler_table = {**_PLAIN, MSG_CHANNEL_REQUEST: _request, MSG_CHANNEL_CLOSE: _close}  # noqa: RUF012  (paramiko's name and kind)

    def __init__(self, connected: socket.socket, key_type: str) -> None:
        # The default window: 16 or 128 MiB was measured ten times slower.
        super().__init__(connected, packetizer_class=_Packetizer)
        options = self.get_security_options()
        options.ciphers = CIPHERS
        options.digests = MACS
        options.key_types = SIGNATURES.get(key_type, (key_type,))

    @property
    def heard(self) -> float:
        """When the other side was last heard, in monotonic seconds."""
        return cast("_Packetizer", self.packetizer).heard

    def open_channel(self, *arguments: Any, **more: Any) -> Channel:
        """Open a channel, as paramiko does, that keeps the order of its messages."""
        return Lane.of(super().open_channel(*arguments, **more))
