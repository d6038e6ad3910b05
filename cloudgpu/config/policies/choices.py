"""Reads [policies] of config.toml: which policy machines of a project, or with a tag, are under."""

from __future__ import annotations

from types import MappingProxyType

from cloudgpu.config.files.user_files import setting_fault, settings_table, shown
from cloudgpu.core.policies.description import FACTS, Choices
from cloudgpu.core.values.naming import NAME, NAME_RULE, closest_match

KEYS = ("projects", "tags")
_KEY = "policies"


def choices_from(table: object) -> Choices:
    """Return what the table says; raise InvalidRequest with the key of a fault."""
    given = settings_table(_KEY, table, KEYS, next="Write [policies.projects] or [policies.tags].")
    projects, tags = (_names(key, given.get(key, {})) for key in KEYS)
    for tag in tags:
        _check_tag(tag)
    return Choices(MappingProxyType(projects), MappingProxyType(tags))


def _names(key: str, table: object) -> dict[str, str]:
    setting = f"{_KEY}.{key}"
    given = settings_table(setting, table)
    for one, name in given.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            says = f"is {shown(name)!r}, which is not a policy's name"
            raise setting_fault(f"{setting}.{shown(one)}", name, says, f"For a policy, {NAME_RULE}.")
    return given


def _check_tag(tag: str) -> None:
    key, equals, value = tag.partition("=")
    if not equals or not value.strip() or key not in FACTS:
        meant = closest_match(key, FACTS)
        says = "is not a tag" + (f"; did you mean {meant}=...?" if meant and meant != key else "")
        way_out = f'Write "KEY=VALUE" = "POLICY" with one of: {", ".join(FACTS)}.'
        raise setting_fault(f"{_KEY}.tags.{shown(tag)}", tag, says, way_out)
