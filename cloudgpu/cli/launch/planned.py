"""The plan that `up` shows before it acts, as text: short, in one line, or in full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.cli.render import (
    a_month,
    dollars,
    gpus_text,
    labelled_lines,
    place_text,
    price_briefly,
    price_text,
    short_duration,
    when,
)
from cloudgpu.core.model.machine import is_on_prem
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import counted
from cloudgpu.core.values.times import duration_text, minute_text

if TYPE_CHECKING:
    from cloudgpu.views.documents.machines.plans import AccountOffers, BudgetFit, Extra, Network, Plan, PlannedGuards
    from cloudgpu.views.documents.parts import RuleText


def brief_plan_text(plan: Plan, now: datetime) -> str:
    """Return the plan in few lines: what, where, price, end, cost, what ends it; then all warnings in full."""
    return labelled_lines(
        [
            ("what", _machine_text(plan)),
            ("where", _where_briefly(plan)),
            ("price", _price_briefly(plan)),
            ("ends", _ends_text(plan, now)),
            ("cost", _cost_briefly(plan)),
            ("if idle", _idle_text(plan)),
            ("engine", _engine_text(plan)),
            ("ended by", _ended_by(plan["guarded"], plan["nodes"])),
            *((rule["rule"], _rule_text(rule, now)) for rule in plan["rules"] if rule["rule"] != "idle"),
            ("budget", _budgets_briefly(plan["budgets"])),
            *_warnings(plan),
        ]
    )


def job_machine_facts(plan: Plan) -> Iterator[tuple[str, str | None]]:
    """Yield the facts about the machine in the plan of a job: what, where, price, budget; then all warnings in full."""
    yield "machine", _hardware_text(plan) + (", spot" if plan["market"] == "spot" else "")
    yield "where", _where_briefly(plan)
    yield "price", _price_briefly(plan)
    yield "budget", _budgets_briefly(plan["budgets"])
    yield from _warnings(plan)


def plan_line(plan: Plan, *, for_job: bool = False) -> str:
    """Return the plan in one line, if there is no question; then every warning, never shortened.

    `for_job`: a job runs on it and renews the lease, so that renew-until is its end.
    """
    spot_text = " spot" if plan["market"] == "spot" else ""
    place = plan["provider"] if is_on_prem(plan["provider"]) else f"{plan['provider']} {plan['zone']}"
    # `lease_ends`: an idle machine ends with its lease; else that only warns.
    end = plan["expires"] if plan["lease_ends"] and not for_job else plan.get("renew_until")
    latest_text = " at the latest" if for_job else ""
    hourly_text = f"{dollars(plan['price']['usd_per_hour'], 4)}/h{_per_node_text(plan)}{_other_offers_text(plan)}"
    name = f"{plan['name']}: " if plan["name"] else ""
    message = (
        f"{name}{_count_prefix(plan)}{gpus_text(plan, briefly=True)}{spot_text}, {place}, {hourly_text}, "
        f"ends {minute_text(end)}{latest_text}"
    )
    return "\n".join(filter(None, [message, labelled_lines(_warnings(plan))]))


def _warnings(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield warnings: what may cost, erase or expose more than expected, and what could not be checked."""
    yield from (("gpus now", gpu_user) for gpu_user in plan["gpu_users"] if gpu_user != NOBODY)
    if _may_erase(plan):
        stop_text = _stop_text(plan)
        does_erase = stop_text.startswith(ERASES)
        yield ("stop erases", stop_text.removeprefix(ERASES)) if does_erase else ("stop", stop_text)
    yield from (("budget", _budget_text(budget)) for budget in plan["budgets"] if _is_doubtful(budget))
    if any(_is_doubtful(budget) for budget in plan["budgets"]) and plan["market"] == "spot":
        yield "", _SPOT_NOTE
    if _is_open(plan["setup"]["network"]):
        yield LABELS["access"], "SSH is open to EVERY address; a login still needs the key"
    if plan["unpriced"]:
        yield LABELS["money"], f"no price is known for {' and '.join(plan['unpriced'])}: the cost does not include it"
    if _only_reaper(plan["guarded"]):
        hourly = _hourly_text(plan)
        yield LABELS["guard"], f"without cloudgpu reap or watch it costs {hourly} an hour until you end it"
    yield from _note_facts(plan)


