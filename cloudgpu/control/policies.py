"""Joins a launch or a start with its policy: which one is meant, and how long the machine may live by it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudgpu.config.data import data_dir
from cloudgpu.config.policies import load_policy
from cloudgpu.core.policy import Origin, Policy, Said, Spans, Unpausable, spans
from cloudgpu.core.times import duration_text
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from datetime import timedelta

    from cloudgpu.config.paths import Home
    from cloudgpu.config.settings import Settings
    from cloudgpu.control.session import Session
    from cloudgpu.core.facts import Market, Setup

_NOTHING = Said()


def policy_paths(home: Home) -> tuple[Path, ...]:
    """Return where policies are looked for before the shipped ones: the project's, then the user's own."""
    return (Path.cwd() / ".cloudgpu" / "policies", home.policies)


def find_policy(session: Session, name: str | None) -> Policy:
    """Return the policy called `name` (None: the usual one); say where an own one lies.

    Raises InvalidRequest as `load_policy` does.
    """
    found = load_policy(name or session.settings.policy, search=policy_paths(session.home))
    if found.path.parent != data_dir("policies"):  # a project's is not what the user may think of by this name
        session.tell(f"the policy {found.policy.name} is from {found.path}")
    return found.policy


def spans_of(policy: Policy, settings: Settings, typed: Said = _NOTHING) -> Spans:
    """Return how long a machine of this policy may live, and who said so.

    `lease` and `renew_until` of config.toml stand beside its `policy` and change that one only: another policy, named
    for one machine, is nearer than the file and counts as it is. Raises InvalidRequest for what contradicts.
    """
    usual = policy.name == settings.policy
    found = spans(policy, typed, Said(settings.lease, settings.renew_until) if usual else _NOTHING)
    if found.contradict:
        raise _contradiction(policy, found)
    return found


def spans_of_start(session: Session, row: dict[str, Any], lease: timedelta | None) -> Spans:
    """Return how long a machine may live from its start on, by the policy of its launch.

    Raises InvalidRequest where that policy cannot be read any more, with the way out.
    """
    try:
        return spans_of(find_policy(session, row["policy"]), session.settings, Said(lease))
    except InvalidRequest as fault:
        fault.next = f"{fault.next or ''} Or say how long: cloudgpu start {row['name']} --lease 8h".strip()
        raise


def check_renewable(lease: timedelta, renew_until: timedelta) -> None:
    """Raise InvalidRequest for a `--renew-until` that comes before the end of the lease."""
    if renew_until < lease:
        raise InvalidRequest(
            f"--renew-until is {duration_text(renew_until)}, shorter than the lease, {duration_text(lease)}.",
            field="--renew-until",
            value=duration_text(renew_until),
            next="Make --renew-until at least as long as --lease.",
        )


def keeps_disk(policy: Policy, setup: Setup, market: Market) -> bool:
    """Say whether the system disk of such a machine may stay when it ends: always, where it can be stopped."""
    from cloudgpu.core.facts import Market

    stoppable = market is not Market.SPOT or setup.persistent
    return stoppable or policy.unpausable is not Unpausable.TERMINATE


def _contradiction(policy: Policy, found: Spans) -> InvalidRequest:
    """Return the error for a `renew_until` before the end of the lease; it names the nearer of the two."""
    at_renew = found.renew_from is Origin.TYPED or found.lease_from is Origin.POLICY
    origin = found.renew_from if at_renew else found.lease_from
    name = "renew_until" if at_renew else "lease"
    field = "--renew-until" if origin is Origin.TYPED else f"config.toml: {name}"
    lease, renew = duration_text(found.lease), duration_text(found.renew_until)
    by_policy = f" of the policy {policy.name}"
    if at_renew:
        says = f"is {renew}, shorter than the lease{by_policy * (found.lease_from is Origin.POLICY)}, {lease}"
    else:
        says = f"is {lease}, longer than renew_until{by_policy}, {renew}"
    return InvalidRequest(
        f"{field} {says}: a machine could not live to the end of its lease.",
        field=field,
        value=renew if at_renew else lease,
        next="Make --renew-until at least as long as --lease."
        if origin is Origin.TYPED
        else "Make renew_until at least as long as lease, in config.toml or in the policy.",
    )
