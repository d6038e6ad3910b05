"""What the ledger's lines about a machine say, in words: the audit trail of `show --history`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cloudgpu.core.values.money import Money
from cloudgpu.core.values.times import minute_text

if TYPE_CHECKING:
    from cloudgpu.views.documents.machines.machines import HistoryLine

EventBody = Mapping[str, Any]
_CLOCK_NOTES = {"provider": ", by its provider's clock", "machine": ", by the machine's clock"}
_ACTION_TEXTS = {"keep": "left it", "warn": "warned", "renew": "renewed its lease"}
_NO_LEASE = {"expires": None, "renew_until": None}
BYTES_PER_GB = 1e9


def actor_text(line: HistoryLine) -> str:
    """Return the writer of a ledger line, and the computer if known: `ada`, `ada on tower`."""
    host = line["body"].get("host")
    return f"{line['actor']} on {host}" if host else str(line["actor"])


def history_lines(lines: Iterable[HistoryLine]) -> list[str]:
    """Return what each of a machine's lines says; a lease that a sync observes is named where it has changed."""
    history, last_lease = [], list[str]()
    for line in lines:
        lease = _lease_parts(line["body"])
        is_unchanged = line["kind"] == "instance_observed" and lease == last_lease
        history.append(event_text(line if not is_unchanged else {**line, "body": {**line["body"], **_NO_LEASE}}))
        last_lease = lease or last_lease
    return history


def event_text(line: HistoryLine) -> str:
    """Return what a line says, as a sentence without a full stop; an unknown kind as its name."""
    text_of = _TEXTS.get(line["kind"])
    text = text_of(line["body"]) if text_of else _unknown_kind_text(line["kind"], line["body"])
    return text + _CLOCK_NOTES.get(line["clock"], "")


def _unknown_kind_text(kind: str, body: EventBody) -> str:
    reason = body.get("why") or body.get("state") or body.get("proof") or ""
    return f"{kind.replace('_', ' ')}{': ' * bool(reason)}{reason}"


def _launched_text(body: EventBody) -> str:
    where = body.get("zone") or body.get("region")
    market = "on spot" if body.get("market") == "spot" else "on demand"
    policy_source = f" ({body['policy_by']})" if body.get("policy_by") else ""
    attempt_number, type_, account = map(body.get, ("attempt", "instance_type", "account"))
    parts = [f"attempt {attempt_number} to launch {type_} in {where} of {account}, {market}"]
    parts += [_price(body.get("price")), f"policy {body['policy']}{policy_source}" if body.get("policy") else ""]
    return ", ".join([part for part in parts if part] + _lease_parts(body))


def _lease_parts(body: EventBody) -> list[str]:
    """Return until when it may live and until when its lease is renewable, as parts of a sentence."""
    lease_ends = (("lease until", body.get("expires")), ("renewable until", body.get("renew_until")))
    return [f"{label} {minute_text(at)}" for label, at in lease_ends if at]


def _price(price: EventBody | None) -> str:
    return f"{Money(price['nanos_per_hour']).text(4)} an hour" if price else "no price is known"


def _resolved_text(body: EventBody) -> str:
    outcome_texts = {
        "made": "the launch is accepted",
        "refused": "the launch is refused",
        "void": "the launch came to nothing",
    }
    return f"{outcome_texts.get(body['outcome'], body['outcome'])}: {body['why']}"


def _observed_text(body: EventBody) -> str:
    billed = "billed" if body["billed"] else "not billed"
    reason = f": {body['reason']}" if body.get("reason") else ""
    return ", ".join([f"seen {body['state']} ({billed}){reason}", *_lease_parts(body)])


def _request_text(verb: str) -> Callable[[EventBody], str]:
    def text_of(body: EventBody) -> str:
        failed = ", as it never came up" if body.get("failed") else ""
        return f"asked to {verb}{failed}: {body['why']}{_right_text(body)}"

    return text_of


def _right_text(body: EventBody) -> str:
    """Return by which right somebody acted on a machine that is not theirs; nothing for their own."""
    right_text = {
        "payer": "by the payer's role",
        "members": "as the lab's limits let every member",
        "pass": "by the reaper, for the lab",  # a run of the reaper
    }.get(body.get("right", ""))
    return f" (it is {body['whose'] or 'nobody'}'s; {right_text})" if right_text else ""


def _retained_text(body: EventBody) -> str:
    resources = ", ".join(
        f"{resource['kind']} {resource['id']} ({resource['size_gb']} GB)" for resource in body["retained"]
    )
    return f"retained: {resources}" if resources else "nothing of it is retained"


def _price_text(body: EventBody) -> str:
    source = body["price"] and body["price"].get("source")
    return f"it costs {_price(body['price'])}" + (f": {source}" if source else "")


