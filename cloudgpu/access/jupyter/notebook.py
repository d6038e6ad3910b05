"""Runs a notebook cell in a Jupyter on this computer's loopback, and writes the page that opens Jupyter."""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import secrets
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cloudgpu.access.files import explain_os_errors, make_private_directory
from cloudgpu.errors import MissingExtra, Unreachable

if TYPE_CHECKING:
    from websocket import WebSocket

_HOST = "127.0.0.1"
_NOT_JUPYTER = "its answer is not one of Jupyter"
_COLOUR_CODES = re.compile(r"\x1b\[[0-9;]*m")
_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>JupyterLab</title>
<p><a rel="noreferrer" href="{url}">Open JupyterLab</a></p>
"""


@dataclass(frozen=True, slots=True)
class CellResult:
    """All that a cell printed and returned, as text; `ok` is False when it raised."""

    text: str
    ok: bool


def run_cell(port: int, token: str, code: str, *, timeout_s: float = 60) -> CellResult:
    """Run one cell in a new kernel of the Jupyter on loopback's `port`, and return its result.

    The kernel stays, so that its activity can be seen. `timeout_s` is for all of it.
    Raises Unreachable when Jupyter does not answer or the cell takes longer, MissingExtra without websocket-client.
    """
    _check_websocket_client()  # before there is a kernel, which would stay
    api = _JupyterApi(port, token, time.monotonic() + timeout_s)
    created = api.request("POST", "/api/kernels", {})
    if not isinstance(created, dict) or "id" not in created:
        raise api.unreachable(_NOT_JUPYTER)
    return _run_in_kernel(api, str(created["id"]), code)


def open_page(directory: Path, port: int, token: str) -> Path:
    """Write a page (0600) that redirects to JupyterLab, and return its path; the caller removes it after use.

    All users of this computer can read a browser's command line, so it must name this file and not the token. Raises
    InvalidRequest where it cannot be written.
    """
    url = html.escape(f"http://{_HOST}:{port}/lab?token={quote(token, safe='')}", quote=True)
    page = directory / f"open-{secrets.token_hex(8)}.html"
    with explain_os_errors(page):
        make_private_directory(directory)
        descriptor = os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(_PAGE.format(url=url))
    return page


@dataclass(frozen=True, slots=True)
class _JupyterApi:
    """Jupyter's REST API, until `deadline` (monotonic seconds)."""

    port: int
    token: str = field(repr=False)
    deadline: float

    @property
    def headers(self) -> dict[str, str]:
        """The header that authorizes a request."""
        return {"Authorization": f"token {self.token}"}

    def seconds_left(self) -> float:
        """Return the seconds left; raise Unreachable when there are none."""
        seconds_left = self.deadline - time.monotonic()
        if seconds_left <= 0:
            raise Unreachable(
                f"The notebook cell did not end in time on port {self.port}.",
                field="port",
                value=str(self.port),
                next="Give it more time, or look at the kernel in JupyterLab.",
            )
        return seconds_left

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request; return the JSON answer, None for an empty one. Raises Unreachable."""
        connection = HTTPConnection(_HOST, self.port, timeout=self.seconds_left())
        try:
            connection.request(method, path, None if body is None else json.dumps(body), self.headers)
            response = connection.getresponse()
            return self._parse_response(response.status, response.read())
        except (OSError, HTTPException, ValueError) as error:
            raise self.unreachable(str(error) or type(error).__name__) from error
        finally:
            connection.close()

    def _parse_response(self, status: int, text: bytes) -> Any:
        if status in (401, 403):
            raise Unreachable(
                f"Jupyter on port {self.port} does not know our token.",
                field="port",
                value=str(self.port),
                next="Something else answers there: open the tunnel again.",
            )
        if status >= 400:  # noqa: PLR2004
            raise self.unreachable(f"it answered {status}")
        return json.loads(text) if text else None

    def unreachable(self, reason: str) -> Unreachable:
        """Return the error that Jupyter does not answer properly."""
        return Unreachable(
            f"Jupyter on port {self.port} does not answer: {reason}.",
            field="port",
            value=str(self.port),
            next="Open the tunnel again: cloudgpu tunnel",
        )


def _run_in_kernel(api: _JupyterApi, kernel_id: str, code: str) -> CellResult:
    channels = _open_channels(api, kernel_id)
    request = _execute_request(code)
    from websocket import WebSocketException

    try:
        channels.send(json.dumps(request))
        return _collect(api, channels, request["header"]["msg_id"])
    except (OSError, WebSocketException, ValueError) as error:
        api.seconds_left()  # raises if the deadline has passed
        raise api.unreachable(str(error) or type(error).__name__) from error
    except (LookupError, TypeError, AttributeError) as error:
        raise api.unreachable(_NOT_JUPYTER) from error
    finally:
        with contextlib.suppress(OSError, WebSocketException):
            channels.close(timeout=1)


def _check_websocket_client() -> None:
    """Raise MissingExtra, which explains how to install it, where websocket-client is missing."""
    try:
        import websocket  # noqa: F401
    except ImportError:
        raise MissingExtra(
            "Running a notebook cell from here needs the package websocket-client.",
            field="package",
            value="websocket-client",
            next="pip install 'cloudgpu[local]'",
        ) from None


def _open_channels(api: _JupyterApi, kernel_id: str) -> WebSocket:
    from websocket import WebSocketException, create_connection

    url = f"ws://{_HOST}:{api.port}/api/kernels/{kernel_id}/channels?session_id={secrets.token_hex(8)}"
    try:
        return create_connection(url, timeout=api.seconds_left(), header=api.headers, http_no_proxy=[_HOST])
    except (OSError, WebSocketException) as error:
        raise api.unreachable(str(error) or type(error).__name__) from error


def _execute_request(code: str) -> dict[str, Any]:
    """Return an execute_request: https://jupyter-client.readthedocs.io/en/stable/messaging.html#execute."""
    header = {"msg_id": secrets.token_hex(16), "session": secrets.token_hex(16), "username": "cloudgpu"}
    return {
        "header": {**header, "msg_type": "execute_request", "version": "5.3"},
        "parent_header": {},
        "metadata": {},
        "content": {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True},
        "channel": "shell",
        "buffers": [],
    }


