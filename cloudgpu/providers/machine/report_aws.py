"""Writes the time of the last activity into this machine's own tag, where it can be read without SSH.

Root runs it each minute; it sends one CreateTags if the agent's `last-active` is later than the one sent last. The
instance profile allows that one key on this one machine. Standard library only, Python 3.8+. The signature is AWS
Signature Version 4 (IAM user guide, "Create a signed AWS API request").
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlencode, urlsplit

IMDS = os.environ.get("IMDS", "http://169.254.169.254/latest")
AGENT = Path(os.environ.get("AGENT", "/home/cloudgpu/.cloudgpu"))
SENT = Path(os.environ.get("RUN", "/run/cloudgpu")) / "reported"
TAG = "cloudgpu-last-active"
WAIT_S = 5


def epoch(path: Path) -> int:
    """Return the epoch in a file, 0 for none."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def fetch(url: str, headers: dict[str, str], method: str = "GET", body: bytes | None = None) -> str:
    """Return an answer's text. Raises OSError."""
    call = urllib.request.Request(url, data=body, method=method, headers=headers)  # noqa: S310
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(call, timeout=WAIT_S) as answer:
        return str(answer.read().decode())


def sign(url: str, region: str, body: str, key: dict[str, str], now: float) -> dict[str, str]:
    """Return the headers of a signed request."""
    stamp, host = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now)), urlsplit(url).netloc
    scope = "/".join((stamp[:8], region, "ec2", "aws4_request"))
    headers = {"host": host, "x-amz-date": stamp, "x-amz-security-token": key["Token"]}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = "\n".join(("POST", "/", "", lines, names, hashlib.sha256(body.encode()).hexdigest()))
    text = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    secret = ("AWS4" + key["SecretAccessKey"]).encode()
    for part in scope.split("/"):
        secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
    credential = "Credential={}/{}".format(key["AccessKeyId"], scope)
    del headers["host"]
    return {**headers, "Authorization": f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={signature}"}


def send(last: int) -> None:
    """Set the tag. Raises OSError, KeyError, ValueError."""
    session = fetch(f"{IMDS}/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")

    def ask(path: str) -> str:
        return fetch(f"{IMDS}/meta-data/{path}", {"X-aws-ec2-metadata-token": session}).strip()

    role = ask("iam/security-credentials/").split()[0]
    key = json.loads(ask(f"iam/security-credentials/{role}"))
    region = ask("placement/region")
    # In China it is amazonaws.com.cn (EC2 user guide, instance metadata categories: services/domain).
    url = os.environ.get("EC2_URL") or f"https://ec2.{region}.{ask('services/domain')}/"
    query = {"Action": "CreateTags", "Version": "2016-11-15", "ResourceId.1": ask("instance-id")}
    body = urlencode({**query, "Tag.1.Key": TAG, "Tag.1.Value": last})
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    fetch(url, {**form, **sign(url, region, body, key, time.time())}, "POST", body.encode())


def main() -> int:
    """Report once; the next run retries errors."""
    last = epoch(AGENT / "last-active")
    if last <= epoch(SENT):
        return 0
    try:
        send(last)
    except (OSError, LookupError, ValueError) as error:
        sys.stderr.write(f"cloudgpu-report: {error}\n")
        return 1
    SENT.write_text(f"{last}\n", encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
