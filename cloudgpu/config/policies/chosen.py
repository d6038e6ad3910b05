"""The policy that holds for a machine, which is what a pass decides by: by its launch, the ledger, and files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cloudgpu.config.policies.find import (
    Found,
    HomeTerms,
    is_from,
    lab_limits,
    limits_in,
    load_limits,
    load_policy,
    policy_in,
    published_policy,
    terms_now,
)
from cloudgpu.core.model.facts import Terms
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.policies.description import BY_OPTION, FACTS, Chosen, choose
from cloudgpu.core.policies.policy import NO_LIMITS, Limits, Policy, limit_policy, narrowest_limits
from cloudgpu.core.team.rights import Authorization, Published
from cloudgpu.core.values.naming import first_few
from cloudgpu.errors import InvalidRequest

NAMED = 5  # machines in a sentence
LAST = "default"  # the shipped policy that counts where nobody knows better


@dataclass(frozen=True, slots=True)
class ChosenPolicy:
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


def refuse_broken(held: Mapping[str, ChosenPolicy]) -> None:
    """Raise InvalidRequest for a policy file that cannot be read: no run goes on without it."""
    for one in held.values():
        if one.broken is not None:
            raise one.broken


def unresolved(held: Mapping[str, ChosenPolicy], machines: Sequence[Machine]) -> tuple[str, ...]:
    """Return a sentence for each policy that is named and not there: of its machines the lease alone counts."""
    fault = {one.name: one.fault for one in held.values() if one.policy is None}
    names: dict[str, list[str]] = {name: [] for name in fault}
    for machine in machines:
        if held[machine.id].policy is None:
            names[held[machine.id].name].append(machine.name)
    return tuple(f"{fault[name]}: only the lease counts for {first_few(those, NAMED)}" for name, those in names.items())


def with_why(held: ChosenPolicy, why: str) -> ChosenPolicy:
    """Return it with why it is that policy, and why its name cannot be resolved where it cannot."""
    if held.policy is None:
        why = f"{why}, which cannot be resolved ({held.fault[:1].lower()}{held.fault[1:]})"
    return replace(held, why=why)


def chosen_policies(
    machines: Iterable[Machine],
    named: str | None,
    authorization: Authorization,
    published: Mapping[str, Published],
    home: HomeTerms,
) -> dict[str, ChosenPolicy]:
    """Return the policy that holds for each machine, by its id; each file is read once.

    It is the one that its launch was under, by the terms in the ledger; where nobody knows that, the one that a launch
    would be under now. `named`: this one, for all. For a member, what their home says counts for their own machines
    alone. Raises InvalidRequest for a fault in the limits, which concern every machine.
    """
    lab = lab_limits(published)
    limits = {True: narrowest_limits((lab, load_limits(home.search))), False: lab}
    known: dict[tuple[str, bool], ChosenPolicy] = {}
    alike: dict[
        tuple[str | bool | None, ...], ChosenPolicy
    ] = {}  # thousands of machines are chosen for by the same words
    found: dict[str, ChosenPolicy] = {}
    for machine in machines:
        ours = not authorization.is_member or authorization.owns(machine)
        by_terms = named is None and bool(machine.policy) and bool(machine.terms)
        facts = () if machine.policy else _facts_of(machine).values()
        words = (ours, machine.policy, machine.policy_by, repr(machine.terms) if by_terms else None, *facts)
        if words not in alike:
            chosen = chosen_for(home, machine, named) if ours or machine.policy else _of_lab(named)
            if by_terms:
                held = _by_terms(machine, published, home, limits[False])
            else:
                if (chosen.name, ours) not in known:
                    known[chosen.name, ours] = _resolved(
                        chosen.name, limits[ours], published, home, published_only=not ours
                    )
                held = known[chosen.name, ours]
            alike[words] = with_why(held, chosen.why)
        found[machine.id] = alike[words]
    return found


def _by_terms(machine: Machine, published: Mapping[str, Published], home: HomeTerms, lab: Limits) -> ChosenPolicy:
    """Return the policy of a machine by what stands in the ledger with its launch, in whatever home this is.

    A text in the ledger that this version cannot read ends no pass: it is another home's, and only the lease counts.
    """
    name, here = machine.policy, is_from(home, machine)
    try:
        terms = terms_now(home, machine)
        found = found_by_terms(name, terms, published, home, here=here)
        limits = narrowest_limits((lab, limits_in(terms)))
    except InvalidRequest as error:
        broken = error if here and error.field != "policy" else None
        return ChosenPolicy(name, None, "", error.message.removesuffix("."), broken)
    return _within(found, limits)


def found_by_terms(
    name: str, terms: Terms, published: Mapping[str, Published], home: HomeTerms, *, here: bool
) -> Found:
    """Return the policy of a machine's launch, outside the limits: published, else by its terms, else the shipped."""
    found = published_policy(published, name) or policy_in(terms, name, here=here)
    return found or load_policy(name, tz=home.tz)


def _of_lab(named: str | None) -> Chosen:
    """Return the policy of somebody else's machine of which nobody knows it: what this home would choose is its own."""
    return Chosen(named or LAST, f"nobody knows what it was launched under, and it is somebody else's: {LAST}")


def chosen_for(home: HomeTerms, machine: Machine, named: str | None = None) -> Chosen:
    """Return the policy that is meant for a machine: `named`, its launch's, or what the home would choose now."""
    if named is not None:
        return Chosen(named, f"{BY_OPTION} {named}")
    if machine.policy:
        by = machine.policy_by
        return Chosen(machine.policy, f"it was launched under {machine.policy}" + (f" ({by})" if by else ""))
    chosen = choose(None, _facts_of(machine), home.choices, home.policy)
    return Chosen(chosen.name, f"nobody knows what it was launched under, and {chosen.why} says {chosen.name}")


def _facts_of(machine: Machine) -> dict[str, str | None]:
    """Return what a policy is chosen by, of a machine's row."""
    return {name: getattr(machine, name) for name in FACTS}


def _resolved(
    name: str, limits: Limits, published: Mapping[str, Published], home: HomeTerms, *, published_only: bool
) -> ChosenPolicy:
    try:
        found = published_policy(published, name) or load_policy(
            name, search=() if published_only else home.search, tz=home.tz
        )
    except InvalidRequest as error:
        broken = None if error.field == "policy" else error
        return ChosenPolicy(name, None, "", error.message.removesuffix("."), broken)
    return _within(found, limits)


def _within(found: Found, limits: Limits) -> ChosenPolicy:
    within = limit_policy(found.policy, limits)
    return ChosenPolicy(found.policy.name, within.policy, "", "", None, within.cuts, found.path, found.origin, limits)
