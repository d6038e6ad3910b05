"""The table of a runpod account in config.toml, the address that calls go to, and the key that they bear."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudgpu.errors import AuthFailed, InvalidRequest
from cloudgpu.providers.shared.options import fault, matching, read_table, several

KIND = "runpod"
ENDPOINT, KEY = "CLOUDGPU_RUNPOD_ENDPOINT", "RUNPOD_API_KEY"
CLOUD = "https://api.runpod.io"
COMMUNITY = "COMMUNITY"  # the region and zone of a pod on somebody's own computer: RunPod names no place of it
IMAGE = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"  # of RunPod's own examples, 2026-08-20
DATA_CENTER = re.compile(r"[A-Z]{2,4}(?:-[A-Z0-9]{1,6}){1,3}")
IMAGE_NAME = re.compile(r"[a-z0-9][a-z0-9._/:-]{0,199}(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127}|@sha256:[0-9a-f]{64})")
MIN_GB, MAX_GB = 5, 4000
KEYS = "Make a key at https://console.runpod.io/user/settings and set RUNPOD_API_KEY, or run: runpodctl config"


@dataclass(frozen=True, slots=True)
class RunpodOptions:
    """What an account's table says. `data_centers` empty: all.

    `container_gb` is the disk of the container, which every stop erases.
    """

    data_centers: tuple[str, ...] = ()
    container_gb: int = 40
    image: str = IMAGE


def runpod_options(account: str, table: Mapping[str, Any]) -> RunpodOptions:
    """Return the options of an account's table; raise InvalidRequest for the first that is none or cannot be."""
    return RunpodOptions(**read_table(KIND, account, table, _READERS))


def is_image(text: str) -> bool:
    """Say whether a text names a container image by its tag or digest."""
    return IMAGE_NAME.fullmatch(text) is not None


def endpoint() -> str:
    """Return where calls go: CLOUDGPU_RUNPOD_ENDPOINT, else RunPod itself."""
    return (os.environ.get(ENDPOINT) or CLOUD).rstrip("/")


def login() -> Mapping[str, str]:
    """Return the header that carries the key. Raises AuthFailed where there is none."""
    key = _key()
    if key is None:
        raise AuthFailed("No key of RunPod is set on this computer.", field=KEY, next=KEYS)
    return {"Authorization": f"Bearer {key}"}


def key_from() -> str | None:
    """Return where the key is from, in words: never the key itself; None for no key."""
    if os.environ.get(KEY):
        return KEY
    return str(_file()) if _key() else None


def _key() -> str | None:
    """Return the key of the environment, else that of runpodctl: not for a server of somebody else's."""
    named = (os.environ.get(KEY) or "").strip()
    if named or os.environ.get(ENDPOINT):
        return _checked(named) if named else None
    found = _in_file()
    return None if found is None else _checked(found)


def _checked(key: str) -> str:
    if re.fullmatch(r"[\x21-\x7e]{8,200}", key):
        return key
    raise AuthFailed("The key of RunPod has characters that no key has, or too few.", field=KEY, next=KEYS)


def _file() -> Path:
    return Path(os.environ.get("HOME") or Path.home()) / ".runpod" / "config.toml"


def _in_file() -> str | None:
    """Return the key that runpodctl (`apikey`) or RunPod's SDK (`[default] api_key`) has written; None for none."""
    try:
        table = tomllib.loads(_file().read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        message = f"{_file()} cannot be read: {type(error).__name__}."
        raise AuthFailed(message, field=str(_file()), next=KEYS) from None
    usual = table.get("default")
    of_sdk = usual.get("api_key") if isinstance(usual, dict) else None
    found = table.get("apikey") or table.get("apiKey") or of_sdk
    return found.strip() if isinstance(found, str) and found.strip() else None


def _gb(account: str, key: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and MIN_GB <= value <= MAX_GB:
        return value
    says = f"is {value!r}, which is not a size in GB."
    raise fault(account, key, value, says, f"Write a number from {MIN_GB} to {MAX_GB}, like {key} = 40.")


def _image(account: str, key: str, value: object) -> str:
    if isinstance(value, str) and is_image(value):
        return value
    says = f"is {value!r}, which is not a container image with its tag."
    raise fault(account, key, value, says, f'Write it like {key} = "{IMAGE}".')


def image_fault(image: str) -> InvalidRequest:
    """Return the error for an `--image` that names no container image."""
    message = f"{image!r} is not a container image with its tag; RunPod runs containers."
    return InvalidRequest(message, field="--image", value=image, next=f"Write it like --image {IMAGE}.")


_READERS = {
    "data_centers": several(matching(DATA_CENTER, "a data centre", "US-KS-2"), "data centres", "US-KS-2"),
    "container_gb": _gb,
    "image": _image,
}
