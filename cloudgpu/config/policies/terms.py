"""Reads the policy and the limits that stand in a machine's terms, in whatever home this is."""

from __future__ import annotations

from pathlib import Path

from cloudgpu.config.files.yaml import parse_yaml
from cloudgpu.config.policies.file import limits_from, policy_from
from cloudgpu.config.policies.find import Found
from cloudgpu.core.model.facts import Terms
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.policies.limits import Limits, joined

_AT_LAUNCH = "the ledger, as the home that launched it last read it"


def is_from(home: str, row: Machine) -> bool:
    """Say whether this home has launched a machine: its files are the ones that count. `home` is its `home_id`."""
    terms = row.terms
    return terms is not None and bool(terms.home == home)


def policy_in(terms: Terms, name: str, *, here: bool) -> Found | None:
    """Return the policy that stands in a machine's terms, None for a shipped one; raise InvalidRequest for a fault."""
    one = terms.policy
    if one is None:
        return None
    is_there = here and one.place is not None and Path(one.place).is_file()
    file = Path(str(one.place)) if is_there else Path("ledger") / f"{name}.yaml"
    return Found(policy_from(parse_yaml(one.text, file), name, tz=str(one.tz)), file, "" if is_there else _AT_LAUNCH)


def limits_in(terms: Terms) -> Limits:
    """Return the narrowest of the limits that stand in a machine's terms; raise InvalidRequest for a fault."""
    return joined(limits_from(parse_yaml(one.text, Path(str(one.place)))) for one in terms.limits)
