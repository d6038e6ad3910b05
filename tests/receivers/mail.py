"""A real SMTP server on loopback (aiosmtpd) that keeps what it is sent; for tests."""

from __future__ import annotations

import email
import socket
from email import policy

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult


class MailReceiver:
    """Listens from the start. `got` are the messages, `logins` the (user, password) that were shown."""

    def __init__(self):
        self.got, self.logins = [], []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._server = Controller(
            self, hostname="127.0.0.1", port=self.port, authenticator=self._login, auth_require_tls=False
        )
        self._server.start()

    def _login(self, _server, _session, _envelope, _mechanism, data):
        self.logins.append((data.login.decode(), data.password.decode()))
        return AuthResult(success=True)

    async def handle_DATA(self, _server, _session, envelope):  # noqa: N802  (aiosmtpd's name)
        self.got.append(email.message_from_bytes(envelope.content, policy=policy.default))
        return "250 taken"

    @property
    def texts(self):
        """What arrived: (subject, plain text)."""
        return [(one["subject"], one.get_body(("plain", "html")).get_content()) for one in self.got]

    def end(self):
        """Go away; a test may have done so before its end."""
        if self._server.loop.is_running():
            self._server.stop()
