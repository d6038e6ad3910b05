"""Policies: how long machines live and what ends them, as data, found by name: in files, and in the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.config.files.paths import data_dir, file_names
from cloudgpu.config.files.text import shown
from cloudgpu.config.files.yaml import parse_yaml, read_yaml
from cloudgpu.config.policies.file import limits_from, policy_from
from cloudgpu.core.policies.limits import NO_LIMITS, Limits
from cloudgpu.core.policies.policy import Policy
from cloudgpu.core.values.naming import NAME, NAME_RULE, unknown_word
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.config.files.paths import Home
    from cloudgpu.core.team.rights import Published

_PLACE = Path("ledger")  # where errors say that a published text stands
LIMITS = "limits"  # a file of this name beside the policies is the lab's limits, and no policy


@dataclass(frozen=True, slots=True)
class Found:
    """A policy and the file that says it."""

    policy: Policy
    path: Path
    origin: str = ""  # who published it in the ledger, and when; empty for a file


def load_policy(name: str, *, search: Sequence[Path] = (), tz: str = "UTC") -> Found:
    """Return the policy called `name`: the first in the directories of `search`, else the shipped one.

    `tz` is the time zone of a schedule that names none.

    Raises InvalidRequest for an unknown name, with the near one, and for a fault in the file, with its line.
    """
    if name == LIMITS:
        raise _no_name(name, search)
    check_policy_name(name, search=search)
    for directory in (*search, data_dir("policies")):
        table = read_yaml(directory / f"{name}.yaml")
        if table is not None:
            return Found(policy_from(table, name, tz=tz), table.path)
    names = policy_names(search=search)
    own = f", or write {search[-1] / name}.yaml" if search else ""
    raise unknown_word(
        f"No policy is called {name!r}", name, names, field="policy", next=f"Use one of: {', '.join(names)}{own}."
    )


def check_policy_name(name: str, *, search: Sequence[Path] = ()) -> None:
    """Raise InvalidRequest for what cannot be the name of a policy, or of the limits."""
    if not NAME.fullmatch(name):
        raise _no_name(name, search)


def _no_name(name: str, search: Sequence[Path]) -> InvalidRequest:
    return InvalidRequest(
        f"{shown(name)!r} cannot be a policy's name: {_rule_of(name)}.",
        field="policy",
        value=shown(name),
        next=f"Use one of: {', '.join(policy_names(search=search))}.",
    )


def policy_names(*, search: Sequence[Path] = ()) -> tuple[str, ...]:
    """Return the names of all policies there are, sorted."""
    return tuple(name for name in file_names("policies", search) if name != LIMITS)


def _rule_of(name: str) -> str:
    return "limits.yaml holds the lab's limits" if name == LIMITS else NAME_RULE


def policy_paths(home: Home) -> tuple[Path, ...]:
    """Return where policies are looked for before the shipped ones: the project's, then the user's own."""
    return (Path.cwd() / ".cloudgpu" / "policies", home.policies)


def lab_limits(published: Mapping[str, Published]) -> Limits:
    """Return the limits that are published; without any, no limits."""
    one = published.get(LIMITS)
    if one is None:
        return NO_LIMITS
    return replace(limits_from(parse_yaml(one.text, _PLACE / f"{LIMITS}.yaml")), places=(one.origin,))


def published_policy(published: Mapping[str, Published], name: str) -> Found | None:
    """Return the published policy of this name, None for none such; raise InvalidRequest for a fault in it."""
    one = published.get(name)
    if one is None or name == LIMITS:
        return None
    file = _PLACE / f"{one.name}.yaml"
    return Found(policy_from(parse_yaml(one.text, file), one.name, tz=one.tz), file, one.origin)