def _note_facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield each note under the label of what it is about."""
    for note_kind, note in zip(plan["note_kinds"], plan["notes"], strict=True):
        yield LABELS[note_kind], note


# By the kind of a note.
LABELS = {"note": "note", "money": "money", "erasure": "erases", "access": "open", "guard": "guard"}
ERASES = "erases "  # begins the `stop_effect` of a machine whose stop deletes data
# Providers whose `stop_effect` begins with what a stop erases, if anything.
BUILT_IN_PROVIDERS = ("aws", "azure", "gcp", "local", "ssh", "fake")
NOBODY = "nobody uses them"  # the text of providers for unused GPUs
_ACTION_TEXTS = {"stop": "stopped", "park": "kept as an image and ended", "terminate": "ended, and its disk deleted,"}
_TIMER_TEXTS = {"cloud": "a timer in the cloud (renew-until)", "own": "its own timer (renew-until)"}


def _machine_text(plan: Plan) -> str:
    spot_text = ", spot" if plan["market"] == "spot" else ""
    fallback_text = " (on demand where there is none)" if spot_text and plan["on_demand_fallback"] else ""
    return (
        f"{plan['name']}: {_hardware_text(plan)}{spot_text}{fallback_text}"
        if plan["name"]
        else f"{_hardware_text(plan)}{spot_text}{fallback_text}"
    )


def _where_briefly(plan: Plan) -> str:
    account_count = len(plan["by_account"])
    account_text = (
        ""
        if not account_count
        else "; only this account has it"
        if account_count == 1
        else f"; the first of {account_count} accounts"
    )
    return place_text(plan) + account_text


def _price_briefly(plan: Plan) -> str:
    """Return the price with how far it can be trusted, and the highest of the other offers where that is higher."""
    return price_briefly(plan["price"]) + _per_node_text(plan) + _other_offers_text(plan)


def _count_prefix(plan: Plan) -> str:
    """Return the number of machines as a prefix: `4 x `; empty for one."""
    return f"{plan['nodes']} x " if plan["nodes"] > 1 else ""


def _per_node_text(plan: Plan) -> str:
    """Return that the price is for one of several machines, and what all of them cost an hour; empty for one."""
    return "" if plan["nodes"] == 1 else f" each, {_hourly_text(plan)} an hour in all"


def _hourly_text(plan: Plan) -> str:
    """Return what all machines of a plan cost an hour."""
    return dollars(str(Decimal(plan["price"]["usd_per_hour"]) * plan["nodes"]), 4)


def _other_offers_text(plan: Plan) -> str:
    price, highest_usd_per_hour = plan["price"], plan["highest_usd_per_hour"]
    return (
        f"; other offers up to {dollars(highest_usd_per_hour, 4)}"
        if Decimal(highest_usd_per_hour) > Decimal(price["usd_per_hour"])
        else ""
    )


def _ends_text(plan: Plan, now: datetime) -> str:
    if not plan["lease_ends"]:
        return f"{when(plan.get('renew_until'), now)}; its lease only warns"
    if plan["expires"] == plan.get("renew_until"):
        return when(plan["expires"], now)
    return f"{when(plan['expires'], now)}; if in use, by {minute_text(plan.get('renew_until'))}"


def _cost_briefly(plan: Plan) -> str:
    """Return what it costs at most, and up to its lease's end. Attached is what is paid beside it: disk, address."""
    lease_length, renew_until_length = short_duration(plan["lease_s"]), short_duration(plan["renew_until_s"])
    lease_cost_text = (
        f", {dollars(plan['cost_to_lease_end_usd'])} in {lease_length}"
        if plan["lease_ends"] and lease_length != renew_until_length
        else ""
    )
    price_may_change = plan["further_offers"] or plan["market"] == "spot"
    attached_text = ", with attached costs" if any(cost["while_running"] for cost in plan["attached_costs"]) else ""
    at_price_text = " at this price" if price_may_change else ""
    return (
        f"at most {dollars(plan['cost_to_renew_until_usd'])} in "
        f"{renew_until_length}{lease_cost_text}{at_price_text}{attached_text}"
    )


