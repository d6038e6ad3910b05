"""Answers `policy`: which there are, what each says, which one holds for a machine and why, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.config.files.user_files import data_dir
from cloudgpu.config.files.yaml import read_yaml
from cloudgpu.config.policies.find import FILE, limits_from, policy_from, policy_paths
from cloudgpu.control.policies.resolve import limits_of, policies_known, policy_named, policy_of, unused_file
from cloudgpu.core.policies.description import rules_in_force, rules_of
from cloudgpu.core.policies.policy import Limits, limit_policy
from cloudgpu.core.values.naming import did_you_mean, near
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.policies import limits_value, policy_value, rule_values, summary_value, unreadable_value

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.automation.policies import (
        PoliciesDocument,
        PolicyCheckDocument,
        PolicyDocument,
        PolicyOfMachineDocument,
        PolicySummary,
        Publication,
    )

SHIPPED = "shipped"


def list_policies(session: Session) -> PoliciesDocument:
    """Return every policy there is, and the limits; one that cannot be read has its fault instead of what it says."""
    limits = limits_of(session)
    return {
        "policies": [_line(session, name, limits) for name in policies_known(session)],
        "limits": limits_value(limits),
    }


def show_policy(session: Session, name: str) -> PolicyDocument:
    """Return what a policy says, inside the limits; raise InvalidRequest for none such, or a fault in its file."""
    found = policy_named(session, name)
    limits = limits_of(session)
    within, now = limit_policy(found.policy, limits), session.clock()
    return policy_value(
        within.policy,
        rules_of(within.policy, now),
        source=_source(found.path, found.origin),
        published=_published(session, name),
        chosen_by=_chosen_by(session, name),
        allowed=limits.allows(name),
        limited_by=within.cuts,
    )


def explain_policy(session: Session, name: str | None) -> PolicyOfMachineDocument:
    """Return which policy holds for a machine, why that one, and what each of its rules means for it now.

    Raises InstanceNotFound for no such machine. A policy that cannot be resolved is no error: `error` says it.
    """
    machine, now = session.find(name, ended=True), session.clock()
    held = policy_of(session, machine)
    return {
        "machine": machine.name,
        "id": machine.id,
        "state": machine.state,
        "policy": held.name,
        "source": None if held.place is None else _source(held.place, held.origin),
        "why": held.why,
        "error": held.fault or None,
        "limited_by": list(held.cuts),
        "limits": limits_value(held.limits),
        "rules": rule_values(rules_in_force(held.policy, machine, now)),
    }


def check_policies(session: Session, files: Sequence[str]) -> PolicyCheckDocument:
    """Return what was read: these files, or without any all that are not shipped, and the names that settings use.

    Raises InvalidRequest for a fault, the first of several; the others are told.
    """
    paths = [Path(file) for file in files] if files else list(_own_files(session))
    faults = [fault for fault in map(_fault_of, paths) if fault is not None]
    faults += [] if files or faults else list(_unknown_names(session))
    for fault in faults[1:]:
        session.report(f"{fault.message} {fault.next or ''}".strip())
    if faults:
        raise faults[0]
    return {"checked": [str(path) for path in paths]}


def _line(session: Session, name: str, limits: Limits) -> PolicySummary:
    allowed, chosen_by, by = limits.allows(name), _chosen_by(session, name), _published(session, name)
    try:
        found = policy_named(session, name)
    except InvalidRequest as error:
        return unreadable_value(name, error.message, published=by, chosen_by=chosen_by, allowed=allowed)
    policy, source = limit_policy(found.policy, limits).policy, _source(found.path, found.origin)
    return summary_value(policy, source=source, published=by, chosen_by=chosen_by, allowed=allowed)


def _chosen_by(session: Session, name: str) -> list[str]:
    """Return which lines of config.toml choose a policy."""
    return [key for key, chosen in _uses(session) if chosen == name]


def _uses(session: Session) -> Iterator[tuple[str, str]]:
    """Yield each key of config.toml that names a policy, with the name."""
    yield "policy", session.settings.policy
    choices = session.settings.policies
    if choices is not None:
        yield from ((f"policies.projects.{project}", name) for project, name in choices.projects.items())
        yield from ((f'policies.tags."{tag}"', name) for tag, name in choices.tags.items())


def _published(session: Session, name: str) -> Publication | None:
    """Return who has published this for the lab, and when, and which file of this home does not count for that."""
    one = session.published().get(name)
    if one is None:
        return None
    unused = unused_file(session, name)
    return {"by": one.by, "at": one.at, "unused": None if unused is None else str(unused)}


def _source(path: Path, origin: str = "") -> str:
    if origin:
        return origin
    return SHIPPED if path.parent == data_dir("policies") else str(path)


def _own_files(session: Session) -> Iterator[Path]:
    for directory in policy_paths(session.home):
        yield from sorted(directory.glob("*.yaml"))


def _fault_of(path: Path) -> InvalidRequest | None:
    try:
        table = read_yaml(path)
        if table is None:
            way_out = f"Name a file; of a policy by its name: cloudgpu policy show {path.stem}"
            return InvalidRequest(f"There is no file {path}.", field="FILE", value=str(path), next=way_out)
        if path.name == FILE:
            limits_from(table)
        else:
            policy_from(table, path.stem)
    except InvalidRequest as error:
        return error
    return None


def _unknown_names(session: Session) -> Iterator[InvalidRequest]:
    """Yield a fault for each policy that is named and that nobody has, or that the limits do not allow there."""
    names, limits = policies_known(session), limits_of(session)
    allowed = [name for name in names if limits.allows(name)]
    uses = [(f"config.toml: {key}", name) for key, name in _uses(session)]
    for field, name in [*uses, *((f"{FILE}: policies", name) for name in limits.policies or ())]:
        if name not in names:
            yield _named(field, name, "is not a policy" + did_you_mean(near(name, names), "."), names)
        elif name not in allowed:
            yield _named(field, name, "is not allowed by the limits.", allowed)


def _named(field: str, name: str, says: str, names: Sequence[str]) -> InvalidRequest:
    message = f"{field}: {name!r} {says}"
    return InvalidRequest(message, field=field, value=name, next=f"Use one of: {', '.join(names)}.")
