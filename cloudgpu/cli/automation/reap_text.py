"""A run as text: a line for each thing that happened, one that sums up, and what is wrong apart from both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cloudgpu.cli.machine_text import account_lines
from cloudgpu.cli.render import paragraph
from cloudgpu.core.model.identity import unanswered_text
from cloudgpu.core.policies.policy import Do, Rule
from cloudgpu.core.reaper.decisions import UNKNOWN
from cloudgpu.core.values.naming import counted
from cloudgpu.core.values.times import duration_text
from cloudgpu.views.machines import queried_accounts_value

if TYPE_CHECKING:
    from cloudgpu.core.reaper.decisions import Decision
    from cloudgpu.core.reaper.result import Ended, GivenWarning, ReaperRun

_DONE = {
    Do.STOP: "stopped",
    Do.PARK: "parked",
    Do.TERMINATE: "terminated",
    Do.IMAGE: "kept as an image",
    Do.REMOVE: "its image is removed",
    Do.RENEW: "renewed",
}
_WOULD = {
    Do.KEEP: "would be kept",
    Do.WARN: "would be warned",
    Do.RENEW: "would be renewed",
    Do.STOP: "would be stopped",
    Do.PARK: "would be parked",
    Do.TERMINATE: "would be terminated",
    Do.IMAGE: "would be kept as an image",
    Do.REMOVE: "its image would be removed",
}


def run_text(run: ReaperRun, *, verbose: bool) -> str:
    """Return what is said of a run on stdout: nothing of one in which nothing happened, unless `verbose`."""
    if run.busy:
        return paragraph(run.busy) if verbose else ""
    if run.is_quiet and not verbose:
        return ""
    lines = [*_planned_lines(run)] if run.dry_run else [*_done_lines(run)]
    asked = account_lines(queried_accounts_value(run.queried, run.not_queried)) if verbose else []
    return "\n".join([*map(paragraph, lines), paragraph(summary(run)), *asked])


def wrong_text(run: ReaperRun) -> str:
    """Return what is said of it on stderr: what may still be billed, what did not answer, what could not be judged."""
    lines = [f"{one.name} may still be billed: {one.why}" for one in run.unconfirmed]
    lines += [unanswered_text(gap.scope, gap.why) for gap in run.unanswered]
    lines += [f"{fault[:1].upper()}{fault[1:]}." for fault in run.faults]
    lines += [f"An alert was not delivered: {why}." for why in run.undelivered]
    return "\n".join(map(paragraph, lines))


def summary(run: ReaperRun) -> str:
    """Return the run in one line: how many machines, what was done with them, how long it took."""
    parts = [counted(len(run.decisions), "machine")]
    counts = run.decided if run.dry_run else _counts(run)
    parts += [f"{number} {what}" for what, number in counts.items() if number]
    if run.dry_run:
        parts.append("nothing was changed")
    return f"{'; '.join([parts[0], ', '.join(parts[1:])]) if parts[1:] else parts[0]} ({_duration_text(run)})"


def _duration_text(run: ReaperRun) -> str:
    seconds = run.duration.total_seconds()
    return f"{seconds:.1f} s" if seconds < 60 else duration_text(seconds)  # noqa: PLR2004  (a minute)


def _counts(run: ReaperRun) -> dict[str, int]:
    return {
        "ended": len(run.ended),
        "renewed": len(run.renewed),
        "warned": len({warning.machine for warning in run.warned}),
        "left in the end": len(run.skipped),
        "not proved": len(run.unconfirmed),
    }


def _done_lines(run: ReaperRun) -> Iterator[str]:
    yield from run.sentences
    yield from map(_done_text, (*run.ended, *run.renewed))
    yield from map(_warning_text, run.warned)
    for one in run.skipped:
        yield f"{one.name}: left, {one.why}"


def _done_text(one: Ended) -> str:
    return f"{one.name}: {_DONE[one.do]} ({one.rule}): {one.why}"


def _warning_text(warning: GivenWarning) -> str:
    how = " and ".join(way for way in warning.how if way != "ledger")
    return f"{warning.name}: warned{_rule_text(warning.rule)}: {warning.why}" + (f" (by {how})" if how else "")


def _planned_lines(run: ReaperRun) -> Iterator[str]:
    yield from run.sentences
    for decision in run.decisions:
        yield _decision_text(decision)


def _decision_text(one: Decision) -> str:
    still = one.activity == UNKNOWN and one.why.startswith("it is ")  # what does not run has no use to be known
    use = "" if still else f"{one.activity}, "
    return f"{one.name}: {_WOULD[one.do]}{_rule_text(one.rule)}: {use}{one.why}"


def _rule_text(rule: str) -> str:
    return "" if rule == Rule.NONE else f" ({rule})"
