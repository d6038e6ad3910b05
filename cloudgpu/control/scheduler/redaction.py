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

# Variables without secrets that are copied into a job: cron does not have those of the shell.
COPIED_VARIABLES = """
AWS_PROFILE AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE AWS_ENDPOINT_URL AWS_REGION AWS_DEFAULT_REGION AWS_CA_BUNDLE
GOOGLE_APPLICATION_CREDENTIALS GOOGLE_CLOUD_PROJECT CLOUDSDK_CONFIG CLOUDGPU_GCP_ENDPOINT
AZURE_CONFIG_DIR AZURE_SUBSCRIPTION_ID CLOUDGPU_AZURE_ENDPOINT CLOUDGPU_LAMBDA_ENDPOINT HTTPS_PROXY NO_PROXY
https_proxy no_proxy SSL_CERT_FILE REQUESTS_CA_BUNDLE
CLOUDGPU_RUNPOD_ENDPOINT CLOUDGPU_VAST_ENDPOINT
PGPASSFILE PGSERVICEFILE PGSSLMODE PGSSLROOTCERT PGSSLCERT PGSSLKEY
""".split()
# Variables that may hold secrets: they are never written into a table that others may read.
SECRET_VARIABLES = """
AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AZURE_CLIENT_ID AZURE_CLIENT_SECRET AZURE_TENANT_ID
LAMBDA_API_KEY LAMBDA_CLOUD_API_TOKEN RUNPOD_API_KEY VAST_API_KEY CLOUDGPU_ALERTS CLOUDGPU_DEADMAN PGPASSWORD
""".split()
REDACTED = "***"
# a word of a shell command with its quotes and escapes, or the space between two words
_SHELL_WORD = re.compile(r"""\s+|(?:[^\s"'\\]|\\.|"(?:\\.|[^"\\])*"|'[^']*')+""")
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_ASSIGNED_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_SECRET_NAME = re.compile("pass|_pwd|secret|token|key|credential", re.IGNORECASE)
_URL_WITH_PASSWORD = re.compile(r"://[^/\s]*:[^/\s]*@")
_PASSWORD_OF_HOST = re.compile(r"(?:^|//)[^/\s]*:[^/\s]*@")  # a proxy may be named without a scheme
_LEDGER_VARIABLE = "CLOUDGPU_LEDGER"


def redacted_line(line: str, environment: Mapping[str, str]) -> str:
    """Return a job's line with each secret value as ***, and the ledger's URL as its place.

    Nothing of the line is shown where a secret of `environment`, the job's own, would still stand in it.
    """
    words = _SHELL_WORD.findall(line)
    if "".join(words) != line:
        return REDACTED
    text = "".join(word if word.isspace() else _redacted_word(word) for word in words)
    return REDACTED if any(secret in text for secret in _secret_values(environment)) else text


def secrets_in(environment: Mapping[str, str]) -> list[str]:
    """Return the variables of this environment that a job may need and whose values are, or hold, a secret."""
    copied = (name for name in COPIED_VARIABLES if _PASSWORD_OF_HOST.search(environment.get(name, "")))
    return [*(name for name in SECRET_VARIABLES if environment.get(name)), *copied]


def ledger_location(url: str) -> str | None:
    """Return where the ledger at `url` stands, without a password; None for a URL that names no ledger."""
    try:
        return open_ledger(url, Path("/nowhere"), actor="", clock=_no_clock).location
    except CloudgpuError:
        return None


def _redacted_word(word: str) -> str:
    """Return a word of a shell command with its secret as ***."""
    unquoted = "".join(shlex.split(word.replace(r"\%", "%").replace("%%", "%")))
    assignment = ASSIGNMENT.fullmatch(unquoted)
    if assignment and assignment[1] == _LEDGER_VARIABLE and not re.search(r"\s", unquoted):
        return f"{_LEDGER_VARIABLE}={ledger_location(assignment[2]) or REDACTED}"
    if assignment and _is_secret(assignment[1]):
        return f"{assignment[1]}={REDACTED}"
    has_secret = any(_is_secret(name) or name == _LEDGER_VARIABLE for name in _ASSIGNED_NAME.findall(unquoted))
    return REDACTED if has_secret or _URL_WITH_PASSWORD.search(unquoted) else word


def _is_secret(name: str) -> bool:
    return name not in COPIED_VARIABLES and (name in SECRET_VARIABLES or bool(_SECRET_NAME.search(name)))


def _secret_values(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of secret variables, and the passwords in the ledger's URL."""
    for name, value in environment.items():
        if value and _is_secret(name):
            yield value
    try:
        parts = urlsplit(environment.get(_LEDGER_VARIABLE, ""))
    except ValueError:
        return
    query_secrets = [value for name, value in parse_qsl(parts.query) if _is_secret(name)]
    for password in (parts.password, *query_secrets):
        if password:
            yield from {password, unquote(password)}  # in a URL it may be percent-encoded


def _no_clock() -> datetime:
    """Fail: a ledger that is only asked for its location needs no clock."""
    raise AssertionError
