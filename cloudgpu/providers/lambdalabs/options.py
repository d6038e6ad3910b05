"""The table of a lambda account in config.toml, and its API key: the table names the key's file or variable."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudgpu.errors import AuthFailed
from cloudgpu.providers.registry import read_table, setting_error
from cloudgpu.providers.shared.options import key_file, matching, port, several

PROVIDER = "lambda"
SSH_PORT = 22
ENDPOINT = "https://cloud.lambda.ai/api/v1"
ENDPOINT_VARIABLE = "CLOUDGPU_LAMBDA_ENDPOINT"
# Lambda's SDK has none of its own: these are what public clients read, and the file is SkyPilot's.
KEY_VARIABLES = ("LAMBDA_API_KEY", "LAMBDA_CLOUD_API_TOKEN")
KEY_FILE = "~/.lambda_cloud/lambda_keys"
MAX_KEY_FILE_BYTES = 1 << 16
REGION = re.compile(r"[a-z]+(?:-[a-z]+)+-\d{1,2}")
_ADDRESS = re.compile(r"https?://[!-~]+")
_VARIABLE_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?[A-Za-z_]+\s*[=:]\s*")
_KEY_PATTERN = re.compile(r"[!-~]{16,512}")  # printable, without a space: it goes into a header


@dataclass(frozen=True, slots=True)
class LambdaOptions:
    """The options of an account's table. `regions` empty: all. `key_file` and `key_variable` say where the key is.

    `endpoint` None: CLOUDGPU_LAMBDA_ENDPOINT, else Lambda's own.
    """

    regions: tuple[str, ...] = ()
    exclude_regions: tuple[str, ...] = ()
    key_file: str | None = None
    key_variable: str | None = None
    endpoint: str | None = None
    ssh_port: int = SSH_PORT

    def uses(self, region: str) -> bool:
        """Say whether the account uses a region, by its settings alone."""
        return region not in self.exclude_regions and (not self.regions or region in self.regions)

    @property
    def base_url(self) -> str:
        """The URL that each path is appended to."""
        return self.endpoint or os.environ.get(ENDPOINT_VARIABLE) or ENDPOINT


def lambda_options(account: str, table: Mapping[str, Any]) -> LambdaOptions:
    """Return the options of an account's table; raise InvalidRequest for the first unknown or invalid one."""
    options = LambdaOptions(**read_table(PROVIDER, account, table, _READERS))
    if options.key_file and options.key_variable:
        problem = "goes with key_file as well: which of the two has the key is not clear."
        raise setting_error(account, "key_variable", options.key_variable, problem, "Leave one of the two out.")
    return options


def read_key(options: LambdaOptions) -> tuple[str, str]:
    """Return the API key, and the name of its variable or file.

    Raises AuthFailed where there is no key, or no valid one.
    """
    text_with_key, location = _find_key(options)
    key = _ASSIGNMENT.sub("", text_with_key.strip(), count=1).strip().strip("\"'")
    if _KEY_PATTERN.fullmatch(key):
        return key, location
    message = f"{location} holds no API key of Lambda: it has to be one word of at least 16 characters."
    raise AuthFailed(message, field="credential", value=location, next="Make a key at cloud.lambda.ai/api-keys.")


def _find_key(options: LambdaOptions) -> tuple[str, str]:
    if options.key_variable:
        value = os.environ.get(options.key_variable, "")
        if value:
            return value, options.key_variable
        raise _no_key_error(f"{options.key_variable}, which the account names, is not set.")
    if options.key_file:
        return _key_line(Path(options.key_file).expanduser()), options.key_file
    for name in KEY_VARIABLES:
        if os.environ.get(name):
            return os.environ[name], name
    file = Path(KEY_FILE).expanduser()
    if file.exists():
        return _key_line(file), KEY_FILE
    raise _no_key_error("No API key of Lambda was found.")


def _key_line(file: Path) -> str:
    """Return the line of a file that holds the key: `api_key = KEY`, or the key alone."""
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            text_lines = opened.read(MAX_KEY_FILE_BYTES).splitlines()
    except OSError as error:
        raise _no_key_error(f"{file} cannot be read: {error.strerror}.") from error
    lines = [line for line in text_lines if line.strip() and line.strip()[0] not in "#["]
    key_lines = [line for line in lines if _ASSIGNMENT.match(line) and "key" in line.partition("=")[0].lower()]
    return next(iter([*key_lines, *lines]), "")


def _no_key_error(message: str) -> AuthFailed:
    remedy = f"Set {KEY_VARIABLES[0]}, or name a file: [accounts.NAME] key_file = ... in config.toml."
    return AuthFailed(message, field="credential", value=None, next=remedy)


def _variable_name(account: str, key: str, value: object) -> str:
    """Read a variable's name; what looks like a key itself is refused without being shown."""
    if isinstance(value, str) and _VARIABLE_PATTERN.fullmatch(value) and not value.startswith("secret_"):
        return value
    problem = "is not the name of an environment variable. The key itself does not belong into config.toml."
    raise setting_error(account, key, None, problem, 'Write it like key_variable = "LAMBDA_API_KEY".')


_region = matching(REGION, "a region", "us-east-1")
_READERS = {  # what checks the value of each key
    "regions": several(_region, "regions", "us-east-1"),
    "exclude_regions": several(_region, "regions", "us-east-1"),
    "key_file": key_file,
    "key_variable": _variable_name,
    "endpoint": matching(_ADDRESS, "an address", ENDPOINT),
    "ssh_port": port,
}
