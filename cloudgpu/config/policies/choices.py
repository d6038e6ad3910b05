"""Reads [policies] of config.toml: which policy applies to machines of a project, or with a tag."""

from __future__ import annotations

from types import MappingProxyType

from cloudgpu.config.files.user_files import setting_error, settings_table, shown
from cloudgpu.core.policies.description import SELECTOR_KEYS, Choices
from cloudgpu.core.values.naming import NAME, NAME_RULE, closest_match

KEYS = ("projects", "tags")
_SETTING = "policies"


def choices_from(table: object) -> Choices:
    """Return the choices in the table; raise InvalidRequest with the key of the first error."""
    values = settings_table(_SETTING, table, KEYS, next="Write [policies.projects] or [policies.tags].")
    projects, tags = (_policy_names(key, values.get(key, {})) for key in KEYS)
    for tag in tags:
        _check_tag(tag)
    return Choices(MappingProxyType(projects), MappingProxyType(tags))


def _policy_names(key: str, table: object) -> dict[str, str]:
    setting = f"{_SETTING}.{key}"
    policies = settings_table(setting, table)
    for project_or_tag, name in policies.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            problem = f"is {shown(name)!r}, which is not a policy's name"
            raise setting_error(f"{setting}.{shown(project_or_tag)}", name, problem, f"For a policy, {NAME_RULE}.")
    return policies


def _check_tag(tag: str) -> None:
    key, equals, value = tag.partition("=")
    if not equals or not value.strip() or key not in SELECTOR_KEYS:
        suggestion = closest_match(key, SELECTOR_KEYS)
        problem = "is not a tag" + (f"; did you mean {suggestion}=...?" if suggestion and suggestion != key else "")
        remedy = f'Write "KEY=VALUE" = "POLICY" with one of: {", ".join(SELECTOR_KEYS)}.'
        raise setting_error(f"{_SETTING}.tags.{shown(tag)}", tag, problem, remedy)
