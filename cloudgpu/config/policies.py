"""Policies: how long machines live and what ends them, as data, found by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cloudgpu.config.data import data_dir
from cloudgpu.config.textfile import shown
from cloudgpu.config.yamlfile import Table, read_yaml
from cloudgpu.core.names import NAME, NAME_RULE, near
from cloudgpu.core.policy import Policy, Unpausable
from cloudgpu.core.times import duration_text, parse_duration
from cloudgpu.errors import InvalidRequest

KEYS = ("description", "lease", "renew_until", "spot")
SPOT_KEYS = ("unpausable",)


@dataclass(frozen=True, slots=True)
class Found:
    """A policy and the file that says it."""

    policy: Policy
    path: Path


def load_policy(name: str, *, search: Sequence[Path] = ()) -> Found:
    """Return the policy called `name`: the first in the directories of `search`, else the shipped one.

    Raises InvalidRequest for an unknown name, with the near one, and for a fault in the file, with its line.
    """
    names = policy_names(search=search)
    if not NAME.fullmatch(name):
        raise InvalidRequest(
            f"{shown(name)!r} cannot be a policy's name: {NAME_RULE}.",
            field="policy",
            value=shown(name),
            next=f"Use one of: {', '.join(names)}.",
        )
    for directory in (*search, data_dir("policies")):
        table = read_yaml(directory / f"{name}.yaml")
        if table is not None:
            return Found(policy_from(table, name), table.path)
    meant = near(name, names)
    own = f", or write {search[-1] / name}.yaml" if search else ""
    raise InvalidRequest(
        f"No policy is called {name!r}" + (f"; did you mean {meant!r}?" if meant else "."),
        field="policy",
        value=name,
        next=f"Use one of: {', '.join(names)}{own}.",
    )


def policy_names(*, search: Sequence[Path] = ()) -> tuple[str, ...]:
    """Return the names of all policies there are, sorted."""
    stems = {file.stem for directory in (*search, data_dir("policies")) for file in directory.glob("*.yaml")}
    return tuple(sorted(stem for stem in stems if NAME.fullmatch(stem)))


def policy_from(table: Table, name: str) -> Policy:
    """Return the policy that a file's table describes; raise InvalidRequest with the line of a fault."""
    table.check_keys(KEYS, required=("lease", "renew_until"))
    lease, renew_until = _span(table, "lease"), _span(table, "renew_until")
    if renew_until < lease:
        says = f"is shorter than the lease ({duration_text(lease)}): a machine could not live to the end of its lease"
        raise table.fault("renew_until", says, next="Make it at least as long as the lease.")
    return Policy(name, lease, renew_until, _unpausable(table), table.line("description"))


def _span(table: Table, key: str) -> timedelta:
    try:
        return parse_duration(str(table.values[key]))
    except ValueError:
        way_out = "Write it like 90m, 8h, 1h30m or 3d."
        raise table.fault(key, "is no duration from a second to ten years", next=way_out) from None


def _unpausable(table: Table) -> Unpausable:
    spot = table.values.get("spot", {})
    if not isinstance(spot, dict):
        raise table.fault("spot", "has to be a table", next="Write `  unpausable: park` on a line below it.")
    for key in spot:
        if key not in SPOT_KEYS:
            meant = near(key, SPOT_KEYS)
            says = "is no known key" + (f"; did you mean {meant!r}?" if meant else "")
            raise table.fault(f"spot.{key}", says, next=f"Use one of: {', '.join(SPOT_KEYS)}.")
    value = spot.get("unpausable", Unpausable.PARK)
    if not isinstance(value, str) or value not in list(Unpausable):
        meant = near(str(value), map(str, Unpausable))
        says = f"cannot be {shown(value)!r}" + (f"; did you mean {meant!r}?" if meant else "")
        raise table.fault("spot.unpausable", says, next=f"Use one of: {', '.join(Unpausable)}.")
    return Unpausable(value)
