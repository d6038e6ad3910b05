"""Resolves the policy of a machine: which one holds, inside which limits, and how long the machine may live by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cloudgpu.config.files.user_files import data_dir
from cloudgpu.config.policies.chosen import ChosenPolicy, choose_policy, chosen_policies, policy_by_terms
from cloudgpu.config.policies.find import (
    LIMITS_NAME,
    FoundPolicy,
    current_terms,
    is_launched_by,
    lab_limits,
    load_limits,
    load_policy,
    policy_names,
    policy_paths,
    published_policy,
    terms_for_launch,
)
from cloudgpu.config.settings import Settings
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import authorization_of
from cloudgpu.core.launch.limit_checks import check_policy_allowed, check_typed_limits
from cloudgpu.core.model.facts import Terms
from cloudgpu.core.model.machine import Machine, command_name
from cloudgpu.core.policies.description import BY_OPTION, DEFAULT, Chosen, choose
from cloudgpu.core.policies.policy import (
    Lifetime,
    LifetimeOverride,
    Limits,
    Origin,
    Policy,
    cut_lifetime,
    lifetime,
    limit_policy,
    narrowest_limits,
)
from cloudgpu.core.values.times import duration_text
from cloudgpu.errors import InvalidRequest

_NOT_GIVEN = LifetimeOverride()  # neither a lease nor a renew-until


@dataclass(frozen=True, slots=True)
class ResolvedPolicy:
    """The policy of a launch inside the limits, how long it lets the machine live, and who chose the policy.

    `remarks` are sentences for the plan: what the limits took away. `terms` are the texts of the policy and limits,
    which the ledger records with the launch.
    """

    policy: Policy
    lifetime: Lifetime
    chosen_by: str
    remarks: tuple[str, ...]
    terms: Terms


def find_policy(session: Session, name: str | None) -> Policy:
    """Return the policy called `name` (None: the default of the settings); report where it is from, if not shipped.

    Raises InvalidRequest as `load_policy` does.
    """
    return _find_and_report(session, name or session.settings.policy).policy


def policy_named(session: Session, name: str) -> FoundPolicy:
    """Return the policy called `name`: the one that is published in the ledger, else as `load_policy` finds it.

    Raises as `load_policy`.
    """
    return published_policy(session.published_policies(), name) or load_policy(
        name, search=policy_paths(session.home), tz=session.settings.tz
    )


def all_policy_names(session: Session) -> tuple[str, ...]:
    """Return the names of all policies there are, published ones too, sorted."""
    published = set(session.published_policies()) - {LIMITS_NAME}
    return tuple(sorted(published | set(policy_names(search=policy_paths(session.home)))))


def replaced_file(session: Session, name: str) -> Path | None:
    """Return the file of this home, or of the project, that a published policy of this name replaces."""
    files = (path / f"{name}.yaml" for path in policy_paths(session.home))
    return next((file for file in files if file.is_file()), None)


def _find_and_report(session: Session, name: str) -> FoundPolicy:
    found_policy = policy_named(session, name)
    if found_policy.origin:
        replaced = replaced_file(session, name)
        session.report(
            f"the policy {name} is from {found_policy.origin}" + (f"; {replaced} does not count" if replaced else "")
        )
    elif found_policy.path.parent != data_dir("policies"):  # one of a project may surprise the user
        session.report(f"the policy {found_policy.policy.name} is from {found_policy.path}")
    return found_policy


def limits_of(session: Session) -> Limits:
    """Return the narrowest of the limits in the ledger, of the project and of the home.

    So no file of a home loosens what is published. Raises InvalidRequest for a fault, LedgerUnavailable.
    """
    return narrowest_limits((lab_limits(session.published_policies()), load_limits(policy_paths(session.home))))


def resolve_policy(
    session: Session,
    policy_option: str | None,
    lifetime_options: LifetimeOverride,
    launch_facts: Mapping[str, str | None],
) -> ResolvedPolicy:
    """Return the policy and lifetime of a launch with these facts; `policy_option` is the policy that was named for it.

    Raises InvalidRequest for a policy that cannot be found or is not allowed, for what is typed beyond the limits,
    and for a lease that contradicts renew_until.
    """
    chosen = choose(policy_option, launch_facts, session.settings.policies, session.settings.policy)
    limits = limits_of(session)
    check_policy_allowed(chosen, limits)
    found_policy = _chosen_policy(session, chosen)
    requested = lifetime_of(found_policy.policy, session.settings, lifetime_options)
    limited_lifetime, lifetime_cuts = cut_lifetime(requested, limits)
    check_typed_limits(limited_lifetime, limits)
    limited = limit_policy(found_policy.policy, limits)
    terms = terms_for_launch(
        session.home_terms, found_policy, session.published_policies() if found_policy.origin else {}
    )
    return ResolvedPolicy(limited.policy, limited_lifetime, chosen.why, (*lifetime_cuts, *limited.cuts), terms)


def _chosen_policy(session: Session, chosen: Chosen) -> FoundPolicy:
    try:
        return _find_and_report(session, chosen.name)
    except InvalidRequest as error:
        if chosen.why not in (BY_OPTION, DEFAULT) and error.field == "policy":
            error.field = f"config.toml: {chosen.why.removesuffix(' of config.toml')}"
        raise


def policy_of(session: Session, machine: Machine, policy_name: str | None = None) -> ChosenPolicy:
    """Return the policy that holds for a machine. Raises InvalidRequest for a fault in the limits alone."""
    return policies_of(session, [machine], policy_name)[machine.id]


def policies_of(
    session: Session, machines: Iterable[Machine], policy_name: str | None = None
) -> dict[str, ChosenPolicy]:
    """Return the policy that holds for each machine, by its id; each file is read once.

    It is the one that its launch was under, by the terms in the ledger; where nobody knows that, the one that a launch
    would be under now. `policy_name`: this one, for all. For a member, what their home says counts for their own
    machines alone. Raises InvalidRequest for a fault in the limits, which concern every machine.
    """
    return chosen_policies(
        machines, policy_name, authorization_of(session), session.published_policies(), session.home_terms
    )


def lifetime_of(policy: Policy, settings: Settings, options: LifetimeOverride = _NOT_GIVEN) -> Lifetime:
    """Return how long a machine of this policy may live, and who said so. The limits are not in it.

    `lease` and `renew_until` of config.toml change only the default `policy` of that file: another policy, named for
    one machine, counts as it is. Raises InvalidRequest for a lease that contradicts renew_until.
    """
    is_default = policy.name == settings.policy
    resolved = lifetime(
        policy, options, LifetimeOverride(settings.lease, settings.renew_until) if is_default else _NOT_GIVEN
    )
    if resolved.is_contradictory:
        raise _contradiction_error(policy, resolved)
    return resolved


def lifetime_of_start(session: Session, machine: Machine, lease: timedelta | None) -> Lifetime:
    """Return how long a machine may live from its start on, by the policy of its launch.

    Raises InvalidRequest where that policy cannot be read any more, with the remedy.
    """
    try:
        name = choose_policy(session.home_terms, machine).name
        return lifetime_of(_policy_for_start(session, machine, name), session.settings, LifetimeOverride(lease))
    except InvalidRequest as error:
        error.next = f"{error.next or ''} Or say how long: cloudgpu start {command_name(machine)} --lease 8h".strip()
        raise


def _policy_for_start(session: Session, machine: Machine, name: str) -> Policy:
    """Return the policy by the texts of the machine's launch; without those, the one of this name here."""
    if not (machine.policy and machine.terms):
        return find_policy(session, name)
    home = session.home_terms
    terms = current_terms(home, machine)
    return policy_by_terms(
        name, terms, session.published_policies(), home, launched_here=is_launched_by(home, machine)
    ).policy


