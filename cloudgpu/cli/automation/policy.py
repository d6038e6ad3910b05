"""`cloudgpu policy`: which policies there are, what they say, and which one holds for a machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cloudgpu.cli.common import Format, Output, emit, open_session
from cloudgpu.cli.render import labelled_lines, paragraph, table_rows, when, wrapped
from cloudgpu.core.values.times import duration_text
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.automation.policies import (
        PoliciesDocument,
        PolicyDocument,
        PolicyLimits,
        PolicyOfMachineDocument,
        PolicySummary,
    )


Action = Literal["ls", "show", "explain", "check", "schema", "publish", "withdraw"]


def command(
    action: Annotated[
        Action,
        typer.Argument(
            metavar="ls|show|explain|check|schema|publish|withdraw",
            help="ls: all there are; show one; explain: which holds for a machine; check files; schema: for editors; "
            "publish one for the whole lab; withdraw it.",
        ),
    ],
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME...]",
            help="show, withdraw: a policy, or limits; explain: a machine; check: files; schema: policy or limits; "
            "publish: a policy of yours, limits, or a file.",
        ),
    ] = None,
    *,
    output: Output = Format.TEXT,
) -> None:
    """Show what ends machines: which policies there are, which one applies to a machine, and why.

    `explain` shows each rule, the strongest first, and when it would act. `check` reads the named files, or all of
    yours: exit code 2 with the line and field of a mistake. `publish` writes a policy or limits.yaml into the ledger,
    for every home; it takes precedence over a file of that name. In a team only payers publish and withdraw.

    To test a policy on the past, use cloudgpu policy backtest.
    """
    names = names or []
    if action == "schema":
        _schema(names)
        return
    session = open_session()
    if action == "ls":
        _refuse_name(action, names)
        _list(session, output)
    elif action == "show":
        _show(session, _single_name(action, names, session.settings.policy), output)
    elif action == "explain":
        _explain(session, _single_name(action, names, None), output)
    elif action == "publish":
        _publish(session, _required_name(action, names), output)
    elif action == "withdraw":
        _withdraw(session, _required_name(action, names), output)
    else:
        _check(session, names, output)


def _list(session: Session, output: Format) -> None:
    from cloudgpu.control.policies.commands import list_policies

    document = list_policies(session)
    emit(output, document, list_text(document))


def _show(session: Session, name: str | None, output: Format) -> None:
    from cloudgpu.control.policies.commands import show_policy

    document = show_policy(session, name or session.settings.policy)
    emit(output, document, show_text(document, session.clock()))


def _explain(session: Session, name: str | None, output: Format) -> None:
    from cloudgpu.control.policies.commands import explain_policy

    document = explain_policy(session, name)
    emit(output, document, explain_text(document, session.clock()))


def _check(session: Session, files: list[str], output: Format) -> None:
    from cloudgpu.control.policies.commands import check_policies

    document = check_policies(session, files)
    none_text = "There is no policy of your own, and those that config.toml names are there."
    emit(output, document, f"Without a fault: {', '.join(document['checked'])}" if document["checked"] else none_text)


def _publish(session: Session, name: str, output: Format) -> None:
    from cloudgpu.config.policies.find import policy_paths
    from cloudgpu.control.team.published import publish

    document = publish(session, name, policy_paths(session.home))
    message = f"{document['published']} is published as it was already"
    if document["changed"]:
        message = (
            f"{document['published']} is published {'anew ' * document['replaced']}for everybody who uses this ledger"
        )
    emit(output, document, f"{message} (from {document['file']}).")


def _withdraw(session: Session, name: str, output: Format) -> None:
    from cloudgpu.control.team.published import withdraw

    document = withdraw(session, name)
    note = "" if name == "limits" else " Running machines keep the text of their launch."
    message = f"{name} is no longer published: from the next launch on, each home uses its own.{note}"
    emit(output, document, message)


def _required_name(action: Action, names: list[str]) -> str:
    name = _single_name(action, names, None)
    if name is None:
        raise InvalidRequest(
            f"policy {action} needs a name.",
            field="NAME",
            value=None,
            next=f"For example: cloudgpu policy {action} limits",
        )
    return name


def _schema(names: list[str]) -> None:
    from cloudgpu.config.policies.schema import limits_schema, policy_schema

    schemas = {"policy": policy_schema, "limits": limits_schema}
    schema_name = names[0] if names else "policy"
    if schema_name not in schemas or len(names) > 1:
        raise InvalidRequest(
            "There is a schema of policies, and one of limits.",
            field="NAME",
            value=schema_name,
            next="Run: cloudgpu policy schema, or: cloudgpu policy schema limits",
        )
    emit(Format.JSON, schemas[schema_name](), "")


def _refuse_name(action: Action, names: list[str]) -> None:
    if names:
        raise InvalidRequest(
            f"policy {action} takes no name.",
            field="NAME",
            value=names[0],
            next=f"For one policy: cloudgpu policy show {names[0]}",
        )


def _single_name(action: Action, names: list[str], default: str | None) -> str | None:
    """Return the one name; None where none was given, or the default."""
    if len(names) > 1:
        raise InvalidRequest(
            f"policy {action} takes one name.",
            field="NAME",
            value=names[1],
            next=f"Run it once for each: cloudgpu policy {action} {names[0]}",
        )
    return names[0] if names else default


def list_text(document: PoliciesDocument) -> str:
    """Return a line for each policy, and below it what it is for, who chooses it and what is wrong with it."""
    rows = [
        [
            policy["name"],
            _duration(policy["lease_s"]),
            _duration(policy["renew_until_s"]),
            _idle_text(policy),
            _off_times_text(policy),
        ]
        for policy in document["policies"]
    ]
    heading, *lines = table_rows(rows, ["POLICY", "LEASE", "RENEW", "IDLE", "OFF"])
    policy_texts = [f"{line}\n{_details(summary)}" for line, summary in zip(lines, document["policies"], strict=True)]
    return "\n".join(
        [*_default_policy_lines(document["policies"]), heading, *policy_texts, *_limits_lines(document["limits"])]
    )


def _default_policy_lines(summaries: Iterable[PolicySummary]) -> Iterator[str]:
    """Yield which policy a launch gets that names none, and when it ends a machine."""
    for summary in summaries:
        if "policy" in summary["chosen_by"] and not summary["error"]:
            idle_text = (
                f", ends after {_idle_text(summary)} idle" if summary["idle_do"] not in (None, "off", "warn") else ""
            )
            lease_text = (
                f"lease {_duration(summary['lease_s'])}, renewed for up to {_duration(summary['renew_until_s'])}"
            )
            yield paragraph(f"The default policy is {summary['name']}: {lease_text}{idle_text}.") + "\n"


def show_text(document: PolicyDocument, now: datetime) -> str:
    """Return what one policy says, rule by rule."""
    chosen_text = "; ".join(_chosen_by_texts(document["chosen_by"]))
    head_rows = [
        ("policy", document["name"]),
        ("for", document["description"]),
        ("from", document["source"]),
        ("", chosen_text),
    ]
    refusal_text = None if document["allowed"] else "the limits allow no launch under it"
    notes = [
        ("note", refusal_text),
        ("note", _unused_file_text(document)),
        *(("note", limit) for limit in document["limited_by"]),
    ]
    return labelled_lines([*head_rows, *notes, *_rule_lines(document, now)])


def explain_text(document: PolicyOfMachineDocument, now: datetime) -> str:
    """Return which policy holds for a machine, why, and each rule as it stands for it now."""
    policy_text = (
        f"{document['policy']} cannot be resolved: only the lease counts" if document["error"] else document["policy"]
    )
    head_rows = [
        ("machine", f"{document['machine']}, {document['state']}"),
        ("policy", policy_text),
        ("why", document["why"]),
    ]
    source = [("from", document["source"])]
    limits = document["limits"] and f"of {' and '.join(document['limits']['sources'])}"
    notes = [("limits", limits), *(("note", limit) for limit in document["limited_by"])]
    return labelled_lines([*head_rows, *source, *notes, *_rule_lines(document, now)])


def _rule_lines(document: PolicyDocument | PolicyOfMachineDocument, now: datetime) -> list[tuple[str, str | None]]:
    return [
        (rule["rule"], f"{when(rule['at'], now)}: {rule['text']}" if rule["at"] else rule["text"])
        for rule in document["rules"]
    ]


def _unused_file_text(document: PolicyDocument | PolicySummary) -> str | None:
    """Return that a file of this home does not count, where the lab has published a policy of that name."""
    published = document["published"]
    return published and published["unused"] and f"{published['unused']} does not count: the published one does"


def _details(summary: PolicySummary) -> str:
    parts = [summary["error"] or summary["description"]]
    parts += list(_chosen_by_texts(summary["chosen_by"]))
    parts += [] if summary["source"] in (None, "shipped") else [f"from {summary['source']}"]
    unused_file = _unused_file_text(summary)
    parts += [unused_file] if unused_file else []
    parts += [] if summary["allowed"] else ["the limits allow no launch under it"]
    return wrapped("; ".join(parts), "  ", "  ")


def _chosen_by_texts(config_keys: Iterable[str]) -> Iterator[str]:
    """Yield who in config.toml names it: `policy` makes it the default."""
    yield from ("the default" if key == "policy" else f"chosen by {key}" for key in config_keys)


def _duration(seconds: float | None) -> str:
    return "?" if seconds is None else duration_text(seconds)


def _idle_text(summary: PolicySummary) -> str:
    if summary["idle_do"] in (None, "off"):
        return "?" if summary["error"] else "never"
    return f"{_duration(summary['idle_after_s'])}{', warns' if summary['idle_do'] == 'warn' else ''}"


def _off_times_text(summary: PolicySummary) -> str:
    return ", ".join(f"{schedule['off']} {schedule['tz']}" for schedule in summary["schedules"] or ()) or "-"


def _limits_lines(limits: PolicyLimits | None) -> Iterable[str]:
    if limits is None:
        return
    durations = (
        ("lease", limits["lease_s"]),
        ("renew-until", limits["renew_until_s"]),
        ("idle", limits["idle_after_s"]),
    )
    lines = [
        f"{limit_name} at most {duration_text(seconds)}" for limit_name, seconds in durations if seconds is not None
    ]
    lines += [] if limits["policies"] is None else [f"policies: {', '.join(limits['policies'])}"]
    lines += [f"stop: {limits['stop']}"] if limits["stop"] else []
    lines += [f"price_jump: {limits['price_jump']:g}"] if limits["price_jump"] else []
    lines += [f"payers: {', '.join(limits['payers'])}"] if limits["payers"] else []
    yield paragraph(f"Limits of {' and '.join(limits['sources'])}: {'; '.join(lines)}.")
