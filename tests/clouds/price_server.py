"""An HTTP server on loopback that serves a price list by pages, and goes wrong in the ways that it is told to."""

from __future__ import annotations

import http.server
import json
import threading
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Wrong:
    """What one answer is instead: a status with headers, or another body; `cut` ends the connection in its middle."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    cut: bool = False
    only: str = ""  # requests whose query holds this; empty: any
    times: int = 1
    after: int = 0  # so many requests that it means go well first


class Refusal(Exception):
    """A request that the real service would not answer: its status and its words."""

    def __init__(self, status: int, says: str) -> None:
        super().__init__(says)
        self.status = status


class PriceServer:
    """Listens from the start. `asked` are the queries so far; subclasses answer in `page`."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.wrong: list[Wrong] = []
        self.paths: list[str] = []
        self._lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *_words: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def end(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def page(self, path: str, query: dict[str, str], headers: Any) -> dict[str, Any]:
        """Return the answer to one request; raise Refusal for one that is none."""
        raise NotImplementedError

    def answer(self, handler: Any) -> None:
        parts = urlsplit(handler.path)
        query = {name: found[-1] for name, found in parse_qs(parts.query, keep_blank_values=True).items()}
        with self._lock:
            self.asked.append(query)
            self.paths.append(parts.path)
            wrong = self._wrong(parts.query, query)
        status, headers = 200, {}
        try:
            body = json.dumps(self.page(parts.path, query, handler.headers)).encode()
        except Refusal as refusal:
            status, body = (
                refusal.status,
                json.dumps({"error": {"code": refusal.status, "message": str(refusal)}}).encode(),
            )
        if wrong is not None:
            status, headers = wrong.status, wrong.headers
            body = wrong.body if wrong.body is not None else body if status == 200 else b'{"error": {"message": "no"}}'
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        for name, text in headers.items():
            handler.send_header(name, text)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        cut = wrong is not None and wrong.cut
        handler.wfile.write(body[: len(body) // 2] if cut else body)
        handler.close_connection = cut or handler.close_connection

    def _wrong(self, text: str, query: dict[str, str]) -> Wrong | None:
        for one in self.wrong:
            if one.times and one.only in f"{text} {' '.join(query.values())}":
                if one.after:
                    one.after -= 1
                    return None
                one.times -= 1
                return one
        return None