def _idle_text(plan: Plan) -> str:
    idle = plan["idle"]
    if idle is None:
        has_no_agent = plan["guarded"]["agent"] == "none"
        return (
            "it keeps running: no agent runs on it"
            if has_no_agent
            else "it keeps running: its policy does not end idle machines"
        )
    after_text, grace_text = short_duration(idle["after_s"]), short_duration(idle["grace_s"])
    if idle["do"] is None:
        return f"only a warning after {after_text}"
    has_scratch = idle["spares_scratch"] and plan["stop_effect"].startswith(ERASES)
    scratch_text = "; only warned while its scratch disks hold data" if has_scratch else ""
    return f"{_ACTION_TEXTS[idle['do']]} after {after_text} and a {grace_text} warning{scratch_text}"


def _ended_by(safeguards: PlannedGuards, nodes: int) -> str:
    agent_texts = ["its agent (idle, lease)"] if safeguards["agent"] == "ends" else []
    if nodes > 1:
        node_agents = ["each node's agent (renew-until)"] if agent_texts else []
        agent_texts = ["cloudgpu reap or watch (idle, lease, for all nodes)", *node_agents]
    timer_texts = [_TIMER_TEXTS[safeguards["timer"]]] if safeguards["timer"] in _TIMER_TEXTS else []
    return ", ".join(agent_texts + timer_texts) or "only cloudgpu reap or watch"


def _engine_text(plan: Plan) -> str | None:
    """Return what queues the jobs of a cluster; None for a single machine."""
    return {"slurm": "Slurm queues its jobs", "none": "none: nothing queues its jobs", None: None}[plan["engine"]]


def _budgets_briefly(budgets: Sequence[BudgetFit]) -> str | None:
    """Return the least that a budget has left after this launch; None if one does not fit, which is a warning."""
    if not budgets or any(_is_doubtful(fit) for fit in budgets):
        return None
    tightest = min(budgets, key=lambda fit: Decimal(fit["remaining_usd"]))
    return (
        f"fits; leaves {dollars(tightest['remaining_usd'])} of {dollars(tightest['limit_usd'])} in {tightest['name']}"
    )


def _is_doubtful(fit: BudgetFit) -> bool:
    """Return whether a launch does not fit, or does so only by an override or a guess: this is always shown."""
    return bool(not fit["fits"] or fit["overridden"] or fit["unpriced"] or fit["assumed"])


def _may_erase(plan: Plan) -> bool:
    """Return whether the end of this machine may delete data on its disks: for a plug-in's machine it is not known."""
    is_known = plan["provider"] in BUILT_IN_PROVIDERS and "erases its " not in plan["stop_effect"]
    # `ends`: by the cause of an end, what it does: `stop`, `park` or `terminate`.
    return "terminate" in plan["ends"].values() or not is_known


def _is_open(network: Network) -> bool:
    from cloudgpu.core.values.network import EVERYBODY

    return not network["security_group"] and EVERYBODY in network["ssh_from"]


def plan_text(plan: Plan, now: datetime) -> str:
    """Return the whole plan: lines with a label and a text."""
    return labelled_lines(
        [
            ("name", plan["name"] or "two random words"),
            ("what", _hardware_text(plan)),
            *(("gpus now", gpu_user) for gpu_user in plan["gpu_users"]),
            ("where", _where_text(plan)),
            *([("chosen", _chosen_text(plan["by_account"]))] if plan["by_account"] else []),
            (
                "market",
                None if is_on_prem(plan["provider"]) and plan["market"] == "on_demand" else _market_text(plan),
            ),
            ("price", price_text(plan["price"]) + _per_node_text(plan)),
            ("lease", _lease_text(plan, now)),
            ("policy", _policy_text(plan)),
            *((rule["rule"], _rule_text(rule, now)) for rule in plan["rules"]),
            ("cost", _cost_text(plan)),
            *(
                ("attached", _attached_cost_text(attached_cost))
                for attached_cost in plan["attached_costs"]
                if attached_cost["while_running"]
            ),
            ("stop", _stop_text(plan)),
            *(("budget", _budget_text(budget)) for budget in plan["budgets"]),
            *([("", _SPOT_NOTE)] if plan["budgets"] and plan["market"] == "spot" else []),
            ("guards", "; ".join(plan["guards"])),  # the sentences; `guarded` has the same for programs
            ("ssh", _ssh_text(plan["setup"]["network"])),
            ("engine", _engine_text(plan)),
            ("template", _template_text(plan)),
            ("owner", f"{plan['owner']}, project {plan['project']}"),
            *_note_facts(plan),
        ]
    )


