"""Redacts secrets in the line of a scheduled job, which goes to screens and into logs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger.open import open_ledger

# Variables without secrets that a job takes along: cron does not have those of the shell.
CARRIED = """
AWS_PROFILE AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE AWS_ENDPOINT_URL AWS_REGION AWS_DEFAULT_REGION AWS_CA_BUNDLE
GOOGLE_APPLICATION_CREDENTIALS GOOGLE_CLOUD_PROJECT CLOUDSDK_CONFIG CLOUDGPU_GCP_ENDPOINT
AZURE_CONFIG_DIR AZURE_SUBSCRIPTION_ID CLOUDGPU_AZURE_ENDPOINT CLOUDGPU_LAMBDA_ENDPOINT HTTPS_PROXY NO_PROXY
CLOUDGPU_RUNPOD_ENDPOINT CLOUDGPU_VAST_ENDPOINT
PGPASSFILE PGSERVICEFILE PGSSLMODE PGSSLROOTCERT PGSSLCERT PGSSLKEY
""".split()
# Variables that may hold secrets: they are never written into a table that others may read.
SECRETS = """
AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AZURE_CLIENT_ID AZURE_CLIENT_SECRET AZURE_TENANT_ID
LAMBDA_API_KEY LAMBDA_CLOUD_API_TOKEN RUNPOD_API_KEY VAST_API_KEY CLOUDGPU_ALERTS CLOUDGPU_DEADMAN PGPASSWORD
""".split()
HIDDEN = "***"
_WORD = re.compile(r"""\s+|(?:[^\s"'\\]|\\.|"(?:\\.|[^"\\])*"|'[^']*')+""")
_SET = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_SECRET_NAME = re.compile("pass|_pwd|secret|token|key|credential", re.IGNORECASE)
_LOGIN = re.compile(r"://[^/\s]*:[^/\s]*@")
_LEDGER = "CLOUDGPU_LEDGER"


def redacted_line(line: str, environment: Mapping[str, str]) -> str:
    """Return a job's line with each secret value as ***, and the ledger's URL as its place.

    Nothing of the line is shown where a secret of `environment`, the job's own, would still stand in it.
    """
    words = _WORD.findall(line)
    if "".join(words) != line:
        return HIDDEN
    text = "".join(word if word.isspace() else _shown_word(word) for word in words)
    return HIDDEN if any(secret in text for secret in _secrets(environment)) else text


def ledger_location(url: str) -> str | None:
    """Return where the ledger at `url` stands, without a password; None for a URL that names no ledger."""
    try:
        return open_ledger(url, Path("/nowhere"), actor="", clock=_no_clock).location
    except CloudgpuError:
        return None


def _shown_word(word: str) -> str:
    plain = "".join(shlex.split(word.replace(r"\%", "%").replace("%%", "%")))
    found = _SET.fullmatch(plain)
    if found and found[1] == _LEDGER and not re.search(r"\s", plain):
        return f"{_LEDGER}={ledger_location(found[2]) or HIDDEN}"
    if found and _is_secret(found[1]):
        return f"{found[1]}={HIDDEN}"
    has_secret = any(_is_secret(name) or name == _LEDGER for name in _NAME.findall(plain))
    return HIDDEN if has_secret or _LOGIN.search(plain) else word


def _is_secret(name: str) -> bool:
    return name not in CARRIED and (name in SECRETS or bool(_SECRET_NAME.search(name)))


def _secrets(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if value and _is_secret(name):
            yield value
    try:
        parts = urlsplit(environment.get(_LEDGER, ""))
    except ValueError:
        return
    asked = [value for name, value in parse_qsl(parts.query) if _is_secret(name)]
    yield from {one for password in (parts.password, *asked) if password for one in (password, unquote(password))}


def _no_clock() -> datetime:
    raise AssertionError