def check_renewable(lease: timedelta, renew_until: timedelta) -> None:
    """Raise InvalidRequest for a `--renew-until` that comes before the end of the lease."""
    if renew_until < lease:
        raise InvalidRequest(
            f"--renew-until is {duration_text(renew_until)}, shorter than the lease, {duration_text(lease)}.",
            field="--renew-until",
            value=duration_text(renew_until),
            next="Make --renew-until at least as long as --lease.",
        )


def _contradiction_error(policy: Policy, lifetime: Lifetime) -> InvalidRequest:
    """Return the error for a `renew_until` before the end of the lease.

    It names the one of more specific origin: typed, then config.toml, then the policy.
    """
    names_renew_until = lifetime.renew_origin is Origin.TYPED or lifetime.lease_origin is Origin.POLICY
    origin = lifetime.renew_origin if names_renew_until else lifetime.lease_origin
    name = "renew_until" if names_renew_until else "lease"
    field = "--renew-until" if origin is Origin.TYPED else f"config.toml: {name}"
    lease, renew_until = duration_text(lifetime.lease), duration_text(lifetime.renew_until)
    by_policy = f" of the policy {policy.name}"
    if names_renew_until:
        problem = (
            f"is {renew_until}, shorter than the lease{by_policy * (lifetime.lease_origin is Origin.POLICY)}, {lease}"
        )
    else:
        problem = f"is {lease}, longer than renew_until{by_policy}, {renew_until}"
    return InvalidRequest(
        f"{field} {problem}: a machine could not live to the end of its lease.",
        field=field,
        value=renew_until if names_renew_until else lease,
        next="Make --renew-until at least as long as --lease."
        if origin is Origin.TYPED
        else "Make renew_until at least as long as lease, in config.toml or in the policy.",
    )
