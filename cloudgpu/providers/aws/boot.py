"""How an image boots, as a tag that a system disk bears: a disk outlives the image that it was made from. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

TAG_BOOT = "cloudgpu-boot"
_TAG = re.compile(r"(x86_64|arm64|i386)_([a-z0-9]+)_(none|legacy-bios|uefi|uefi-preferred)")


def boot_tag(image: Mapping[str, Any]) -> str:
    """Return what has to be known of an image to make one like it: architecture, root device, boot mode."""
    device = (image.get("RootDeviceName") or "/dev/sda1").removeprefix("/dev/")
    return f"{image['Architecture']}_{device}_{image.get('BootMode', 'none')}"


def register_as(tag: str) -> dict[str, Any] | None:
    """Return the parameters of RegisterImage that a tag stands for; None for a tag that says nothing."""
    found = _TAG.fullmatch(tag)
    if found is None:
        return None
    boots = {} if found[3] == "none" else {"BootMode": found[3]}
    return {
        "Architecture": found[1],
        "RootDeviceName": f"/dev/{found[2]}",
        "VirtualizationType": "hvm",
        "EnaSupport": True,  # every type that is on offer needs it, and every image since 2016 has the driver
        **boots,
    }