def _lease_text(plan: Plan, now: datetime) -> str:
    expires, renew_until_text = when(plan["expires"], now), when(plan.get("renew_until"), now)
    if plan["lease_ends"]:
        return f"until {expires}, renewed while in use until {renew_until_text}"
    return f"until {expires}, which does not end it: it runs until {renew_until_text} (its renew-until)"


def _hardware_text(plan: Plan) -> str:
    cpu_and_memory = [
        f"{plan['vcpus']} CPUs" if plan["vcpus"] else "",
        f"{plan['memory_gib']:g} GiB" if plan["memory_gib"] else "",
    ]
    return _count_prefix(plan) + ", ".join(
        text for text in (plan["instance_type"], gpus_text(plan), *cpu_and_memory) if text
    )


def _where_text(plan: Plan) -> str:
    first_place = place_text(plan)
    if not plan["further_offers"]:
        return first_place
    further_offers, highest_text = plan["further_offers"], dollars(plan["highest_usd_per_hour"], 4)
    return f"{first_place}; then {counted(further_offers, 'other offer')} at up to {highest_text} an hour"


def _chosen_text(account_offers: Sequence[AccountOffers]) -> str:
    """Return why it is this account's: what each has, in the order of trying."""
    account_texts = [
        f"{account_offer['account']} at {dollars(account_offer['usd_per_hour'], 4)} "
        f"({counted(account_offer['offers'], 'offer')})"
        for account_offer in account_offers
    ]
    if len(account_texts) == 1:
        return f"of all accounts only {account_texts[0]} has what fits"
    return f"first of {len(account_texts)} accounts: {', '.join(account_texts)}"


def _market_text(plan: Plan) -> str:
    market = str(plan["market"]).replace("_", "-")
    persistent_text = " by a persistent request" if _asks_to_persist(plan) and market == "spot" else ""
    fallback_text = "; on-demand where spot has no capacity" if plan["on_demand_fallback"] and market == "spot" else ""
    return market + persistent_text + fallback_text


def _asks_to_persist(plan: Plan) -> bool:
    """Say whether a spot machine can be stopped only by its persistent request; Azure's and Google's always can."""
    return bool(plan["setup"]["persistent"]) and plan["provider"] not in ("azure", "gcp")


def _policy_text(plan: Plan) -> str:
    """Return the policy with lease and renew-until, and where these are set if not by the policy."""
    source_texts = {"option": " as typed", "config.toml": " from config.toml"}
    lease_text = duration_text(plan["lease_s"]) + source_texts.get(plan["lease_from"], "")
    renew_until_text = duration_text(plan["renew_until_s"]) + source_texts.get(plan["renew_until_from"], "")
    return f"{plan['policy']}: lease {lease_text}, renew-until {renew_until_text}"


def _rule_text(text: RuleText, now: datetime) -> str:
    return f"{when(text['at'], now)}: {text['text']}" if text["at"] else str(text["text"])


def _cost_text(plan: Plan) -> str:
    """Return what it costs while it runs, with what is attached (disks, addresses); what has no price is named."""
    attached_text = (
        " with attached costs"
        if any(attached_cost["while_running"] for attached_cost in plan["attached_costs"])
        else ""
    )
    unpriced_text = f"; without what has no known price: {', '.join(plan['unpriced'])}" if plan["unpriced"] else ""
    renew_until_cost = _at_most_text(plan["cost_to_renew_until_usd"], plan["low_to_renew_until_usd"])
    if not plan["lease_ends"]:
        cost_text = f"{renew_until_cost} to its renew-until"
    else:
        lease_cost = _at_most_text(plan["cost_to_lease_end_usd"], plan["low_to_lease_end_usd"])
        cost_text = f"{lease_cost} to the end of the lease, {renew_until_cost} if it is renewed to the end"
    reaper_text = ""
    if _only_reaper(plan["guarded"]):
        reaper_text = f"; {_hourly_text(plan)} an hour until you end it, if neither cloudgpu reap nor watch runs"
    return f"{cost_text}{attached_text}{unpriced_text}{reaper_text}"


