"""S3 for jobs: moto's server on loopback, which checks what was signed, unlike moto's own.

An address or a form is good for its object, its prefix and its time alone: by the signature that boto3 made, by the
policy of the form, and by this server's clock. What is checked is AWS's documentation: "Authenticating Requests: Using
Query Parameters" and "POST Policy" of the S3 API Reference. Nothing here ever ran against AWS.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import json
import os
import re
import threading
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote

import boto3
import pytest
from botocore.config import Config
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.formparser import parse_form_data
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.clouds.aws.moto_state import drop_backends, hasten
from tests.clouds.aws.sdk import keep_models

__all__ = ["REGION", "SECRET", "BucketServer", "s3", "server"]
KEY, SECRET = "AKIAOFTHEUSER0000000", "the-users-own-secret-key"
REGION = "eu-west-1"


class BucketServer:
    """One server. `ahead` is by how many seconds its clock is ahead; `seen` are the requests of machines.

    `hook(method, key)` is called before one is answered, and may return what goes wrong: `cut` (the connection ends in
    the middle) or a status. `answered` counts them by method, key and status.
    """

    def __init__(self):
        hasten()
        keep_models()
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._http = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Quiet)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.forget()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def environ(self):
        return {"AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}

    def forget(self):
        drop_backends()
        self.ahead, self.hook, self.seen, self.is_silent = 0.0, None, [], False

    def stop(self):
        self._http.shutdown()
        self._http.server_close()

    def keys(self, client, bucket="lab"):
        """The keys of a bucket, with sizes."""
        return {one["Key"]: one["Size"] for one in client.list_objects_v2(Bucket=bucket).get("Contents", ())}

    def asked(self, method, part=""):
        """The requests of machines by this method whose key has this part: key, status, range, policy."""
        return [one for one in self.seen if one[0] == method and part in one[1]]

    def _now(self):
        return datetime.now(UTC) + timedelta(seconds=self.ahead)

    def _answer(self, environ, start):
        if "HTTP_AUTHORIZATION" in environ:
            if self.is_silent:
                return _said(start, 503, b"")
            return self._moto(environ, start)
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"].encode("latin-1").decode()
        query = _query(environ.get("QUERY_STRING", ""))
        fields, body = {}, b""
        key = path.split("/", 2)[2] if path.count("/") > 1 else ""
        if method == "POST":
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            fields, size = _form(environ, body)
            key = fields.get("key", "")
        wrong = self.hook(method, key) if self.hook else None
        status = wrong if isinstance(wrong, int) else 200
        if status == 200:
            status = self._form_status(fields, size) if method == "POST" else self._address_status(environ, query)
        self.seen.append((method, key, status, environ.get("HTTP_RANGE", ""), fields.get("policy")))
        if status != 200:
            return _said(start, status, b"<Error><Code>AccessDenied</Code></Error>")
        environ = {**environ, "wsgi.input": io.BytesIO(body)} if method == "POST" else environ
        if wrong == "cut":
            return self._cut(environ)
        return self._moto(environ, start)

    def _cut(self, environ):
        """Send half of an answer, then end the connection; of an upload, take nothing."""
        socket = environ["werkzeug.socket"]
        if environ["REQUEST_METHOD"] == "GET":
            seen = {}
            note = lambda status, headers, *_: seen.update(status=status, headers=headers)  # noqa: E731
            data = b"".join(self._moto(environ, note))
            head = "".join(f"{name}: {value}\r\n" for name, value in seen["headers"])
            socket.sendall(f"HTTP/1.1 {seen['status']}\r\n{head}\r\n".encode() + data[: len(data) // 2])
        socket.shutdown(2)
        raise ConnectionAbortedError

    def _address_status(self, environ, query):
        """Check a signed address; return 200, or 403."""
        try:
            signature = query.pop("X-Amz-Signature")
            began = datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
            good = self._now() < began + timedelta(seconds=int(query["X-Amz-Expires"]))
        except KeyError:
            return 403
        pairs = sorted((quote(name, safe="~"), quote(value, safe="~")) for name, value in query.items())
        lines = [
            environ["REQUEST_METHOD"],
            quote(environ["PATH_INFO"].encode("latin-1"), safe="/~"),
            "&".join("=".join(pair) for pair in pairs),
            f"host:{environ['HTTP_HOST']}\n",
            "host",
            "UNSIGNED-PAYLOAD",
        ]
        scope = query["X-Amz-Credential"].split("/", 1)[1]
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        text = "\n".join(["AWS4-HMAC-SHA256", query["X-Amz-Date"], scope, digest])
        return 200 if good and _signed(scope, text) == signature else 403

    def _form_status(self, fields, size):
        """Check a form by its policy; return 200, or 403."""
        if "policy" not in fields or "x-amz-credential" not in fields:
            return 403
        policy = json.loads(base64.b64decode(fields["policy"]))
        scope = fields["x-amz-credential"].split("/", 1)[1]
        if _signed(scope, fields["policy"]) != fields.get("x-amz-signature"):
            return 403
        if self._now() >= datetime.fromisoformat(policy["expiration"]):
            return 403
        named = {"policy", "x-amz-signature", "file", "bucket"}
        for one in policy["conditions"]:
            if isinstance(one, dict):
                ((name, value),) = one.items()
                good = name == "bucket" or fields.get(name) == value
            elif one[0] == "starts-with":
                name = one[1][1:]
                good = fields.get(name, "").startswith(one[2])
            else:
                name, good = "file", one[1] <= size <= one[2]
            named.add(name)
            if not good:
                return 403
        return 200 if set(fields) <= named else 403


def _signed(scope, text):
    key = b"AWS4" + SECRET.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


def _query(text):
    pairs = (one.partition("=") for one in re.split("&", text) if one)
    return {unquote(name): unquote(value) for name, _, value in pairs}


def _form(environ, body):
    _, fields, files = parse_form_data({**environ, "wsgi.input": io.BytesIO(body)})
    return dict(fields), len(files["file"].read()) if "file" in files else 0


def _said(start, status, body):
    start(f"{status} {status}", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


class _Quiet(WSGIRequestHandler):
    """Writes no log."""

    disable_nagle_algorithm = True

    def log(self, *args, **how):
        """Say nothing."""


@pytest.fixture(scope="module")
def server():
    made = BucketServer()
    yield made
    made.stop()


@pytest.fixture
def s3(server, monkeypatch):
    """A bucket `lab`, and the environment of a user who may use it."""
    server.forget()
    for name in [one for one in os.environ if one.startswith("AWS_")]:
        monkeypatch.delenv(name)
    absent = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    for name, value in {**server.environ, **absent, "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", region_name=REGION, config=Config(signature_version="s3v4"))
    client.create_bucket(Bucket="lab", CreateBucketConfiguration={"LocationConstraint": REGION})
    return client
