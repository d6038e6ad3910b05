"""Reads [policies] of config.toml: which policy machines of a project, or with a tag, are under."""

from __future__ import annotations

from types import MappingProxyType

from cloudgpu.config.files.text import shown
from cloudgpu.core.policies.description import FACTS, Choices
from cloudgpu.core.values.naming import NAME, NAME_RULE, did_you_mean, near
from cloudgpu.errors import InvalidRequest

KEYS = ("projects", "tags")
_KEY, _PLACE = "policies", "config.toml: "


def choices_from(table: object) -> Choices:
    """Return what the table says; raise InvalidRequest with the key of a fault."""
    if not isinstance(table, dict):
        raise _fault(_KEY, "has to be a table", "Write: [policies.projects]", table)
    for key in table:
        if key not in KEYS:
            says = "is no known key" + did_you_mean(near(key, KEYS))
            raise _fault(f"{_KEY}.{shown(key)}", says, f"Use one of: {', '.join(KEYS)}.", key)
    projects, tags = (_names(key, table.get(key, {})) for key in KEYS)
    for tag in tags:
        _check_tag(tag)
    return Choices(MappingProxyType(projects), MappingProxyType(tags))


def _names(key: str, table: object) -> dict[str, str]:
    place = f"{_KEY}.{key}"
    if not isinstance(table, dict):
        raise _fault(place, "has to be a table", f"Write: [{place}]", table)
    for one, name in table.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            says = f"is {shown(name)!r}, which is no policy's name"
            raise _fault(f"{place}.{shown(one)}", says, f"For a policy, {NAME_RULE}.", name)
    return dict(table)


def _check_tag(tag: str) -> None:
    key, equals, value = tag.partition("=")
    if not equals or not value.strip() or key not in FACTS:
        meant = near(key, FACTS)
        says = "is no tag" + (f"; did you mean {meant}=...?" if meant and meant != key else "")
        way_out = f'Write "KEY=VALUE" = "POLICY" with one of: {", ".join(FACTS)}.'
        raise _fault(f"{_KEY}.tags.{shown(tag)}", says, way_out, tag)


def _fault(key: str, says: str, way_out: str, value: object) -> InvalidRequest:
    end = "" if says.endswith("?") else "."
    return InvalidRequest(f"{_PLACE}{key} {says}{end}", field=f"{_PLACE}{key}", value=shown(value), next=way_out)
