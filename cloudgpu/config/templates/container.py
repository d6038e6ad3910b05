"""The container of a template: an image's reference, with the template's settings put in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from cloudgpu.core.catalog.container_images import parse_reference
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.errors import InvalidRequest

_SETTING = re.compile(r"\{\{ *settings\.([a-z][a-z0-9_]*) *\}\}")
_MOVING = ("", "latest")
_EXAMPLE = "nvcr.io/nvidia/pytorch:25.06-py3"


def container_image(text: str, settings: Mapping[str, str], path: Path) -> str:
    """Return the image that `container` of the template in `path` names; empty for none.

    Raises InvalidRequest for a setting that the template does not have, for what is no image, and for one without a
    fixed tag or digest: what a second machine pulls has to be what the first one has.
    """
    if not text:
        return ""
    image = _SETTING.sub(lambda found: _setting(found[1], settings, path), text)
    found = parse_reference(image)
    if found is None:
        raise _fault(image, path, "is not the name of a container image", f"For example: container: {_EXAMPLE}")
    if not found.digest and found.tag in _MOVING:
        says = "has no fixed tag, so two machines could get different images"
        raise _fault(image, path, says, f"Name one, for example: container: {_EXAMPLE}")
    return image


def _setting(name: str, settings: Mapping[str, str], path: Path) -> str:
    if name in settings:
        return settings[name]
    known = ", ".join(settings)
    raise unknown_word(
        f"{path.name}: container uses {name!r}, which is not a setting of this template",
        name,
        settings,
        field=f"{path.name}: container",
        value=name,
        next=f"Its settings: {known}." if known else f"Add it under `settings:` ({path}).",
    )


def _fault(image: str, path: Path, says: str, way: str) -> InvalidRequest:
    return InvalidRequest(
        f"{path.name}: container {image!r} {says}.",
        field=f"{path.name}: container",
        value=image,
        next=f"{way} ({path})",
    )
