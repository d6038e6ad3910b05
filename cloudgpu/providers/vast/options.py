"""The options of a vast account in config.toml, and the file or variable with its API key."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudgpu.errors import AuthFailed
from cloudgpu.providers.registry import Reader, read_table, setting_error
from cloudgpu.providers.shared import containers
from cloudgpu.providers.shared.options import flag, key_file, matching, several

ENDPOINT_VARIABLE = "CLOUDGPU_VAST_ENDPOINT"
API_URL = "https://console.vast.ai"
KEY_VARIABLE = "VAST_API_KEY"
KEY_FILES = ("~/.config/vastai/vast_api_key", "~/.vast_api_key")  # of vast.ai's own command line, now and before
DEFAULT_RELIABILITY = 0.95
MAX_KEY_LENGTH = 4096  # characters
COUNTRY_PATTERN = re.compile(r"[A-Z]{2}")
EXAMPLE_IMAGE = "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel"
_KEY_PATTERN = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class VastOptions:
    """The options of an account. `regions` empty: all.

    `reliability` is the minimum for hosts (vast.ai's `reliability2`, 0 to 1). `unverified`: include hosts that vast.ai
    has not verified. `image` is the container image (None: NVIDIA's CUDA). `key_file` has the API key.
    """

    regions: tuple[str, ...] = ()
    exclude_regions: tuple[str, ...] = ()
    reliability: float = DEFAULT_RELIABILITY
    unverified: bool = False
    image: str | None = None
    key_file: str | None = None

    def uses(self, country: str) -> bool:
        """Tell whether the account uses a country."""
        return country not in self.exclude_regions and (not self.regions or country in self.regions)


def vast_options(account: str, table: Mapping[str, Any]) -> VastOptions:
    """Return the options of an account's table; raise InvalidRequest for the first unknown or invalid one."""
    return VastOptions(**read_table("vast", account, table, _READERS))


def endpoint() -> str:
    """Return the address of the API: CLOUDGPU_VAST_ENDPOINT, else vast.ai's."""
    return os.environ.get(ENDPOINT_VARIABLE) or API_URL


def key_location(options: VastOptions) -> str:
    """Return the file or variable with the account's key, for messages; empty for none. Reads no file."""
    if options.key_file is not None:
        return options.key_file
    if os.environ.get(KEY_VARIABLE):
        return KEY_VARIABLE
    files = (
        () if os.environ.get(ENDPOINT_VARIABLE) else KEY_FILES
    )  # a key in the default files is not sent to another endpoint
    return next((name for name in files if Path(name).expanduser().is_file()), "")


def api_key(account: str, options: VastOptions) -> str:
    """Return the account's API key; raise AuthFailed where there is none, or no valid one."""
    location = key_location(options)
    key = (
        os.environ.get(KEY_VARIABLE, "")
        if location == KEY_VARIABLE
        else _read_key_file(account, location)
        if location
        else ""
    )
    key = key.strip()
    if _KEY_PATTERN.fullmatch(key):
        return key
    problem = f"{location} holds no API key" if location else f"There is no API key of vast.ai for account {account}"
    remedy = f"Make one at https://cloud.vast.ai/manage-keys/ and put it into {KEY_VARIABLE} or {KEY_FILES[0]}."
    raise AuthFailed(f"{problem}.", field=location or KEY_VARIABLE, next=remedy)


def _read_key_file(account: str, name: str) -> str:
    try:
        with Path(name).expanduser().open(encoding="ascii") as file:
            return file.read(MAX_KEY_LENGTH)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not plain text"
        message = f"The key file {name} of account {account} cannot be read: {why}."
        raise AuthFailed(message, field="key_file", value=name, next="Name the file that holds the key.") from None


def _reliability(account: str, key: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    problem = f"is {value!r}, which is not a reliability from 0 to 1."
    raise setting_error(account, key, value, problem, f"Write it like {key} = {DEFAULT_RELIABILITY}.")


_country: Reader = matching(COUNTRY_PATTERN, "a country's code", "NO")
_READERS: Mapping[str, Reader] = {  # what checks the value of each key
    "regions": several(_country, "countries", "NO"),
    "exclude_regions": several(_country, "countries", "NO"),
    "reliability": _reliability,
    "unverified": flag,
    "image": matching(containers.IMAGE, "an image with its tag", EXAMPLE_IMAGE),
    "key_file": key_file,
}
