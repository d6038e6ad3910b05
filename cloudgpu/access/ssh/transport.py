"""Adapts paramiko's SSH transport and channels to what we need of them.

Importing this imports paramiko: do it inside functions. It adds two facts that paramiko does not report: when the last
packet arrived, and which signal ended a command.

The last message of a channel is `close`. paramiko 5.1 decides under a lock whether a channel is open, and sends after
letting go of it. Between the two another thread may have sent `close`; what then follows breaks the protocol, and the
server ends the whole connection ("Channel not open", asyncssh; "Received data for nonexistent channel", OpenSSH). With
fifty connections that are read, written and ended by threads of their own, this happened several times a minute. Here,
checking and sending are one step.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import threading
import time
from typing import Any, cast

from paramiko.buffered_pipe import PipeTimeout
from paramiko.channel import Channel
from paramiko.common import MSG_CHANNEL_CLOSE, MSG_CHANNEL_REQUEST, MSG_CHANNEL_WINDOW_ADJUST
from paramiko.ed25519key import Ed25519Key
from paramiko.message import Message
from paramiko.packet import Packetizer
from paramiko.pkey import PKey
from paramiko.ssh_exception import IncompatiblePeer, PasswordRequiredException, SSHException
from paramiko.transport import Transport

# ruff: noqa: SLF001  (paramiko has no door for this; the dependency is bound to paramiko 5, and tests/access would notice)


# What paramiko raises when a connection, or a channel of it, is over; any call may, also `close`.
CONNECTION_ERRORS = (SSHException, EOFError, OSError)


class SshChannel(Channel):
    """A channel for one thread that sends, some that receive, and any that close."""

    _order: threading.Lock  # held from "is it open?" until the message is on its way

    @classmethod
    def of(cls, channel: Channel) -> SshChannel:
        """Make a channel that was just opened, and that nobody uses yet, one of this kind."""
        channel.__class__ = cls  # paramiko makes its channels itself
        made = cast("SshChannel", channel)
        made._order = threading.Lock()
        return made

    def _send(self, data: bytes, message: Message) -> int:
        """Send what the window allows of `data`; paramiko's `send` and `sendall` end here."""
        with self.lock:
            size = self._inner._wait_for_send_window(len(data))
            message.add_string(data[:size])
        if not size or not self._send_if_open(message):
            raise OSError("the channel is closed")
        return int(size)

    def recv(self, nbytes: int) -> bytes:
        """Return some bytes, none at the end of data."""
        return self._receive(self.in_buffer, nbytes)

    def recv_stderr(self, nbytes: int) -> bytes:
        """Return some bytes of the error stream, none at its end."""
        return self._receive(self.in_stderr_buffer, nbytes)

    def shutdown(self, how: int) -> None:
        """End one direction, as of a socket."""
        with self._order:
            super().shutdown(how)

    def close(self) -> None:
        """Close the channel. Raises one of CONNECTION_ERRORS when the connection is just ending."""
        with self._order:
            super().close()

    def send_signal(self, name: str) -> None:
        """Send `INT`, `TERM`, ... to what runs in the channel (RFC 4254, 6.9). No answer comes."""
        message = self._message(MSG_CHANNEL_REQUEST)
        message.add_string("signal")
        message.add_boolean(False)  # noqa: FBT003  (want reply)
        message.add_string(name)
        self._send_if_open(message)

    def resize_pty(self, width: int = 80, height: int = 24, width_pixels: int = 0, height_pixels: int = 0) -> None:
        """Tell the new size of the window."""
        with self._order:
            if not self.closed:
                super().resize_pty(width, height, width_pixels, height_pixels)

    def on_close(self) -> None:
        """Answer the other side's `close`. Called by the thread that reads the connection."""
        with self.lock:
            last = [message for message in self._inner._close_internal() if message is not None]
            self._transport._unlink_channel(self.chanid)
        if last:
            # Never wait here: what a sender waits for (new keys, say) comes through this very thread.
            threading.Thread(target=self._answer, args=(last,), name="lane-close", daemon=True).start()

    def _answer(self, last: list[Message]) -> None:
        with contextlib.suppress(*CONNECTION_ERRORS), self._order:
            for message in last:
                self._transport._send_user_message(message)

    def _receive(self, buffer: Any, nbytes: int) -> bytes:
        try:
            data: bytes = buffer.read(nbytes, self.timeout)
        except PipeTimeout as late:
            raise TimeoutError from late
        room = self._inner._check_add_window(len(data))
        if room > 0:
            message = self._message(MSG_CHANNEL_WINDOW_ADJUST)
            message.add_int(room)
            self._send_if_open(message)
        return data

    def _message(self, kind: int) -> Message:
        message = Message()
        message.add_byte(bytes([kind]))
        message.add_int(self.remote_chanid)
        return message

    def _send_if_open(self, message: Message) -> bool:
        """Send a message unless the channel is closed; say whether it was sent."""
        with self._order:
            if self.closed:
                return False
            self._transport._send_user_message(message)
            return True

    @property
    def _inner(self) -> Any:
        return self  # paramiko's own methods, which its type stubs leave out

    @property
    def _transport(self) -> Any:
        return self.transport


