"""Which policy a machine is under: the one named at its launch, its project's, its tag's, or the usual one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cloudgpu.core.names import tag_value

FACTS = ("owner", "project", "template", "provider", "account", "market", "name")  # what a machine is chosen by


@dataclass(frozen=True, slots=True)
class Choices:
    """What [policies] of config.toml says: a policy's name by project, and by a `KEY=VALUE` that a machine bears."""

    projects: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The name of a policy, and who chose it: `--policy`, `policies.projects.thesis`, `policy of config.toml`."""

    name: str
    why: str


TYPED = "--policy"
USUAL = "policy of config.toml"
NOTHING = Choices()


def choose(typed: str | None, facts: Mapping[str, str | None], choices: Choices | None, usual: str) -> Chosen:
    """Return the policy of a machine with these facts (some of FACTS): the nearest word counts.

    A project is nearer than a tag, and of two tags the one that stands first. What was read from a cloud's tags is
    compared as a tag can say it.
    """
    choices = choices or NOTHING
    if typed is not None:
        return Chosen(typed, TYPED)
    for project, policy in choices.projects.items():
        if _is(project, facts.get("project")):
            return Chosen(policy, f"policies.projects.{project} of config.toml")
    for tag, policy in choices.tags.items():
        key, _, value = tag.partition("=")
        if _is(value, facts.get(key)):
            return Chosen(policy, f'policies.tags."{tag}" of config.toml')
    return Chosen(usual, USUAL)


def _is(wanted: str, said: str | None) -> bool:
    return said is not None and (wanted == said or tag_value(wanted) == said)
