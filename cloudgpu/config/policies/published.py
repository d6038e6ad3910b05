"""Reads what a lab's payers have published in the ledger: policies, and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from cloudgpu.config.files.yaml import parse_yaml
from cloudgpu.config.policies.file import limits_from, policy_from
from cloudgpu.config.policies.find import LIMITS, Found
from cloudgpu.core.policies.limits import NO_LIMITS, Limits
from cloudgpu.core.team.rights import Published

_PLACE = Path("ledger")  # where errors say that a published text stands


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
