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
PORTS_TRIED = 50  # ports above one that is in use, in search of a free one to name


def parse_address(text: str) -> tuple[str, int]:
    """Return what `PORT`, `HOST:PORT` or `[::1]:PORT` names; raise InvalidRequest for an address not of loopback."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or LOOPBACK
    host = LOOPBACK if host == "localhost" else host
    if not port.isascii() or not port.isdigit() or int(port) > HIGHEST_PORT:
        raise _invalid_address(text, f"{text!r} names no port from 0 to {HIGHEST_PORT} (0: any that is free).")
    if not _is_loopback(host):
        raise _invalid_address(
            text, f"{host} is not this computer's loopback: metrics name machines and money, unencrypted."
        )
    return host, int(port)


@contextmanager
def serve_metrics(address: tuple[str, int], read_metrics: Callable[[], str]) -> Iterator[str]:
    """Answer GET /metrics with what `read_metrics` returns, in threads of its own; yield the URL.

    Raises InvalidRequest for an address that is in use.
    """
    server = _bind_server(address, read_metrics)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
    host, port = server.server_address[:2]
    try:
        yield f"http://{f'[{host!s}]' if ':' in str(host) else str(host)}:{port}/metrics"
    finally:
        server.shutdown()
        server.server_close()


def _bind_server(address: tuple[str, int], read_metrics: Callable[[], str]) -> ThreadingHTTPServer:
    """Return a server that listens at the address; raise InvalidRequest for one that is in use."""
    import socket

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        daemon_threads = True

    class Handler(_Handler):
        metrics_text = staticmethod(read_metrics)

    try:
        return Server(address, Handler)
    except OSError as error:
        message = (
            f"Metrics cannot be served at {address[0]} port {address[1]}: {(error.strerror or str(error)).lower()}."
        )
        raise _invalid_address(str(address[1]), message, _free_port_above(address, Server.address_family)) from error


def _free_port_above(address: tuple[str, int], family: int) -> int:
    """Return the first port above this one that is free there, 0 (any that is free) where none of them is."""
    import socket

    for port in range(address[1] + 1, min(address[1] + PORTS_TRIED, HIGHEST_PORT) + 1):
        with socket.socket(family, socket.SOCK_STREAM) as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server itself
            probe.bind((address[0], port))
            return port
    return 0


class _Handler(BaseHTTPRequestHandler):
    metrics_text: Callable[[], str]
    server_version, sys_version = "cloudgpu", ""

    def do_GET(self) -> None:
        if not _is_local(self.headers.get("Host", "")):
            self._answer(403, "text/plain", "for this computer alone\n")
        elif self.path.partition("?")[0] != "/metrics":
            self._answer(404, "text/plain", "there is /metrics\n")
        else:
            try:
                self._answer(200, CONTENT_TYPE, self.metrics_text())
            except CloudgpuError as error:
                self._answer(503, "text/plain", f"{error.message}\n")

    def _answer(self, status: int, content_type: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: Any) -> None:
        """Log nothing: scrapes come every few seconds."""


def _is_local(host: str) -> bool:
    """Say whether the Host that was asked for is loopback: a web page of another host may not read metrics."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    name = name.strip("[]").lower()
    return name == "localhost" or _is_loopback(name)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _invalid_address(text: str, message: str, port: int = 9464) -> InvalidRequest:
    return InvalidRequest(message, field="--metrics", value=text, next=f"For example: cloudgpu watch --metrics {port}")