__all__ = [
    "CONNECTION_ERRORS",
    "Ed25519Key",
    "IncompatiblePeer",
    "Message",
    "PKey",
    "PasswordRequiredException",
    "SSHException",
    "SshTransport",
    "hang_up",
]

# GCM is encrypted and authenticated in one hardware-assisted pass: 251 to 350 MB/s where aes-ctr gave 133 to 188.
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes256-ctr", "aes192-ctr", "aes128-ctr")
MACS = ("hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha2-256", "hmac-sha2-512")
SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}

# What paramiko does with messages of a channel. Not in its documentation, and there is no other door;
# tests/access would notice a change, and the dependency is bound to paramiko 5.
_PARAMIKO_HANDLERS: dict[int, Any] = vars(Transport)["_channel_handler_table"]

# Its errors reach the user as ours; without a handler Python would print paramiko's tracebacks to stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class _Packetizer(Packetizer):
    """Notes when the last packet came in (monotonic seconds): any packet is a sign of life."""

    last_received = 0.0

    def read_message(self) -> tuple[int, Message]:
        read = super().read_message()
        self.last_received = time.monotonic()
        return read


def _request(channel: Channel, message: Message) -> None:
    """Take `exit-signal` as a shell does, 128 + its number; leave every other request to paramiko."""
    start = message.packet.tell()
    if message.get_text() != "exit-signal":
        message.packet.seek(start)
        _PARAMIKO_HANDLERS[MSG_CHANNEL_REQUEST](channel, message)
        return
    message.get_boolean()
    number = getattr(signal, f"SIG{message.get_text()}", None)
    channel.exit_status = 128 + (int(number) if number else 0)
    channel.status_event.set()


def _close(channel: Channel, message: Message) -> None:
    if isinstance(channel, SshChannel):
        channel.on_close()
    else:  # not yet handed to anybody
        _PARAMIKO_HANDLERS[MSG_CHANNEL_CLOSE](channel, message)


def hang_up(channel: Channel) -> None:
    """Close a channel, whatever has become of its connection."""
    with contextlib.suppress(*CONNECTION_ERRORS):
        channel.close()


class SshTransport(Transport):
    """One SSH connection to a server that shows one known key."""

    _channel_handler_table = {**_PARAMIKO_HANDLERS, MSG_CHANNEL_REQUEST: _request, MSG_CHANNEL_CLOSE: _close}  # noqa: RUF012  (paramiko's name and kind)

    def __init__(self, connected: socket.socket, key_type: str) -> None:
        # The default window: 16 or 128 MiB was measured ten times slower.
        super().__init__(connected, packetizer_class=_Packetizer)
        options = self.get_security_options()
        options.ciphers = CIPHERS
        options.digests = MACS
        options.key_types = SIGNATURES.get(key_type, (key_type,))

    @property
    def last_received(self) -> float:
        """When the last packet arrived, in monotonic seconds."""
        return cast("_Packetizer", self.packetizer).last_received

    def open_channel(self, *arguments: Any, **more: Any) -> Channel:
        """Open a channel, as paramiko does, that keeps the order of its messages."""
        return SshChannel.of(super().open_channel(*arguments, **more))
