"""Chooses the policy that applies to each machine, by its launch, the ledger, and files.

A machine's terms are the texts of its policy and limits as its launch stored them in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cloudgpu.config.policies.find import (
    FoundPolicy,
    HomeTerms,
    current_terms,
    is_launched_by,
    lab_limits,
    limits_of_terms,
    load_limits,
    load_policy,
    policy_of_terms,
    published_policy,
)
from cloudgpu.core.model.facts import Terms
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.policies.description import BY_OPTION, SELECTOR_KEYS, Chosen, choose
from cloudgpu.core.policies.policy import NO_LIMITS, Limits, Policy, limit_policy, narrowest_limits
from cloudgpu.core.team.rights import Authorization, Published
from cloudgpu.core.values.naming import first_few
from cloudgpu.errors import InvalidRequest

MAX_NAMES = 5  # machines in a sentence
FALLBACK_POLICY = "default"  # the shipped policy for machines whose policy is not known


@dataclass(frozen=True, slots=True)
class ChosenPolicy:
    """The policy that applies to a machine, inside the limits; `why` says why this one.

    `policy` is None if its name cannot be resolved: then only the lease counts, and `problem` says why. `read_error` is
    set if its file exists and cannot be read: then no decision is made. `cuts` are the changes by the limits, as
    sentences; `file` is the policy's file, `origin` who published it in the ledger. `limits` are those of the ledger
    and of the home that launched the machine.
    """

    name: str
    policy: Policy | None
    why: str
    problem: str = ""
    read_error: InvalidRequest | None = None
    cuts: tuple[str, ...] = ()
    file: Path | None = None
    origin: str = ""
    limits: Limits = NO_LIMITS


def check_readable(policies: Mapping[str, ChosenPolicy]) -> None:
    """Raise InvalidRequest for a policy file that cannot be read: a run of the reaper stops then."""
    for policy in policies.values():
        if policy.read_error is not None:
            raise policy.read_error


def unresolved_policies(policies: Mapping[str, ChosenPolicy], machines: Sequence[Machine]) -> tuple[str, ...]:
    """Return a sentence for each problem of a policy that cannot be resolved: for its machines, only the lease counts.

    Policies of one name may have several problems: the terms of each machine have a text of their own.
    """
    machines_by_problem: dict[tuple[str, str], list[str]] = {}  # by the policy's name and its problem
    for machine in machines:
        chosen = policies[machine.id]
        if chosen.policy is None:
            machines_by_problem.setdefault((chosen.name, chosen.problem), []).append(machine.name)
    return tuple(
        f"{problem}: only the lease counts for {first_few(machine_names, MAX_NAMES)}"
        for (_, problem), machine_names in machines_by_problem.items()
    )


def add_reason(policy: ChosenPolicy, reason: str) -> ChosenPolicy:
    """Return the policy with the reason for its choice, and why its name cannot be resolved if it cannot."""
    if policy.policy is None:
        reason = f"{reason}, which cannot be resolved ({policy.problem[:1].lower()}{policy.problem[1:]})"
    return replace(policy, why=reason)


def chosen_policies(
    machines: Iterable[Machine],
    policy_name: str | None,
    authorization: Authorization,
    published: Mapping[str, Published],
    home: HomeTerms,
) -> dict[str, ChosenPolicy]:
    """Return the policy that applies to each machine, by its id; each file is read once.

    It is the policy of the machine's launch, by the terms in the ledger; if that is not known, the one that a launch
    would have now. `policy_name` overrides both, for all machines. A member's files apply only to their own machines.
    Raises InvalidRequest for an error in the limits, which apply to every machine.
    """
    published_limits = lab_limits(published)
    limits_by_home_files = {
        True: narrowest_limits((published_limits, load_limits(home.search))),
        False: published_limits,
    }
    resolved_policies: dict[tuple[str, bool], ChosenPolicy] = {}  # by name and `home_files_apply`
    # Thousands of machines have the same facts.
    chosen_by_facts: dict[tuple[str | bool | None, ...], ChosenPolicy] = {}
    policies: dict[str, ChosenPolicy] = {}
    for machine in machines:
        home_files_apply = not authorization.is_member or authorization.owns(machine)
        uses_stored_terms = policy_name is None and bool(machine.policy) and bool(machine.terms)
        facts = () if machine.policy else _machine_facts(machine).values()
        cache_key = (
            home_files_apply,
            machine.policy,
            machine.policy_by,
            repr(machine.terms) if uses_stored_terms else None,
            *facts,
        )
        if cache_key not in chosen_by_facts:
            chosen = (
                choose_policy(home, machine, policy_name)
                if home_files_apply or machine.policy or policy_name is not None
                else _policy_of_others()
            )
            if uses_stored_terms:
                policy = _chosen_by_terms(machine, published, home, limits_by_home_files[False])
            else:
                if (chosen.name, home_files_apply) not in resolved_policies:
                    resolved_policies[chosen.name, home_files_apply] = _resolve(
                        chosen.name,
                        limits_by_home_files[home_files_apply],
                        published,
                        home,
                        published_only=not home_files_apply,
                    )
                policy = resolved_policies[chosen.name, home_files_apply]
            chosen_by_facts[cache_key] = add_reason(policy, chosen.why)
        policies[machine.id] = chosen_by_facts[cache_key]
    return policies


def _chosen_by_terms(
    machine: Machine, published: Mapping[str, Published], home: HomeTerms, published_limits: Limits
) -> ChosenPolicy:
    """Return the policy of a machine by its terms in the ledger, the same in every home.

    If this version cannot read a text in the ledger that another home wrote, only the lease counts.
    """
    name, launched_here = machine.policy, is_launched_by(home, machine)
    try:
        terms = current_terms(home, machine)
        found = policy_by_terms(name, terms, published, home, launched_here=launched_here)
        limits = narrowest_limits((published_limits, limits_of_terms(terms)))
    except InvalidRequest as error:
        read_error = error if launched_here and error.field != "policy" else None
        return ChosenPolicy(name, None, "", error.message.removesuffix("."), read_error)
    return _within_limits(found, limits)


def policy_by_terms(
    name: str, terms: Terms, published: Mapping[str, Published], home: HomeTerms, *, launched_here: bool
) -> FoundPolicy:
    """Return the policy of a machine's launch before limits: published, else that of its terms, else shipped."""
    policy = published_policy(published, name) or policy_of_terms(terms, name, launched_here=launched_here)
    return policy or load_policy(name, tz=terms.tz or home.tz)


