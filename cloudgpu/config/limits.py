"""Reads the lab's limits: limits.yaml beside the policies, of a project and of a home."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cloudgpu.config.policy_file import read
from cloudgpu.config.policy_keys import LIMITS
from cloudgpu.config.yamlfile import Table, read_yaml
from cloudgpu.core.policies.limits import Limits, Stoppers, joined
from cloudgpu.core.values.times import duration_text

FILE = "limits.yaml"


def load_limits(search: Sequence[Path]) -> Limits:
    """Return the narrowest of what every `limits.yaml` in these directories says; without one, no limits.

    Raises InvalidRequest, with file and line, for the first fault.
    """
    tables = (read_yaml(directory / FILE) for directory in search)
    return joined(limits_from(table) for table in tables if table is not None)


def limits_from(table: Table) -> Limits:
    """Return the limits that a file's table says; raise InvalidRequest with the line and field of a fault."""
    said = read(table, LIMITS)
    lease, renew_until, idle_after = said.get("lease"), said.get("renew_until"), said.get("idle_after")
    if lease and renew_until and lease > renew_until:
        says = f"is longer than renew_until ({duration_text(renew_until)})"
        raise table.fault("lease", says, next="No machine can have a lease longer than its renew-until.")
    if idle_after and renew_until and idle_after > renew_until:
        says = f"is longer than renew_until ({duration_text(renew_until)}), so it limits nothing"
        raise table.fault("idle_after", says, next="Make it shorter, or leave it out.")
    stop = Stoppers(said["stop"]) if "stop" in said else None
    return Limits(
        lease,
        renew_until,
        idle_after,
        said.get("policies"),
        said.get("payers", ()),
        stop,
        said.get("price_jump"),
        (str(table.path),),
    )
