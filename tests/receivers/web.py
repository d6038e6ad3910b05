"""A real HTTP server on loopback that takes messages, refuses them, or leaves whoever sends hanging; for tests."""

from __future__ import annotations

import http.server
import json
import threading
from contextlib import suppress

HANG, DRIP = "hang", "drip"


class WebReceiver:
    """Listens from the start. `answer` is a status, HANG (none, ever) or DRIP (a byte now and then).

    `got` are the requests so far: (method, path, body).
    """

    def __init__(self, answer=200):
        self.answer, self.got, self._over = answer, [], threading.Event()
        receiver = self

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                receiver._take(self)

            do_POST = do_GET  # noqa: N815  (the server's names)

            def log_message(self, *_words):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def _take(self, request):
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.got.append((request.command, request.path, body))
        if self.answer == HANG:
            self._over.wait(30)
            return
        if self.answer == DRIP:
            with suppress(OSError):
                request.wfile.write(b"HTTP/1.1 ")
                while not self._over.wait(0.05):
                    request.wfile.write(b"2")
            return
        request.send_response(self.answer)
        request.send_header("Content-Length", "2")
        request.end_headers()
        request.wfile.write(b"ok")

    @property
    def place(self):
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def texts(self):
        """What arrived in apprise's own JSON form: (title, message)."""
        found = [json.loads(body) for _, _, body in self.got]
        return [(one["title"], one["message"]) for one in found]

    def end(self):
        """Stop listening: from now on connections are refused."""
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