def _only_reaper(safeguards: PlannedGuards) -> bool:
    return bool(safeguards["agent"] != "ends" and safeguards["timer"] == "none")


def _at_most_text(high_usd: str, low_usd: str) -> str:
    """Return a cost; `at most` that if the lower bound is shown as another amount."""
    highest, lowest = dollars(high_usd), dollars(low_usd)
    return highest if highest == lowest else f"at most {highest}"


def _attached_cost_text(attached_cost: Extra) -> str:
    basis_text = (
        f" ({attached_cost['basis']})"
        if attached_cost["usd_per_month"] and attached_cost["basis"] in ("derived", "unverified")
        else ""
    )
    return (
        f"{attached_cost['what']}: "
        f"{a_month(attached_cost['usd_per_month'], at_most=attached_cost['at_most'])}{basis_text}"
    )


_SPOT_NOTE = "a spot machine counts at --max-price, without one at the on-demand price"


def _budget_text(fit: BudgetFit) -> str:
    """Return how it fits a budget: what was spent, what runs, this launch, and what remains."""
    name = f"{fit['name']} ({fit['scope']})"
    if fit["unpriced"]:
        return f"{name}: it is not known what {', '.join(fit['unpriced'])} costs"
    spent, running, requested = (dollars(fit[key]) for key in ("spent_usd", "running_usd", "requested_usd"))
    remaining = Decimal(fit["remaining_usd"])
    remaining_text = (
        f"leaves {dollars(fit['remaining_usd'])}" if remaining >= 0 else f"{Money.usd(-remaining).text()} too much"
    )
    action_text = "" if fit["fits"] else f": {_refusal_text(fit)}"
    limit = dollars(fit["limit_usd"])
    assumed_text = f"; counted without a known price: {'; '.join(fit['assumed'])}" if fit["assumed"] else ""
    sum_text = f"{spent} spent + {running} running + {requested} of {limit} {fit['period']}"
    return f"{name}: {sum_text}, {remaining_text}{action_text}{assumed_text}"


def _refusal_text(fit: BudgetFit) -> str:
    """Return what a budget does that does not admit it."""
    if fit["overridden"]:
        return "passed by --override"
    return "refused" if fit["refuses"] else "only an alert"


def _stop_text(plan: Plan) -> str:
    """Return what `stop` does, and what a stopped machine costs a month, if anything."""
    attached_costs = [attached_cost for attached_cost in plan["attached_costs"] if attached_cost["while_stopped"]]
    return f"{plan['stop_effect']}: {_monthly_text(attached_costs)}" if attached_costs else str(plan["stop_effect"])


def _monthly_text(attached_costs: Sequence[Extra]) -> str:
    priced = [
        (attached_cost, usd_per_month)
        for attached_cost in attached_costs
        if (usd_per_month := attached_cost["usd_per_month"]) is not None
    ]
    if not priced:
        return "its price is not known"
    total = Money.usd(sum((Decimal(usd_per_month) for _, usd_per_month in priced), Decimal()))
    unpriced_text = " and what has no known price" if len(priced) < len(attached_costs) else ""
    at_most = "at most " if any(attached_cost["at_most"] for attached_cost, _ in priced) else ""
    return f"{at_most}{total.text()} a month{unpriced_text}"


def _ssh_text(network: Network) -> str | None:
    """Return from where login is possible, and through which host; None if the provider does not decide that."""
    if network["security_group"]:
        sources = f"as security group {network['security_group']} says"
    elif network["ssh_from"]:
        sources = "from EVERY address (with a key)" if _is_open(network) else f"from {', '.join(network['ssh_from'])}"
    else:
        sources = ""
    jump_text = f"through {network['jump']}" if network["jump"] else ""
    return "; ".join(filter(None, (sources, jump_text))) or None


def _template_text(plan: Plan) -> str:
    left_out_text = f"; left out here: {', '.join(plan['left_out'])}" if plan["left_out"] else ""
    return f"{plan['template']}{left_out_text}"
