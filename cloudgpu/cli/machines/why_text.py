"""Why a machine counts as in use, idle or unknown, as text: signal by signal, in 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from cloudgpu.cli.render import ago, at_most_ago, labelled_lines, short_duration, size_text, table, when, wrapped
from cloudgpu.core.values.times import from_iso, iso

if TYPE_CHECKING:
    from cloudgpu.views.documents.automation.activity import (
        ActivityIdle,
        ActivitySignal,
        GivenWarning,
        RuleEnds,
        WhyDocument,
    )

_STATES = {"ACTIVE": "in use", "IDLE": "idle", "UNKNOWN": "not known whether it is used"}


def why_texts(documents: Sequence[WhyDocument], now: datetime) -> str:
    """Return what `reap --explain` says: a block for each machine."""
    return "\n\n".join(why_text(why, now) for why in documents)


def why_text(document: WhyDocument, now: datetime) -> str:
    """Return why one machine counts as in use, idle or unknown, and when it would be ended."""
    parts = [_headline(document)]
    if document["signals"]:
        parts += ["", indented(_signals_table(document)), ""]
    parts.append(_fact_lines(document, now))
    return "\n".join(parts)


def _headline(document: WhyDocument) -> str:
    reason, activity = document["why"], document["activity"]
    return wrapped(
        f"{document['name']}: " + (f"{_STATES[activity]} ({reason})" if document["running"] else reason),
        rest="  ",
    )


def indented(text: str) -> str:
    """Return lines indented by two spaces, like facts."""
    return "\n".join(f"  {line}" for line in text.splitlines())


def _signals_table(document: WhyDocument) -> str:
    limit_texts = {signal["what"]: _limit_text(signal) for signal in document["signals"]}
    # Output counts for as long as input does; its own limit only says until when output after input is seen.
    limit_texts["terminal output"] = limit_texts.get("terminal input", "")
    rows = [
        [
            signal["what"],
            _names_text(signal["names"])
            if signal["unit"] in ("kernels", "jobs")
            else _reading_text(signal["value"], signal["unit"]),
            limit_texts[signal["what"]],
            "never" if signal["ago_s"] is None else f"{short_duration(signal['ago_s'])} ago",
            "yes" if signal["active"] else "",
        ]
        for signal in document["signals"]
    ]
    return table(rows, ["SIGNAL", "SEEN", "COUNTS FROM", "LAST SIGN OF LIFE", "NOW"])


def _limit_text(signal: ActivitySignal) -> str:
    if signal["limit"] is None:
        return "any"
    return ("within " if signal["unit"] == "seconds" else "") + _reading_text(
        signal["limit"], signal["unit"], ago_suffix=""
    )


def _reading_text(reading: Any, unit: str, ago_suffix: str = " ago") -> str:
    if reading is None:
        return "nothing" if unit == "seconds" else "not read"
    return _UNIT_TEXTS[unit](reading) + (ago_suffix if unit == "seconds" else "")


def _names_text(names: Sequence[str]) -> str:
    names_text = ", ".join(names[:2]) + (", ..." if len(names) > 2 else "")  # noqa: PLR2004  (what a column has room for)
    return names_text[:28] or "none"


_UNIT_TEXTS: dict[str, Callable[[Any], str]] = {
    "percent": lambda percent: f"{percent:g} %",
    "cores": lambda cores: f"{cores:.2f} cores",
    "bytes_per_s": lambda bytes_per_s: f"{size_text(bytes_per_s)}/s",
    "seconds": short_duration,
}


def _fact_lines(document: WhyDocument, now: datetime) -> str:
    decision, policy, rule_ends = document["decision"], document["policy"], document["ends"]
    idle = policy["idle"]
    rule_text = "" if decision["rule"] == "none" else f" ({decision['rule']})"
    condition = "it stays in use" if document["activity"] == "ACTIVE" else "nothing changes"
    return labelled_lines(
        [
            ("known", _source_text(document, now)),
            ("policy", f"{policy['name'] or 'none'}: {policy['why']}"),
            ("idle", idle and _idle_text(idle, document["ends"], now)),
            ("schedule", rule_ends["schedule"] and f"off {when(rule_ends['schedule'], now)}"),
            ("held", rule_ends["held_until"] and f"until {when(rule_ends['held_until'], now)}"),
            ("lease", rule_ends["lease"] and f"until {when(rule_ends['lease'], now)}"),
            ("renewable", (renew_until := rule_ends.get("renew_until")) and f"until {when(renew_until, now)}"),
            ("warned", "; ".join(_warning_text(warning, now) for warning in document["warnings"])),
            (
                "scratch",
                ", ".join(
                    f"{directory['path']} ({size_text(directory['bytes'])})" for directory in document["scratch"]
                ),
            ),
            ("decision", f"{decision['do']}{rule_text}: {decision['why']}"),
            (
                "ends",
                f"{when(decision['at'], now)} if {condition}" if decision["at"] else "no rule ends it",
            ),
        ]
    )


def _source_text(document: WhyDocument, now: datetime) -> str:
    source = document["source"]
    refresh_text = f"; to ask it: cloudgpu show {document['name']} --why --refresh"
    if source["how"] == "live" and source["at"]:
        return f"asked over SSH, {ago(source['at'], now)}"
    if source["how"] == "live":
        signals_text = f"; the signals are of {ago(source['signals_at'], now)}" if source["signals_at"] else ""
        return f"asked over SSH, and nothing is known of now{signals_text}"
    if source["at"]:
        return f"from the samples kept here, the last of them {ago(source['at'], now)}{refresh_text}"
    last_active = document["last_active_at"]
    if not document["running"]:
        use_text = f"; it was last in use {at_most_ago(last_active, now)}" if last_active else ""
        return f"nothing is asked of it now{use_text}"
    return (
        f"its own word that it was in use, {at_most_ago(last_active, now)}" if last_active else "nothing"
    ) + refresh_text


def _idle_text(idle: ActivityIdle, rule_ends: RuleEnds, now: datetime) -> str:
    if idle["do"] == "off":
        return "does not end it"
    idle_after, grace = short_duration(idle["after_s"]), short_duration(idle["grace_s"])
    idle_text = f"{idle_after} without a sign of life, then a warning and {grace}"
    if idle["do"] == "warn":
        return f"{idle_text}; it is only warned"
    idle_end, held_until = rule_ends["idle"], rule_ends["held_until"]
    if idle_end and held_until:  # which is warned of once the hold is over
        idle_end = max(idle_end, iso(from_iso(held_until) + timedelta(seconds=idle["grace_s"])))
    return idle_text + (f"; not used from now on, it ends {when(idle_end, now)} at the earliest" if idle_end else "")


def _warning_text(warning: GivenWarning, now: datetime) -> str:
    due_text = f", ends {when(warning['due'], now)}" if warning["due"] else ""
    rule_text = "use not known" if warning["rule"] == "none" else warning["rule"]
    return f"{rule_text}, {ago(warning['at'], now)}{due_text}" if from_iso(warning["at"]) <= now else rule_text
