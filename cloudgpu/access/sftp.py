"""An SFTP session whose names are bytes, as on Unix. Importing this imports paramiko: do it inside functions.

SFTP 3 says nothing of how names are encoded, and OpenSSH hands them through. paramiko 5.1 takes them for UTF-8: a
listing with one name that is not ends with UnicodeDecodeError. Here names are what `os.listdir` gives: bytes that are
no text come as surrogates (PEP 383), and go back as the same bytes.
"""

from __future__ import annotations

import os
from typing import Any

from paramiko.message import Message
from paramiko.sftp_client import SFTPClient


class _Names(Message):
    """An answer whose texts are names."""

    def get_text(self) -> str:
        """Return a name, or a sentence, whatever its bytes are."""
        return os.fsdecode(self.get_string())


class Files(SFTPClient):
    """A session in which every path, both ways, is text as `os` has it."""

    def _adjust_cwd(self, path: Any) -> bytes:
        return os.fsencode(path)  # no working directory is ever set here

    def _read_response(self, waitfor: Any = None) -> Any:
        kind, message = super()._read_response(waitfor)  # type: ignore[misc]  # a private method, which its stubs lack
        return kind, _as_names(message)

    def _convert_status(self, msg: Message) -> None:
        super()._convert_status(_as_names(msg))  # type: ignore[misc]  # likewise


def _as_names(message: Any) -> Any:
    if isinstance(message, Message):
        message.__class__ = _Names  # paramiko makes its messages itself
    return message
