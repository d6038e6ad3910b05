"""Answers `policy`: which policies there are, what each says, which one holds for a machine, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.config.files.user_files import data_dir
from cloudgpu.config.files.yaml import read_named_yaml, read_yaml
from cloudgpu.config.policies.find import LIMITS_FILE, policy_paths, rules_from
from cloudgpu.control.policies.resolve import all_policy_names, limits_of, policy_named, policy_of, replaced_file
from cloudgpu.core.policies.description import rules_in_force, rules_of
from cloudgpu.core.policies.policy import Limits, limit_policy
from cloudgpu.core.values.naming import closest_match, did_you_mean
from cloudgpu.errors import InvalidRequest
from cloudgpu.views.policies import (
    limits_document,
    policy_document,
    rules_document,
    summary_document,
    unreadable_document,
)

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
    """Return every policy there is, and the limits; one that cannot be read has its error instead of its rules."""
    limits = limits_of(session)
    return {
        "policies": [_summary(session, name, limits) for name in all_policy_names(session)],
        "limits": limits_document(limits),
    }


def show_policy(session: Session, name: str) -> PolicyDocument:
    """Return what a policy says, inside the limits; raise InvalidRequest where it is missing or its file is invalid."""
    found, limits = policy_named(session, name), limits_of(session)
    limited = limit_policy(found.policy, limits)
    return policy_document(
        limited.policy,
        rules_of(limited.policy, session.clock()),
        source=_source(found.path, found.origin),
        published=_published(session, name),
        chosen_by=_chosen_by(session, name),
        allowed=limits.allows(name),
        limited_by=limited.cuts,
    )


def explain_policy(session: Session, name: str | None) -> PolicyOfMachineDocument:
    """Return which policy holds for a machine, why that one, and what each of its rules means for it now.

    Raises InstanceNotFound for no such machine. A policy that cannot be resolved is no error: `error` says it.
    """
    machine, now = session.find(name, ended=True), session.clock()
    chosen = policy_of(session, machine)
    return {
        "machine": machine.name,
        "id": machine.id,
        "state": machine.state,
        "policy": chosen.name,
        "source": None if chosen.file is None else _source(chosen.file, chosen.origin),
        "why": chosen.why,
        "error": chosen.problem or None,
        "limited_by": list(chosen.cuts),
        "limits": limits_document(chosen.limits),
        "rules": rules_document(rules_in_force(chosen.policy, machine, now)),
    }


def check_policies(session: Session, files: Sequence[str]) -> PolicyCheckDocument:
    """Check these files; without any, all policy files that are not shipped, and the policy names in config.toml.

    Returns the paths that were read. Raises InvalidRequest for the first error; the others are reported.
    """
    directories = policy_paths(session.home)
    paths = [Path(file) for file in files] or [
        file
        for directory in directories  # a `.yml` is an error, as nothing else reads it
        for file in sorted({*directory.glob("*.yaml"), *(one.with_suffix(".yaml") for one in directory.glob("*.yml"))})
    ]
    errors = [error for error in map(_file_error, paths) if error is not None]
    errors += [] if files or errors else list(_unknown_names(session))
    for error in errors[1:]:
        session.report(f"{error.message} {error.next or ''}".strip())
    if errors:
        raise errors[0]
    return {"checked": [str(path) for path in paths]}


def _summary(session: Session, name: str, limits: Limits) -> PolicySummary:
    allowed, chosen_by, published = limits.allows(name), _chosen_by(session, name), _published(session, name)
    try:
        found_policy = policy_named(session, name)
    except InvalidRequest as error:
        return unreadable_document(name, error.message, published=published, chosen_by=chosen_by, allowed=allowed)
    policy, source = limit_policy(found_policy.policy, limits).policy, _source(found_policy.path, found_policy.origin)
    return summary_document(policy, source=source, published=published, chosen_by=chosen_by, allowed=allowed)


def _chosen_by(session: Session, name: str) -> list[str]:
    """Return which keys of config.toml choose a policy."""
    return [key for key, chosen in _policy_settings(session) if chosen == name]


def _policy_settings(session: Session) -> Iterator[tuple[str, str]]:
    """Yield each key of config.toml that names a policy, with the name."""
    yield "policy", session.settings.policy
    choices = session.settings.policies
    if choices is not None:
        yield from ((f"policies.projects.{project}", name) for project, name in choices.projects.items())
        yield from ((f'policies.tags."{tag}"', name) for tag, name in choices.tags.items())


def _published(session: Session, name: str) -> Publication | None:
    """Return who published a policy for the lab, when, and which file of this home it replaces."""
    publication = session.published_policies().get(name)
    if publication is None:
        return None
    replaced = replaced_file(session, name)
    return {"by": publication.by, "at": publication.at, "unused": None if replaced is None else str(replaced)}


def _source(path: Path, origin: str = "") -> str:
    """Return where a policy is from: the ledger (`origin`), the package, or a file's path."""
    return origin or (SHIPPED if path.parent == data_dir("policies") else str(path))


def _file_error(path: Path) -> InvalidRequest | None:
    try:
        table = read_named_yaml(path.parent, path.stem) if path.suffix == ".yaml" else read_yaml(path)
        if table is None:
            remedy = f"Name a file; of a policy by its name: cloudgpu policy show {path.stem}"
            return InvalidRequest(f"There is no file {path}.", field="FILE", value=str(path), next=remedy)
        rules_from(table, path.stem)
    except InvalidRequest as error:
        return error
    return None


def _unknown_names(session: Session) -> Iterator[InvalidRequest]:
    """Yield an error for each policy name in settings and limits that does not exist, or that the limits forbid."""
    names, limits = all_policy_names(session), limits_of(session)
    allowed = [name for name in names if limits.allows(name)]
    settings = [(f"config.toml: {key}", name) for key, name in _policy_settings(session)]
    for field, name in [*settings, *((f"{LIMITS_FILE}: policies", name) for name in limits.policies or ())]:
        if name not in names:
            yield _bad_name_error(field, name, "is not a policy" + did_you_mean(closest_match(name, names), "."), names)
        elif name not in allowed:
            yield _bad_name_error(field, name, "is not allowed by the limits.", allowed)


def _bad_name_error(field: str, name: str, problem: str, names: Sequence[str]) -> InvalidRequest:
    message = f"{field}: {name!r} {problem}"
    return InvalidRequest(message, field=field, value=name, next=f"Use one of: {', '.join(names)}.")
