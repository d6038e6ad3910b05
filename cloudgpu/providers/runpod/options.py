"""The options of a runpod account in config.toml, the API's address, and the API key."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudgpu.errors import AuthFailed
from cloudgpu.providers.registry import read_table
from cloudgpu.providers.shared import containers
from cloudgpu.providers.shared.options import matching, several, whole_number

PROVIDER = "runpod"
CLOUD = "RunPod"  # its name in messages
ENDPOINT_VARIABLE, KEY_VARIABLE = "CLOUDGPU_RUNPOD_ENDPOINT", "RUNPOD_API_KEY"
API_URL = "https://api.runpod.io"
COMMUNITY = "COMMUNITY"  # region and zone of a pod in the community cloud, whose location RunPod does not report
DEFAULT_IMAGE = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"  # of RunPod's own examples, 2026-08-20
DATA_CENTER = re.compile(r"[A-Z]{2,4}(?:-[A-Z0-9]{1,6}){1,3}")
MIN_CONTAINER_GB, MAX_CONTAINER_GB = 5, 4000
KEY_REMEDY = "Make a key at https://console.runpod.io/user/settings and set RUNPOD_API_KEY, or run: runpodctl config"


@dataclass(frozen=True, slots=True)
class RunpodOptions:
    """The options of an account. `data_centers` empty: all.

    `container_gb` is the disk of the container, which every stop erases.
    """

    data_centers: tuple[str, ...] = ()
    container_gb: int = 40
    image: str = DEFAULT_IMAGE


def runpod_options(account: str, table: Mapping[str, Any]) -> RunpodOptions:
    """Return the options of an account's table; raise InvalidRequest for the first unknown or invalid one."""
    return RunpodOptions(**read_table(PROVIDER, account, table, _READERS))


def endpoint() -> str:
    """Return the API's address: CLOUDGPU_RUNPOD_ENDPOINT, else RunPod's."""
    return (os.environ.get(ENDPOINT_VARIABLE) or API_URL).rstrip("/")


def auth_headers() -> Mapping[str, str]:
    """Return the header with the key. Raises AuthFailed without a key."""
    key = _key()
    if key is None:
        raise AuthFailed("No key of RunPod is set on this computer.", field=KEY_VARIABLE, next=KEY_REMEDY)
    return {"Authorization": f"Bearer {key}"}


def key_location() -> str | None:
    """Return the variable or file that has the key, for messages; None without a key."""
    if os.environ.get(KEY_VARIABLE):
        return KEY_VARIABLE
    return str(_key_file()) if _key() else None


def _key() -> str | None:
    """Return the key of the environment, else that of runpodctl, which is never sent to another endpoint."""
    from_environment = (os.environ.get(KEY_VARIABLE) or "").strip()
    if from_environment or os.environ.get(ENDPOINT_VARIABLE):
        return _valid_key(from_environment) if from_environment else None
    from_file = _key_in_file()
    return None if from_file is None else _valid_key(from_file)


def _valid_key(key: str) -> str:
    if re.fullmatch(r"[\x21-\x7e]{8,200}", key):
        return key
    raise AuthFailed(
        "The key of RunPod has characters that no key has, or too few.", field=KEY_VARIABLE, next=KEY_REMEDY
    )


def _key_file() -> Path:
    return Path(os.environ.get("HOME") or Path.home()) / ".runpod" / "config.toml"


def _key_in_file() -> str | None:
    """Return the key in the file of runpodctl (`apikey`) or RunPod's SDK (`[default] api_key`); None for none."""
    try:
        table = tomllib.loads(_key_file().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise AuthFailed(
            f"{_key_file()} cannot be read: {type(error).__name__}.", field=str(_key_file()), next=KEY_REMEDY
        ) from None
    default_table = table.get("default")
    sdk_key = default_table.get("api_key") if isinstance(default_table, dict) else None
    key = table.get("apikey") or table.get("apiKey") or sdk_key
    return key.strip() if isinstance(key, str) and key.strip() else None


_READERS = {  # what checks the value of each key
    "data_centers": several(matching(DATA_CENTER, "a data centre", "US-KS-2"), "data centres", "US-KS-2"),
    "container_gb": whole_number("a size in GB", MIN_CONTAINER_GB, MAX_CONTAINER_GB),
    "image": matching(containers.IMAGE, "a container image with its tag", DEFAULT_IMAGE),
}
