"""The policy that holds for a machine: what a pass decides by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cloudgpu.core.model.machine import Machine
from cloudgpu.core.policies.limits import NO_LIMITS, Limits
from cloudgpu.core.policies.policy import Policy
from cloudgpu.errors import InvalidRequest

NAMED = 5  # machines in a sentence


@dataclass(frozen=True, slots=True)
class Held:
    """The policy that holds for a machine, inside the limits, and why it is that one.

    `policy` is None where its name cannot be resolved: then only its lease counts, and `fault` says why. `broken` is
    the error where there is such a file and it cannot be read: nothing is to be decided by half a policy. `cuts` says
    in a sentence each what the limits changed; `place` is the policy's file, `origin` who published it in the ledger.
    `limits` are those of the ledger and of the home that launched it.
    """

    name: str
    policy: Policy | None
    why: str
    fault: str = ""
    broken: InvalidRequest | None = None
    cuts: tuple[str, ...] = ()
    place: Path | None = None
    origin: str = ""
    limits: Limits = NO_LIMITS


def check_whole(held: Mapping[str, Held]) -> None:
    """Raise InvalidRequest for a policy that is there and has a fault: no pass runs with half a policy."""
    for one in held.values():
        if one.broken is not None:
            raise one.broken


def unresolved(held: Mapping[str, Held], rows: Sequence[Machine]) -> tuple[str, ...]:
    """Return a sentence for each policy that is named and not there: of its machines the lease alone counts."""
    fault = {one.name: one.fault for one in held.values() if one.policy is None}
    names: dict[str, list[str]] = {name: [] for name in fault}
    for row in rows:
        if held[row.id].policy is None:
            names[held[row.id].name].append(row.name)
    return tuple(f"{fault[name]}: only the lease counts for {_named(those)}" for name, those in names.items())


def _named(names: Sequence[str]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


def with_why(held: Held, why: str) -> Held:
    """Return it with why it is that policy, and why its name cannot be resolved where it cannot."""
    if held.policy is None:
        why = f"{why}, which cannot be resolved ({held.fault[:1].lower()}{held.fault[1:]})"
    return replace(held, why=why)
