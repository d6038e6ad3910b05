"""What a machine of our model of AWS was given at its launch: base64 as in RunInstances, then as on any cloud."""

from __future__ import annotations

import base64
from typing import Any

from tests.clouds import userdata
from tests.clouds.userdata import GZIP, Part

__all__ = ["GZIP", "Part", "cloud_config", "parts", "raw"]


def raw(user_data: str | None) -> bytes:
    """Return user data as the machine reads it, still compressed: the 16,384 bytes are counted here."""
    return base64.b64decode(user_data or "")


def parts(user_data: str | None) -> list[Part]:
    """Return the parts of user data; a plain script is one part."""
    return userdata.parts(raw(user_data))


def cloud_config(user_data: str | None) -> dict[str, Any]:
    """Return the cloud-config parts as one."""
    return userdata.cloud_config(parts(user_data))