def _policy_of_others() -> Chosen:
    """Return the policy of another owner's machine whose policy is not known; this home's choices do not apply."""
    return Chosen(
        FALLBACK_POLICY,
        f"nobody knows what it was launched under, and it is somebody else's: {FALLBACK_POLICY}",
    )


def choose_policy(home: HomeTerms, machine: Machine, policy_name: str | None = None) -> Chosen:
    """Return the policy for a machine: `policy_name`, else its launch's, else what the home would choose now."""
    if policy_name is not None:
        return Chosen(policy_name, f"{BY_OPTION} {policy_name}")
    if machine.policy:
        chosen_by = machine.policy_by
        return Chosen(
            machine.policy, f"it was launched under {machine.policy}" + (f" ({chosen_by})" if chosen_by else "")
        )
    chosen = choose(None, _machine_facts(machine), home.choices, home.policy)
    return Chosen(chosen.name, f"nobody knows what it was launched under, and {chosen.why} says {chosen.name}")


def _machine_facts(machine: Machine) -> dict[str, str | None]:
    """Return the facts of a machine by which a policy is chosen."""
    return {name: getattr(machine, name) for name in SELECTOR_KEYS}


def _resolve(
    name: str, limits: Limits, published: Mapping[str, Published], home: HomeTerms, *, published_only: bool
) -> ChosenPolicy:
    try:
        found = published_policy(published, name) or load_policy(
            name, search=() if published_only else home.search, tz=home.tz
        )
    except InvalidRequest as error:
        read_error = None if error.field == "policy" else error
        return ChosenPolicy(name, None, "", error.message.removesuffix("."), read_error)
    return _within_limits(found, limits)


def _within_limits(found: FoundPolicy, limits: Limits) -> ChosenPolicy:
    limited = limit_policy(found.policy, limits)
    return ChosenPolicy(found.policy.name, limited.policy, "", "", None, limited.cuts, found.path, found.origin, limits)
