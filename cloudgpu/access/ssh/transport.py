"""Adapts paramiko's SSH transport and channels.

Importing this imports paramiko: do it inside functions. It adds what paramiko does not report: when the last packet
arrived, and which signal ended a command.

It also mends a race. paramiko 5.1 checks under a lock that a channel is open, and sends after releasing the lock. In
between another thread may send `close`, and the server ends the whole connection ("Channel not open", asyncssh;
"Received data for nonexistent channel", OpenSSH). With fifty connections this happened several times a minute. Here,
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

# ruff: noqa: SLF001  (paramiko has no public API for this; the dependency is bound to paramiko 5, and tests/access checks it)


# What paramiko raises when a connection, or a channel of it, is over; any call may, also `close`.
CONNECTION_ERRORS = (SSHException, EOFError, OSError)


class SshChannel(Channel):
    """A channel for one thread that sends, some that receive, and any that close."""

    _send_lock: threading.Lock  # held while checking that the channel is open, and sending

    @classmethod
    def adopt(cls, channel: Channel) -> SshChannel:
        """Turn a channel that was just opened, and is not in use yet, into an SshChannel."""
        channel.__class__ = cls  # paramiko offers no hook to create channels
        ssh_channel = cast("SshChannel", channel)
        ssh_channel._send_lock = threading.Lock()
        return ssh_channel

    def _send(self, data: bytes, message: Message) -> int:
        """Send what the window allows of `data`; paramiko's `send` and `sendall` end here."""
        with self.lock:
            size = self._untyped._wait_for_send_window(len(data))
            message.add_string(data[:size])
        if not size or not self._send_if_open(message):
            raise OSError("the channel is closed")
        return int(size)

    def recv(self, nbytes: int) -> bytes:
        """Return some bytes of output, none at its end."""
        return self._receive(self.in_buffer, nbytes)

    def recv_stderr(self, nbytes: int) -> bytes:
        """Return some bytes of the error stream, none at its end."""
        return self._receive(self.in_stderr_buffer, nbytes)

    def shutdown(self, how: int) -> None:
        """Close one direction, as `socket.shutdown` does."""
        with self._send_lock:
            super().shutdown(how)

    def close(self) -> None:
        """Close the channel. Raises one of CONNECTION_ERRORS when the connection is just ending."""
        with self._send_lock:
            super().close()

    def send_signal(self, name: str) -> None:
        """Send `INT`, `TERM`, ... to the command of the channel (RFC 4254, 6.9). There is no reply."""
        message = self._message(MSG_CHANNEL_REQUEST)
        message.add_string("signal")
        message.add_boolean(False)  # noqa: FBT003  (want reply)
        message.add_string(name)
        self._send_if_open(message)

    def resize_pty(self, width: int = 80, height: int = 24, width_pixels: int = 0, height_pixels: int = 0) -> None:
        """Send the new size of the terminal window."""
        with self._send_lock:
            if not self.closed:
                super().resize_pty(width, height, width_pixels, height_pixels)

    def on_close(self) -> None:
        """Reply to the server's `close`. Called by the thread that reads the connection."""
        with self.lock:
            messages = [message for message in self._untyped._close_internal() if message is not None]
            self._transport._unlink_channel(self.chanid)
        if messages:
            # Never wait here: what a sender waits for (new keys, say) arrives through this thread.
            threading.Thread(target=self._reply, args=(messages,), name="ssh-close", daemon=True).start()

    def _reply(self, messages: list[Message]) -> None:
        with contextlib.suppress(*CONNECTION_ERRORS), self._send_lock:
            for message in messages:
                self._transport._send_user_message(message)

    def _receive(self, buffer: Any, nbytes: int) -> bytes:
        try:
            data: bytes = buffer.read(nbytes, self.timeout)
        except PipeTimeout as error:
            raise TimeoutError from error
        window = self._untyped._check_add_window(len(data))
        if window > 0:
            message = self._message(MSG_CHANNEL_WINDOW_ADJUST)
            message.add_int(window)
            self._send_if_open(message)
        return data

    def _message(self, message_type: int) -> Message:
        message = Message()
        message.add_byte(bytes([message_type]))
        message.add_int(self.remote_chanid)
        return message

    def _send_if_open(self, message: Message) -> bool:
        """Send a message unless the channel is closed; say whether it was sent."""
        with self._send_lock:
            if self.closed:
                return False
            self._transport._send_user_message(message)
            return True

    @property
    def _untyped(self) -> Any:
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
    "close_channel",
]

# GCM is encrypted and authenticated in one hardware-assisted pass: 251 to 350 MB/s where aes-ctr gave 133 to 188.
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes256-ctr", "aes192-ctr", "aes128-ctr")
MACS = ("hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha2-256", "hmac-sha2-512")
# By type of host key; all other types are named as their algorithm.
SIGNATURE_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}

# How paramiko handles messages of a channel: undocumented, and there is no public API.
_PARAMIKO_HANDLERS: dict[int, Any] = vars(Transport)["_channel_handler_table"]

# Its errors reach the user as ours; without a handler Python would print paramiko's tracebacks to stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class _Packetizer(Packetizer):
    """Notes when the last packet arrived (monotonic seconds): any packet shows that the machine answers."""

    last_received = 0.0

    def read_message(self) -> tuple[int, Message]:
        read = super().read_message()
        self.last_received = time.monotonic()
        return read


def _handle_request(channel: Channel, message: Message) -> None:
    """Take `exit-signal` as exit status 128 + its number, like a shell; leave every other request to paramiko."""
    start = message.packet.tell()
    if message.get_text() != "exit-signal":
        message.packet.seek(start)
        _PARAMIKO_HANDLERS[MSG_CHANNEL_REQUEST](channel, message)
        return
    message.get_boolean()
    signal_number = getattr(signal, f"SIG{message.get_text()}", None)
    channel.exit_status = 128 + (int(signal_number) if signal_number else 0)
    channel.status_event.set()


def _handle_close(channel: Channel, message: Message) -> None:
    if isinstance(channel, SshChannel):
        channel.on_close()
    else:  # not in use yet
        _PARAMIKO_HANDLERS[MSG_CHANNEL_CLOSE](channel, message)


def close_channel(channel: Channel) -> None:
    """Close a channel, even if its connection is already closed."""
    with contextlib.suppress(*CONNECTION_ERRORS):
        channel.close()


class SshTransport(Transport):
    """An SSH connection to a server whose host key has type `key_type`."""

    _channel_handler_table = {  # noqa: RUF012  (paramiko's name and type)
        **_PARAMIKO_HANDLERS,
        MSG_CHANNEL_REQUEST: _handle_request,
        MSG_CHANNEL_CLOSE: _handle_close,
    }

    def __init__(self, connected_socket: socket.socket, key_type: str) -> None:
        # The default window: 16 or 128 MiB was measured ten times slower.
        super().__init__(connected_socket, packetizer_class=_Packetizer)
        options = self.get_security_options()
        options.ciphers = CIPHERS
        options.digests = MACS
        options.key_types = SIGNATURE_ALGORITHMS.get(key_type, (key_type,))

    @property
    def last_received(self) -> float:
        """When the last packet arrived, in monotonic seconds."""
        return cast("_Packetizer", self.packetizer).last_received

    def open_channel(self, *arguments: Any, **options: Any) -> Channel:
        """Open a channel, as paramiko does, without its race."""
        return SshChannel.adopt(super().open_channel(*arguments, **options))
