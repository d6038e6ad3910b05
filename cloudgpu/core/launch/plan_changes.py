"""What became worse, or different in kind, in a plan that was made again after the user had agreed to it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from cloudgpu.core.launch.plan import LaunchPlan
from cloudgpu.core.launch.plan_cost import AddedCost, traffic_remarks
from cloudgpu.core.model.offers import MachineConfiguration, NoteKind, note_kind
from cloudgpu.core.values.money import ZERO, Money
from cloudgpu.core.values.times import duration_text

UNUSED_GPUS = "nobody uses them"  # the text of providers for GPUs that are free
_COST_TOLERANCE = 100  # a cost that rose by less than this part of it is rounding: months differ in length


def plan_changes(agreed: LaunchPlan, latest: LaunchPlan) -> list[str]:
    """Return a clause for each thing in `latest` that the user did not agree to when agreeing to `agreed`.

    That is all that costs, ends, erases or exposes more, and another place, machine or end. Empty: `latest` is at most
    cheaper or safer, or differs in its zone alone.
    """
    return [*_money(agreed, latest), *_machine(agreed, latest), *_ends(agreed, latest), *_notes(agreed, latest)]


def _money(agreed: LaunchPlan, latest: LaunchPlan) -> Iterator[str]:
    clauses = [*_prices(agreed, latest), *_attached_costs(agreed.added_costs, latest.added_costs)]
    yield from clauses
    amount, agreed_amount = latest.to_renew_until.amount, agreed.to_renew_until.amount
    tolerance = Money(agreed_amount.nanos // _COST_TOLERANCE)
    if not clauses and latest.request.renew_s == agreed.request.renew_s and amount > agreed_amount + tolerance:
        yield f"it costs {amount.text()} until renew-until, no longer {agreed_amount.text()}"
    unpriced = sorted({*latest.to_renew_until.unpriced} - {*agreed.to_renew_until.unpriced})
    if unpriced:
        yield f"no price is known any longer for {' and '.join(unpriced)}"
    if latest.licence != agreed.licence:
        yield f"its operating system is billed as {latest.licence or 'plain Linux'}"


def _prices(agreed: LaunchPlan, latest: LaunchPlan) -> Iterator[str]:
    price, agreed_price = latest.offer.price, agreed.offer.price
    if price.per_hour > agreed_price.per_hour:
        yield f"it is {price.per_hour.text(4)} an hour now, no longer {agreed_price.per_hour.text(4)}"
    if latest.highest_price > max(agreed.highest_price, price.per_hour):
        yield f"other offers are up to {latest.highest_price.text(4)} an hour, no longer {agreed.highest_price.text(4)}"
    if price.basis != agreed_price.basis:
        yield f"its price is {price.basis} now, no longer {agreed_price.basis}"
    traffic, agreed_traffic = latest.offer.configuration.traffic, agreed.offer.configuration.traffic
    if traffic is not None and (
        agreed_traffic is None or traffic.out > agreed_traffic.out or traffic.into > agreed_traffic.into
    ):
        yield from traffic_remarks(latest.offer)


def _attached_costs(agreed: Sequence[AddedCost], latest: Sequence[AddedCost]) -> Iterator[str]:
    """Yield what costs more beside the machine: while it runs, and while it is stopped or parked."""
    for when, kept in (("while it runs", False), ("while it is stopped", True)):
        amount, agreed_amount = _monthly(latest, kept=kept), _monthly(agreed, kept=kept)
        if amount > agreed_amount:
            yield f"its disks and the like cost {amount.text()} a month {when}, no longer {agreed_amount.text()}"


def _monthly(costs: Sequence[AddedCost], *, kept: bool) -> Money:
    """Return what has a known price a month: while the machine is stopped (`kept`), else while it runs."""
    per_month = (extra.per_month for extra in costs if (extra.kept if kept else extra.running))
    return sum((each for each in per_month if each is not None), ZERO)


def _machine(agreed: LaunchPlan, latest: LaunchPlan) -> Iterator[str]:
    machine, agreed_machine = latest.offer.configuration, agreed.offer.configuration
    place, agreed_place = _place(machine), _place(agreed_machine)
    if place != agreed_place:
        yield f"it is in {place}, no longer {agreed_place}"
    kind, agreed_kind = _machine_kind(machine), _machine_kind(agreed_machine)
    if kind != agreed_kind or machine.accelerators != agreed_machine.accelerators:
        yield f"it is a {kind}, no longer a {agreed_kind}"
    if machine.trust.position > agreed_machine.trust.position:
        yield f"its computer is of the trust {machine.trust}, no longer {agreed_machine.trust}"
    if _gpu_use_count(machine) > _gpu_use_count(agreed_machine):
        yield f"its GPUs are in use now: {', '.join(machine.gpus_now)}"
    if latest.request.setup != agreed.request.setup:
        yield "its image, disks or network are others"
    left_out = sorted({*latest.left_out} - {*agreed.left_out})
    if left_out:
        yield f"these parts of its template do not run there: {', '.join(left_out)}"


def _place(machine: MachineConfiguration) -> str:
    return f"{machine.region} of account {machine.account} ({machine.provider})"


def _machine_kind(machine: MachineConfiguration) -> str:
    return f"{machine.instance_type} ({str(machine.market).replace('_', '-')})"


def _gpu_use_count(machine: MachineConfiguration) -> int:
    return sum(text != UNUSED_GPUS for text in machine.gpus_now)


def _ends(agreed: LaunchPlan, latest: LaunchPlan) -> Iterator[str]:
    request, agreed_request = latest.request, agreed.request
    for name, length, agreed_length in (
        ("lease", request.lease_s, agreed_request.lease_s),
        ("renew-until", request.renew_s, agreed_request.renew_s),
    ):
        if length != agreed_length:
            texts = [duration_text(timedelta(seconds=each)) for each in (length, agreed_length)]
            yield f"its {name} is {texts[0]}, no longer {texts[1]}"
    if request.policy != agreed_request.policy:
        yield f"it is under the policy {request.policy}, no longer {agreed_request.policy}"
    if latest.stop_effect != agreed.stop_effect:
        yield f"what a stop does is another: {latest.stop_effect}"
    rules, agreed_rules = ([(rule.rule, rule.text) for rule in plan.rules] for plan in (latest, agreed))
    ends, agreed_ends = ((plan.ends, plan.lease_ends, plan.idle) for plan in (latest, agreed))
    if ends != agreed_ends or rules != agreed_rules:
        yield "what its lease, its idle time or its policy does to it is another"
    lost_texts = sorted({*agreed.safeguard_texts} - {*latest.safeguard_texts})
    has_lost_run = agreed.scheduled_run is not None and latest.scheduled_run is None
    if latest.safeguards != agreed.safeguards or lost_texts or has_lost_run or latest.waived > agreed.waived:
        yield f"it is ended by {_ended_by(latest)}, no longer {_ended_by(agreed)}"


def _ended_by(plan: LaunchPlan) -> str:
    run_text = () if plan.scheduled_run is None else (f"runs of the reaper on {plan.scheduled_run.host}",)
    return ", ".join((*plan.safeguard_texts, *run_text)) or "nothing"


def _notes(agreed: LaunchPlan, latest: LaunchPlan) -> Iterator[str]:
    """Yield each warning that is new: of money, of data, of who may connect, of what ends it."""
    known = {*agreed.remarks, *traffic_remarks(latest.offer)}  # a price of traffic that rose is told with the money
    yield from (note for note in latest.remarks if note_kind(note) is not NoteKind.NOTE and note not in known)
