"""Policies as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from cloudgpu.cli.render import facts, paragraph, table_rows, when, wrapped
from cloudgpu.core.values.times import duration_text

if TYPE_CHECKING:
    from cloudgpu.views.documents.automation.policies import (
        PoliciesDocument,
        PolicyDocument,
        PolicyLimits,
        PolicyOfMachineDocument,
        PolicySummary,
    )


def list_text(value: PoliciesDocument) -> str:
    """Return a line for each policy, and below it what it is for, who chooses it and what is wrong with it."""
    rows = [
        [policy["name"], _span(policy["lease_s"]), _span(policy["renew_until_s"]), _idle(policy), _offs(policy)]
        for policy in value["policies"]
    ]
    heading, *lines = table_rows(rows, ["POLICY", "LEASE", "RENEW", "IDLE", "OFF"])
    below = [f"{line}\n{_details(one)}" for line, one in zip(lines, value["policies"], strict=True)]
    return "\n".join([*_shipped_lines(value["policies"]), heading, *below, *_limits(value["limits"])])


def _shipped_lines(summaries: Iterable[PolicySummary]) -> Iterator[str]:
    """Yield which policy a launch gets that names none, and when it ends a machine."""
    for summary in summaries:
        if "policy" in summary["chosen_by"] and not summary["error"]:
            idle = f", ends after {_idle(summary)} idle" if summary["idle_do"] not in (None, "off", "warn") else ""
            spans = f"lease {_span(summary['lease_s'])}, renewed for up to {_span(summary['renew_until_s'])}"
            message = f"The default policy is {summary['name']}: {spans}{idle}."
            yield f"{paragraph(message)}\n"


def show_text(value: PolicyDocument, now: datetime) -> str:
    """Return what one policy says, rule by rule."""
    chosen = "; ".join(_chosen(value["chosen_by"]))
    head = [("policy", value["name"]), ("for", value["description"]), ("from", value["source"]), ("", chosen)]
    refused = None if value["allowed"] else "the limits allow no launch under it"
    notes = [("note", refused), ("note", _unused(value)), *(("note", one) for one in value["limited_by"])]
    return facts([*head, *notes, *_rules(value, now)])


def explain_text(value: PolicyOfMachineDocument, now: datetime) -> str:
    """Return which policy holds for a machine, why, and each rule as it stands for it now."""
    only_lease = f"{value['policy']} cannot be resolved: only the lease counts" if value["error"] else value["policy"]
    head = [("machine", f"{value['machine']}, {value['state']}"), ("policy", only_lease), ("why", value["why"])]
    source = [("from", value["source"])]
    limits = value["limits"] and f"of {' and '.join(value['limits']['sources'])}"
    notes = [("limits", limits), *(("note", one) for one in value["limited_by"])]
    return facts([*head, *source, *notes, *_rules(value, now)])


def _rules(value: PolicyDocument | PolicyOfMachineDocument, now: datetime) -> list[tuple[str, str | None]]:
    return [
        (one["rule"], f"{when(one['at'], now)}: {one['text']}" if one["at"] else one["text"]) for one in value["rules"]
    ]


def _unused(value: PolicyDocument | PolicySummary) -> str | None:
    """Return that a file of this home does not count, where the lab has published a policy of that name."""
    published = value["published"]
    return published and published["unused"] and f"{published['unused']} does not count: the published one does"


def _details(summary: PolicySummary) -> str:
    parts = [summary["error"] or summary["description"]]
    parts += list(_chosen(summary["chosen_by"]))
    parts += [] if summary["source"] in (None, "shipped") else [f"from {summary['source']}"]
    unused = _unused(summary)
    parts += [unused] if unused else []
    parts += [] if summary["allowed"] else ["the limits allow no launch under it"]
    return wrapped("; ".join(parts), "  ", "  ")


def _chosen(keys: Iterable[str]) -> Iterator[str]:
    """Yield who in config.toml names it: `policy` makes it the default."""
    yield from ("the default" if key == "policy" else f"chosen by {key}" for key in keys)


def _span(seconds: float | None) -> str:
    return "?" if seconds is None else duration_text(seconds)


def _idle(summary: PolicySummary) -> str:
    if summary["idle_do"] in (None, "off"):
        return "?" if summary["error"] else "never"
    return f"{_span(summary['idle_after_s'])}{', warns' if summary['idle_do'] == 'warn' else ''}"


def _offs(summary: PolicySummary) -> str:
    return ", ".join(f"{off['off']} {off['tz']}" for off in summary["schedules"] or ()) or "-"


def _limits(limits: PolicyLimits | None) -> Iterable[str]:
    if limits is None:
        return
    spans = (("lease", limits["lease_s"]), ("renew-until", limits["renew_until_s"]), ("idle", limits["idle_after_s"]))
    lines = [f"{what} at most {duration_text(span)}" for what, span in spans if span is not None]
    lines += [] if limits["policies"] is None else [f"policies: {', '.join(limits['policies'])}"]
    lines += [f"stop: {limits['stop']}"] if limits["stop"] else []
    lines += [f"price_jump: {limits['price_jump']:g}"] if limits["price_jump"] else []
    lines += [f"payers: {', '.join(limits['payers'])}"] if limits["payers"] else []
    yield paragraph(f"Limits of {' and '.join(limits['sources'])}: {'; '.join(lines)}.")
