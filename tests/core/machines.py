"""A machine as the ledger returns it, and its parts, made of a few facts: for tests that need no lines."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from cloudgpu.core.model.facts import EMPTY, AttachedCost, HourlyPrice, Retained
from cloudgpu.core.model.machine import Machine

_TEXTS = "id name provider account region state owner project policy key request intended_at first_at".split()
_USUAL: dict[str, Any] = dict.fromkeys(Machine._fields) | dict.fromkeys(_TEXTS, "") | Machine._field_defaults
_USUAL |= {"market": "on_demand", "launch_status": "made", "retained": (), "open_usage": (), "seq": 0}
_USUAL |= {"usage_totals": EMPTY, "charge_notes": EMPTY, "attempt_number": 0}
_USUAL |= dict.fromkeys("is_named_resource billed launch_failed parked discard unpriced".split(), False)


def machine(**facts: Any) -> Machine:
    """Return a machine with these facts; of all others nothing is known."""
    fixed = {name: MappingProxyType(one) if isinstance(one, dict) else one for name, one in facts.items()}
    return Machine(**_USUAL | fixed)


def hourly(nanos: int) -> HourlyPrice:
    """Return a price of so many nano-dollars an hour."""
    return HourlyPrice(nanos, "a list", "2026-11-20T00:00:00.000000Z", "listed")


def attached(what: str = "disk", **facts: Any) -> AttachedCost:
    """Return what is paid beside a machine: while it is stopped, too, unless the facts say otherwise."""
    usual = {"nanos_per_month": None, "at_most": False, "running": True, "kept": True, "named": False}
    return AttachedCost(what, **usual | facts)


def retained(id: str = "disk-1", kind: str = "disk", **facts: Any) -> Retained:  # noqa: A002
    """Return what stays of a machine: something of 64 GB whose price nobody knows, unless the facts say otherwise."""
    usual: dict[str, Any] = {"region": "north", "zone": "", "size_gb": 64, "stored_as": "gp3"}
    return Retained(id, kind, **usual | {"made_at": None, "ready": True, "nanos_per_month": None} | facts)
