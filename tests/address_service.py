"""A service on loopback that tells whoever asks an address, as the ones of the settings do; for tests."""

from __future__ import annotations

import http.server
import threading


class AddressService:
    """Listens from the start; `said` and `status` are its answer, `asked` who has asked so far."""

    def __init__(self, said=b"203.0.113.7", status=200):
        self.said, self.status, self.asked = said, status, []
        service = self

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                service.asked.append(self.path)
                self.send_response(service.status)
                self.end_headers()
                self.wfile.write(service.said)

            def log_message(self, *_words):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self):
        return self

    def __exit__(self, *_how):
        self.end()

    def end(self):
        """Stop listening; safe to call twice."""
        self._server.shutdown()
        self._server.server_close()
