"""The table of a vast account in config.toml, and where its key is found: never in the table itself."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudgpu.errors import AuthFailed
from cloudgpu.providers.shared.options import Reader, fault, flag, matching, read_table, several, text

ENDPOINT = "CLOUDGPU_VAST_ENDPOINT"
API = "https://console.vast.ai"
VARIABLE = "VAST_API_KEY"
KEY_FILES = ("~/.config/vastai/vast_api_key", "~/.vast_api_key")  # vast.ai's own command line: its place, its older one
DEFAULT_RELIABILITY = 0.95
LARGEST_KEY = 4096  # characters
COUNTRY = re.compile(r"[A-Z]{2}")
IMAGE = re.compile(r"[a-z0-9][a-z0-9._/:-]*(?::[A-Za-z0-9_][A-Za-z0-9_.-]*|@sha256:[0-9a-f]{64})")
_KEY = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class VastOptions:
    """What an account's table says. `regions` empty: all.

    `reliability` is the least that a host may have (vast.ai's `reliability2`, 0 to 1). `unverified`: hosts that vast.ai
    has not verified are shown, too. `image` is what containers run (None: NVIDIA's CUDA). `key_file` has the API key.
    """

    regions: tuple[str, ...] = ()
    exclude_regions: tuple[str, ...] = ()
    reliability: float = DEFAULT_RELIABILITY
    unverified: bool = False
    image: str | None = None
    key_file: str | None = None

    def uses(self, country: str) -> bool:
        """Say whether machines are launched in a country."""
        return country not in self.exclude_regions and (not self.regions or country in self.regions)


def vast_options(account: str, table: Mapping[str, Any]) -> VastOptions:
    """Return the options of an account's table; raise InvalidRequest for the first that is none or cannot be."""
    return VastOptions(**read_table("vast", account, table, _READERS))


def endpoint() -> str:
    """Return the address of the interface: that of a server of one's own, where CLOUDGPU_VAST_ENDPOINT names one."""
    return os.environ.get(ENDPOINT) or API


def key_location(options: VastOptions) -> str:
    """Return where the account's key is, in words; empty where there is none. Reads no file."""
    if options.key_file is not None:
        return options.key_file
    if os.environ.get(VARIABLE):
        return VARIABLE
    files = () if os.environ.get(ENDPOINT) else KEY_FILES  # nothing that lies about is sent to a server of one's own
    return next((name for name in files if Path(name).expanduser().is_file()), "")


def api_key(account: str, options: VastOptions) -> str:
    """Return the account's API key; raise AuthFailed where there is none, or what is there is none."""
    source = key_location(options)
    found = os.environ.get(VARIABLE, "") if source == VARIABLE else _read(account, source) if source else ""
    found = found.strip()
    if _KEY.fullmatch(found):
        return found
    says = f"{source} holds no API key" if source else f"There is no API key of vast.ai for account {account}"
    remedy = f"Make one at https://cloud.vast.ai/manage-keys/ and put it into {VARIABLE} or {KEY_FILES[0]}."
    raise AuthFailed(f"{says}.", field=source or VARIABLE, next=remedy)


def _read(account: str, name: str) -> str:
    try:
        with Path(name).expanduser().open(encoding="ascii") as file:
            return file.read(LARGEST_KEY)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not plain text"
        message = f"The key file {name} of account {account} cannot be read: {why}."
        raise AuthFailed(message, field="key_file", value=name, next="Name the file that holds the key.") from None


def _reliability(account: str, key: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    says = f"is {value!r}, which is not a reliability from 0 to 1."
    raise fault(account, key, value, says, f"Write it like {key} = {DEFAULT_RELIABILITY}.")


def _file(account: str, key: str, value: object) -> str:
    found = text(account, key, value)
    if found.startswith(("/", "~/")):
        return found
    raise fault(account, key, "...", "has to be the whole path of a file, not a key.", "Write it like ~/.vast_api_key.")


_country: Reader = matching(COUNTRY, "a country's code", "NO")
_READERS: Mapping[str, Reader] = {
    "regions": several(_country, "countries", "NO"),
    "exclude_regions": several(_country, "countries", "NO"),
    "reliability": _reliability,
    "unverified": flag,
    "image": matching(IMAGE, "an image with its tag", "pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel"),
    "key_file": _file,
}