def _collect(api: _JupyterApi, channels: WebSocket, request_id: str) -> CellResult:
    """Collect the output of a request until the kernel has replied and is idle again."""
    text, status, is_idle = "", "", False
    while not (status and is_idle):
        channels.settimeout(api.seconds_left())
        message = _read_message(channels.recv())
        if message.get("parent_header", {}).get("msg_id") != request_id:
            continue
        message_type, content = message["header"]["msg_type"], message["content"]
        text += _output_text(message_type, content)
        if message_type == "execute_reply":
            status = content["status"]
        is_idle = is_idle or (message_type == "status" and content["execution_state"] == "idle")
    return CellResult(text, status == "ok")


def _read_message(frame: str | bytes) -> Any:
    """Return the message of a frame, without the buffers of one that has any: that comes as a binary frame.

    Its layout is that of `serialize_binary_message` in jupyter_server: the number of parts, the offset of each, all
    as 4 bytes; then the parts, of which the first is the message as JSON and the others are its buffers.
    """
    if isinstance(frame, str):
        return json.loads(frame)
    begin, end = (int.from_bytes(frame[index : index + 4], "big") for index in (4, 8))
    return json.loads(frame[begin:end])


def _output_text(message_type: str, content: dict[str, Any]) -> str:
    if message_type == "stream":
        return str(content["text"])
    if message_type in ("execute_result", "display_data"):
        return str(content["data"].get("text/plain", "")) + "\n"
    if message_type == "error":
        return _COLOUR_CODES.sub("", "\n".join(content["traceback"])) + "\n"
    return ""