def _traffic_text(body: EventBody) -> str:
    received = f", {body['received']['bytes_in'] / BYTES_PER_GB:.3g} GB received" if body.get("received") else ""
    return f"{body['bytes_out'] / BYTES_PER_GB:.3g} GB sent{received} since {minute_text(body['since'])}"


def _decision_text(body: EventBody) -> str:
    action = _ACTION_TEXTS.get(body["do"], f"decided to {body['do']} it")
    rule = "" if body["rule"] == "none" else f" ({body['rule']})"
    condition = "it stays in use" if body.get("activity") == "ACTIVE" else "nothing changes"
    has_warned = body["do"] == "warn" and rule  # the warning's own line says when it ends
    planned_end = (
        f"; ends {minute_text(body['at'])} if {condition}"
        if body.get("at") and body["do"] in _ACTION_TEXTS and not has_warned
        else ""
    )
    return f"{action}{rule}: {body['why']}{planned_end}"


def _warning_text(body: EventBody) -> str:
    due = f", ends {minute_text(body['due'])}" if body["due"] else ""
    channel_names = body.get("how") or ()
    channels = (
        f" ({', '.join(channel_names) if not isinstance(channel_names, str) else channel_names})"
        if channel_names
        else ""
    )
    rule = "use not known" if body["rule"] == "none" else body["rule"]
    return f"warning given ({rule}{due}){channels}: {body['why']}"


def _interruption_text(body: EventBody) -> str:
    sources = {"notice": "by its notice", "provider": "as its provider says", "vanished": "as it is gone unasked"}
    free_text = f"; {body['free']}" if body["free"] else ""
    cost = f"after {body['ran_s'] / 60:.0f} min, it has cost {Money(body['nanos']).text()}{free_text}"
    return f"taken by its provider, {sources[body['how']]}: {cost}"


def _timer_text(body: EventBody) -> str:
    text = f"timer of its cloud set to {minute_text(body['at'])}" if body["at"] else "timer of its cloud dropped"
    return f"{text}: {body['why']}" if body.get("why") else text


def _override_text(body: EventBody) -> str:
    exceeded = ", ".join(f"{budget['name']} by up to {Money(budget['nanos']).text()}" for budget in body["passed"])
    return f"a budget was overridden ({exceeded}): {body['reason']}"


def _resource_text(body: EventBody) -> str:
    attached_text = f", attached to {body['attached_to']}" if body.get("attached_to") else ""
    return f"seen: {body['kind']} {body['id']} ({body['size_gb']} GB){attached_text}"


def _label_text(label: str | None) -> str:
    return f" ({label})" if label else ""


_TEXTS: dict[str, Callable[[EventBody], str]] = {
    "launch_intended": _launched_text,
    "launch_settled": _resolved_text,
    "machine_adopted": lambda body: (
        f"found by its tags and added: {body.get('why') or 'no launch of it is known here'}"
    ),
    "instance_observed": _observed_text,
    "instance_vanished": lambda body: f"gone: {body['proof']}",
    "stop_requested": _request_text("stop"),
    "start_requested": _request_text("start"),
    "park_requested": _request_text("park"),
    "terminate_requested": _request_text("end"),
    "action_refused": lambda body: (
        f"the provider refused to {'stop' if body['action'] == 'stop' else 'end'} it: {body['why']}"
    ),
    "start_refused": lambda body: f"the start has not begun: {body['why']}",
    "resources_retained": _retained_text,
    "price_observed": _price_text,
    "traffic_observed": _traffic_text,
    "resource_observed": _resource_text,
    "resource_vanished": lambda body: f"gone: {body['proof']}{_right_text(body)}",
    "terms_set": lambda _: "the reaper has read its policy's file, or limits, again",
    "lease_set": lambda body: f"{', '.join(_lease_parts(body)) or 'no lease'}: {body['why']}{_right_text(body)}",
    "hold_set": lambda body: (
        (f"held until {minute_text(body['until'])}" if body["until"] else "hold released") + _right_text(body)
    ),
    "interruption_simulated": lambda body: f"a spot interruption is rehearsed for {minute_text(body['at'])}",
    "spot_interrupted": _interruption_text,
    "machine_shared": lambda body: f"{body['key']}{_label_text(body['label'])} was let in{_right_text(body)}",
    "machine_unshared": lambda body: f"{body['key'] or 'every shared key'} was removed{_right_text(body)}",
    "decision_made": _decision_text,
    "warning_sent": _warning_text,
    "warning_cleared": lambda body: f"warning lifted ({body['rule']}): {body['why']}",
    "timer_set": _timer_text,
    "orphan_removed": lambda body: f"orphaned {body['what']} {body['id']} removed: {body['why']}",
    "budget_overridden": _override_text,
}
