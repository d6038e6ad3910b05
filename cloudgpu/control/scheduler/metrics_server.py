"""Serves metrics over HTTP to this computer only: binds loopback, and answers no other host name."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cloudgpu.control.scheduler.metrics import CONTENT_TYPE
from cloudgpu.errors import CloudgpuError, InvalidRequest

LOOPBACK = "127.0.0.1"
HIGHEST_PORT = 65535
BESIDE = 50  # instead of one that is in use


def address_of(text: str) -> tuple[str, int]:
    """Return what `PORT`, `HOST:PORT` or `[::1]:PORT` names; raise InvalidRequest for an address not of loopback."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or LOOPBACK
    host = LOOPBACK if host == "localhost" else host
    if not port.isascii() or not port.isdigit() or int(port) > HIGHEST_PORT:
        raise _refused(text, f"{text!r} names no port from 0 to {HIGHEST_PORT} (0: any that is free).")
    try:
        inside = ipaddress.ip_address(host).is_loopback
    except ValueError:
        inside = False
    if not inside:
        raise _refused(text, f"{host} is not this computer's loopback: metrics name machines and money, unencrypted.")
    return host, int(port)


@contextmanager
def serving(address: tuple[str, int], body: Callable[[], str]) -> Iterator[str]:
    """Answer GET /metrics with what `body` returns, in threads of its own; yield the URL. Raises InvalidRequest."""
    server = _bound(address, body)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    host, port = server.server_address[:2]
    try:
        yield f"http://{f'[{host!s}]' if ':' in str(host) else str(host)}:{port}/metrics"
    finally:
        server.shutdown()
        server.server_close()


def _bound(address: tuple[str, int], body: Callable[[], str]) -> ThreadingHTTPServer:
    import socket

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        daemon_threads = True

    class Handler(_Handler):
        wanted = staticmethod(body)

    try:
        return Server(address, Handler)
    except OSError as error:
        message = (
            f"Metrics cannot be served at {address[0]} port {address[1]}: {(error.strerror or str(error)).lower()}."
        )
        raise _refused(str(address[1]), message, _free_beside(address, Server.address_family)) from error


def _free_beside(address: tuple[str, int], family: int) -> int:
    """Return the first port above this one that is free there, 0 (any that is free) where none of them is."""
    import socket

    for port in range(address[1] + 1, min(address[1] + BESIDE, HIGHEST_PORT) + 1):
        with socket.socket(family, socket.SOCK_STREAM) as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server itself
            probe.bind((address[0], port))
            return port
    return 0


class _Handler(BaseHTTPRequestHandler):
    wanted: Callable[[], str]
    server_version, sys_version = "cloudgpu", ""

    def do_GET(self) -> None:
        if not _is_local(self.headers.get("Host", "")):
            self._answer(403, "text/plain", "for this computer alone\n")
        elif self.path.partition("?")[0] != "/metrics":
            self._answer(404, "text/plain", "there is /metrics\n")
        else:
            self._metrics()

    def _metrics(self) -> None:
        try:
            self._answer(200, CONTENT_TYPE, self.wanted())
        except CloudgpuError as error:
            self._answer(503, "text/plain", f"{error.message}\n")

    def _answer(self, status: int, kind: str, text: str) -> None:
        sent = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *_said: Any) -> None:
        """Log nothing: scrapes come every few seconds."""


def _is_local(host: str) -> bool:
    """Say whether the Host that was asked for is loopback: a web page of another host may not read metrics."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    name = name.strip("[]")
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _refused(text: str, message: str, port: int = 9464) -> InvalidRequest:
    return InvalidRequest(message, field="--metrics", value=text, next=f"For example: cloudgpu watch --metrics {port}")
