"""Stands in for the instance metadata of an EC2 machine (IMDSv2) on loopback: what it says is a table of the test's."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SESSION = "a-session"
KEY = {"AccessKeyId": "ASIAMACHINE", "SecretAccessKey": "of-the-machine", "Token": "short-lived"}


class Metadata:
    """What it says, by path below /latest; `url` is where. A path that is not there is a 404."""

    def __init__(self, url):
        self.url = url
        self.said = {
            "meta-data/instance-id": "i-0123456789abcdef0",
            "meta-data/placement/region": "us-east-1",
            "meta-data/iam/security-credentials/": "cloudgpu-machine",
            "meta-data/iam/security-credentials/cloudgpu-machine": json.dumps(KEY),
        }

    def tags(self, **values):
        """Set tags: `expires`, `renew_until`, `hold_until`; None takes one away."""
        for name, value in values.items():
            path = f"meta-data/tags/instance/cloudgpu-{name.replace('_', '-')}"
            if value is None:
                self.said.pop(path, None)
            else:
                self.said[path] = str(value)


@contextmanager
def metadata():
    """Serve it for a while."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self):
            self.answer(200 if self.path == "/latest/api/token" else 404, SESSION)

        def do_GET(self):
            if self.headers.get("X-aws-ec2-metadata-token") != SESSION:  # as a machine that requires IMDSv2
                self.answer(401, "")
                return
            said = found.said.get(self.path.removeprefix("/latest/"))
            self.answer(404 if said is None else 200, said or "<html>404 - Not Found</html>")

        def answer(self, status, text):
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Metadata(f"http://127.0.0.1:{server.server_address[1]}/latest")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield found
    server.shutdown()
    server.server_close()
