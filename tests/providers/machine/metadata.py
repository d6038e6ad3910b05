"""Stand-ins for the metadata services of three clouds on loopback: what they say is a table of the test's.

Each checks what its cloud wants of a request (a session, a header, a version), as its documentation has it.
"""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

SESSION = "a-session"
KEY = {"AccessKeyId": "ASIAMACHINE", "SecretAccessKey": "of-the-machine", "Token": "short-lived"}


class Metadata:
    """EC2's (IMDSv2): what it says, by path below /latest; `url` is where. A path that is not there is a 404."""

    root = "/latest"

    def __init__(self, origin):
        self.url = origin + self.root
        self.written = []  # (method, path, body) of what was not a question
        self.said = {
            "meta-data/instance-id": "i-0123456789abcdef0",
            "meta-data/placement/region": "us-east-1",
            "meta-data/iam/security-credentials/": "cloudgpu-machine",
            "meta-data/iam/security-credentials/cloudgpu-machine": json.dumps(KEY),
        }

    @property
    def environ(self):
        return {"IMDS": self.url}

    def tags(self, **values):
        """Set tags: `expires`, `renew_until`, `hold_until`; None takes one away."""
        for name, value in values.items():
            path = f"meta-data/tags/instance/cloudgpu-{name.replace('_', '-')}"
            if value is None:
                self.said.pop(path, None)
            else:
                self.said[path] = str(value)

    def answer(self, method, path, headers, body):
        """Return the status and the text for a request; `path` is below `root`."""
        if method == "PUT":
            return (200 if path == "api/token" else 404), SESSION
        if headers.get("X-aws-ec2-metadata-token") != SESSION:  # as a machine that requires IMDSv2
            return 401, ""
        return self.told(path)

    def told(self, path):
        said = self.said.get(path)
        return (404 if said is None else 200), said or "<html>404 - Not Found</html>"


class Google(Metadata):
    """Google's, below computeMetadata/v1/instance; `guest` says what a write of a guest attribute is answered with."""

    root = "/computeMetadata/v1/instance"

    def __init__(self, origin):
        super().__init__(origin)
        self.said = {"maintenance-event": "NONE", "preempted": "FALSE"}
        self.guest = 200

    def tags(self, **values):
        for name, value in values.items():
            path = f"attributes/cloudgpu-{name.replace('_', '-')}"
            if value is None:
                self.said.pop(path, None)
            else:
                self.said[path] = str(value)

    def answer(self, method, path, headers, body):
        if headers.get("Metadata-Flavor") != "Google":
            return 403, "Missing Metadata-Flavor:Google header."
        if method == "PUT" and path.startswith("guest-attributes/"):
            self.written.append((method, path, body))
            return self.guest, ""
        return self.told(path)


class Azure(Metadata):
    """Azure's, and its resource manager beside it, which takes the token of the machine's identity alone."""

    root = "/metadata"
    token = "of-the-machine's-identity"
    id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/g"

    def __init__(self, origin):
        super().__init__(origin)
        self.origin, self.set = origin, {"department": "x}{;:"}
        self.said, self.events = {}, []
        self.identity, self.manager = True, 202

    @property
    def environ(self):
        return {"IMDS": self.url, "ARM": f"{self.origin}/arm"}

    def tags(self, **values):
        for name, value in values.items():
            tag = f"cloudgpu-{name.replace('_', '-')}"
            if value is None:
                self.set.pop(tag, None)
            else:
                self.set[tag] = str(value)

    def answer(self, method, path, headers, body):
        asked = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(asked.query).items()}
        if "api-version" not in query:
            return 400, '{"error": "Bad request. api-version is invalid or was not specified"}'
        if asked.path.startswith("/arm"):
            return self.managed(method, asked.path.removeprefix("/arm"), headers, body)
        if headers.get("Metadata") != "true":
            return 400, '{"error": "Bad request. Required metadata header not specified"}'
        return self.told_of(asked.path, query)

    def told_of(self, path, query):
        if path == "instance/compute/tagsList":
            return 200, json.dumps([{"name": name, "value": value} for name, value in self.set.items()])
        if path == "instance/compute/resourceId" and query.get("format") == "text":
            return 200, self.id
        if path == "scheduledevents":
            return 200, json.dumps({"DocumentIncarnation": 1, "Events": self.events})
        if path == "identity/oauth2/token" and query.get("resource") == "https://management.azure.com/":
            said = {"access_token": self.token, "expires_in": "86399", "token_type": "Bearer"}
            return (200, json.dumps(said)) if self.identity else (400, '{"error":"invalid_request"}')
        return 404, '{"error": "Not found"}'

    def managed(self, method, path, headers, body):
        if headers.get("Authorization") != f"Bearer {self.token}":
            return 401, '{"error":{"code":"AuthenticationFailed"}}'
        self.written.append((method, path, body))
        return self.manager, "{}"


KINDS = {"aws": Metadata, "gcp": Google, "azure": Azure}


@contextmanager
def metadata(kind="aws"):
    """Serve one for a while."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            path = self.path.removeprefix(f"{found.root}/")
            status, text = found.answer(self.command, path, self.headers, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_PUT = do_POST = do_PATCH = do_GET  # noqa: N815  (the standard library's names)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = KINDS[kind](f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield found
    server.shutdown()
    server.server_close()
