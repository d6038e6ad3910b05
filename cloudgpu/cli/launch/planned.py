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
from cloudgpu.core.model.machine import is_owned
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import counted
from cloudgpu.core.values.times import duration_text, minute_text

if TYPE_CHECKING:
    from cloudgpu.views.documents.machines.plans import AccountOffers, BudgetFit, Extra, Network, Plan, PlannedGuards
    from cloudgpu.views.documents.parts import RuleText


def brief_plan_text(value: Plan, now: datetime) -> str:
    """Return the plan in few lines: what, where, price, end, cost, what ends it; then all warnings in full."""
    return labelled_lines(
        [
            ("what", _machine_text(value)),
            ("where", _where_briefly(value)),
            ("price", _price_briefly(value)),
            ("ends", _ends(value, now)),
            ("cost", _cost_briefly(value)),
            ("if idle", _idle(value)),
            ("engine", _engine(value)),
            ("ended by", _ended_by(value["guarded"], value["nodes"])),
            *((rule["rule"], _rule(rule, now)) for rule in value["rules"] if rule["rule"] != "idle"),
            ("budget", _budgets_briefly(value["budgets"])),
            *_warnings(value),
        ]
    )


def job_machine_facts(value: Plan) -> Iterator[tuple[str, str | None]]:
    """Yield the facts about the machine in the plan of a job: what, where, price, budget; then all warnings in full."""
    yield "machine", _hardware(value) + (", spot" if value["market"] == "spot" else "")
    yield "where", _where_briefly(value)
    yield "price", _price_briefly(value)
    yield "budget", _budgets_briefly(value["budgets"])
    yield from _warnings(value)


def plan_line(value: Plan, *, for_job: bool = False) -> str:
    """Return the plan in one line, if there is no question; then every warning, never shortened.

    `for_job`: a job runs on it and renews the lease, so that renew-until is its end.
    """
    spot = " spot" if value["market"] == "spot" else ""
    at = value["provider"] if is_owned(value["provider"]) else f"{value['provider']} {value['zone']}"
    end = value["expires"] if value["lease_ends"] and not for_job else value.get("renew_until")
    latest = " at the latest" if for_job else ""
    usd = f"{dollars(value['price']['usd_per_hour'], 4)}/h{_per_node_text(value)}{_others_text(value)}"
    name = f"{value['name']}: " if value["name"] else ""
    message = (
        f"{name}{_count_prefix(value)}{gpus_text(value, briefly=True)}{spot}, {at}, {usd}, "
        f"ends {minute_text(end)}{latest}"
    )
    return "\n".join(filter(None, [message, labelled_lines(_warnings(value))]))


def _warnings(value: Plan) -> Iterator[tuple[str, str]]:
    """Yield warnings: what may cost, erase or expose more than expected, and what could not be checked."""
    yield from (("gpus now", gpu_user) for gpu_user in value["gpu_users"] if gpu_user != NOBODY)
    if _may_erase(value):
        stop_text = _stop(value)
        does_erase = stop_text.startswith(ERASES)
        yield ("stop erases", stop_text.removeprefix(ERASES)) if does_erase else ("stop", stop_text)
    yield from (("budget", _budget(budget)) for budget in value["budgets"] if _is_doubtful(budget))
    if any(_is_doubtful(budget) for budget in value["budgets"]) and value["market"] == "spot":
        yield "", _SPOT_NOTE
    if _is_open(value["setup"]["network"]):
        yield LABELS["access"], "SSH is open to EVERY address; a login still needs the key"
    if value["unpriced"]:
        yield LABELS["money"], f"no price is known for {' and '.join(value['unpriced'])}: the cost does not include it"
    if _only_reaper(value["guarded"]):
        hourly = _hourly(value)
        yield LABELS["guard"], f"without cloudgpu reap or watch it costs {hourly} an hour until you end it"
    yield from _notes(value)


def _notes(value: Plan) -> Iterator[tuple[str, str]]:
    """Yield each note under the label of what it is about."""
    for kind, note in zip(value["note_kinds"], value["notes"], strict=True):
        yield LABELS[kind], note


LABELS = {"note": "note", "money": "money", "erasure": "erases", "access": "open", "guard": "guard"}
ERASES = "erases "
BUILT_IN_PROVIDERS = (
    "aws",
    "azure",
    "gcp",
    "local",
    "ssh",
    "fake",
)  # their `stop_effect` begins with what a stop erases, if anything
NOBODY = "nobody uses them"  # the text of providers for unused GPUs
_ACTION_TEXTS = {"stop": "stopped", "park": "kept as an image and ended", "terminate": "ended, and its disk deleted,"}
_TIMER_TEXTS = {"cloud": "a timer in the cloud (renew-until)", "own": "its own timer (renew-until)"}


def _machine_text(value: Plan) -> str:
    spot = ", spot" if value["market"] == "spot" else ""
    fallback = " (on demand where there is none)" if spot and value["on_demand_fallback"] else ""
    return (
        f"{value['name']}: {_hardware(value)}{spot}{fallback}"
        if value["name"]
        else f"{_hardware(value)}{spot}{fallback}"
    )


def _where_briefly(value: Plan) -> str:
    account_count = len(value["by_account"])
    account_text = (
        ""
        if not account_count
        else "; only this account has it"
        if account_count == 1
        else f"; the first of {account_count} accounts"
    )
    return place_text(value) + account_text


def _price_briefly(value: Plan) -> str:
    """Return the price with how far it can be trusted, and the highest of the other offers where that is higher."""
    return price_briefly(value["price"]) + _per_node_text(value) + _others_text(value)


def _count_prefix(value: Plan) -> str:
    """Return the number of machines as a prefix: `4 x `; empty for one."""
    return f"{value['nodes']} x " if value["nodes"] > 1 else ""


def _per_node_text(value: Plan) -> str:
    """Return that the price is for one of several machines, and what all of them cost an hour; empty for one."""
    return "" if value["nodes"] == 1 else f" each, {_hourly(value)} an hour in all"


def _hourly(value: Plan) -> str:
    """Return what all machines of a plan cost an hour."""
    return dollars(str(Decimal(value["price"]["usd_per_hour"]) * value["nodes"]), 4)


def _others_text(value: Plan) -> str:
    price, highest = value["price"], value["highest_usd_per_hour"]
    return f"; other offers up to {dollars(highest, 4)}" if Decimal(highest) > Decimal(price["usd_per_hour"]) else ""


def _ends(value: Plan, now: datetime) -> str:
    if not value["lease_ends"]:
        return f"{when(value.get('renew_until'), now)}; its lease only warns"
    if value["expires"] == value.get("renew_until"):
        return when(value["expires"], now)
    return f"{when(value['expires'], now)}; if in use, by {minute_text(value.get('renew_until'))}"


def _cost_briefly(value: Plan) -> str:
    """Return what it costs at most, and what up to the end of its lease."""
    lease, longest = short_duration(value["lease_s"]), short_duration(value["renew_until_s"])
    lease_cost = (
        f", {dollars(value['cost_to_lease_end_usd'])} in {lease}" if value["lease_ends"] and lease != longest else ""
    )
    price_moves = value["further_offers"] or value["market"] == "spot"
    attached = ", with attached costs" if any(one["while_running"] for one in value["attached_costs"]) else ""
    price_text = " at this price" if price_moves else ""
    return f"at most {dollars(value['cost_to_renew_until_usd'])} in {longest}{lease_cost}{price_text}{attached}"


def _idle(value: Plan) -> str:
    idle = value["idle"]
    if idle is None:
        has_no_agent = value["guarded"]["agent"] == "none"
        return (
            "it keeps running: no agent runs on it"
            if has_no_agent
            else "it keeps running: its policy does not end idle machines"
        )
    after, grace = short_duration(idle["after_s"]), short_duration(idle["grace_s"])
    if idle["do"] is None:
        return f"only a warning after {after}"
    has_scratch = idle["spares_scratch"] and value["stop_effect"].startswith(ERASES)
    scratch_text = "; only warned while its scratch disks hold data" if has_scratch else ""
    return f"{_ACTION_TEXTS[idle['do']]} after {after} and a {grace} warning{scratch_text}"


def _ended_by(guarded: PlannedGuards, nodes: int) -> str:
    agent = ["its agent (idle, lease)"] if guarded["agent"] == "ends" else []
    if nodes > 1:
        node_agents = ["each node's agent (renew-until)"] if agent else []
        agent = ["cloudgpu reap or watch (idle, lease, for all nodes)", *node_agents]
    timer = [_TIMER_TEXTS[guarded["timer"]]] if guarded["timer"] in _TIMER_TEXTS else []
    return ", ".join(agent + timer) or "only cloudgpu reap or watch"


def _engine(value: Plan) -> str | None:
    """Return what queues the jobs of a cluster; None for a single machine."""
    return {"slurm": "Slurm queues its jobs", "none": "none: nothing queues its jobs", None: None}[value["engine"]]


def _budgets_briefly(budgets: Sequence[BudgetFit]) -> str | None:
    """Return the least that a budget has left after this launch; None if one does not fit, which is a warning."""
    if not budgets or any(_is_doubtful(fit) for fit in budgets):
        return None
    tightest = min(budgets, key=lambda one: Decimal(one["remaining_usd"]))
    return (
        f"fits; leaves {dollars(tightest['remaining_usd'])} of {dollars(tightest['limit_usd'])} in {tightest['name']}"
    )


def _is_doubtful(fit: BudgetFit) -> bool:
    return bool(not fit["fits"] or fit["overridden"] or fit["unpriced"] or fit["assumed"])


def _may_erase(value: Plan) -> bool:
    """Return whether the end of this machine may delete data on its disks: for a plug-in's machine it is not known."""
    is_known = value["provider"] in BUILT_IN_PROVIDERS and "erases its " not in value["stop_effect"]
    return "terminate" in value["ends"].values() or not is_known


def _is_open(network: Network) -> bool:
    from cloudgpu.core.values.network import EVERYBODY

    return not network["security_group"] and EVERYBODY in network["ssh_from"]


def plan_text(value: Plan, now: datetime) -> str:
    """Return the whole plan: lines with a label and a text."""
    return labelled_lines(
        [
            ("name", value["name"] or "two random words"),
            ("what", _hardware(value)),
            *(("gpus now", gpu_user) for gpu_user in value["gpu_users"]),
            ("where", _where(value)),
            *([("chosen", _chosen_text(value["by_account"]))] if value["by_account"] else []),
            ("market", None if is_owned(value["provider"]) and value["market"] == "on_demand" else _market(value)),
            ("price", price_text(value["price"]) + _per_node_text(value)),
            ("lease", _lease(value, now)),
            ("policy", _policy(value)),
            *((rule["rule"], _rule(rule, now)) for rule in value["rules"]),
            ("cost", _cost(value)),
            *(("attached", _extra(extra)) for extra in value["attached_costs"] if extra["while_running"]),
            ("stop", _stop(value)),
            *(("budget", _budget(budget)) for budget in value["budgets"]),
            *([("", _SPOT_NOTE)] if value["budgets"] and value["market"] == "spot" else []),
            ("guards", "; ".join(value["guards"])),
            ("ssh", _ssh(value["setup"]["network"])),
            ("engine", _engine(value)),
            ("template", _template(value)),
            ("owner", f"{value['owner']}, project {value['project']}"),
            *_notes(value),
        ]
    )


def _lease(value: Plan, now: datetime) -> str:
    expires, last = when(value["expires"], now), when(value.get("renew_until"), now)
    if value["lease_ends"]:
        return f"until {expires}, renewed while in use until {last}"
    return f"until {expires}, which does not end it: it runs until {last} (its renew-until)"


def _hardware(value: Plan) -> str:
    size = [
        f"{value['vcpus']} CPUs" if value["vcpus"] else "",
        f"{value['memory_gib']:g} GiB" if value["memory_gib"] else "",
    ]
    return _count_prefix(value) + ", ".join(text for text in (value["instance_type"], gpus_text(value), *size) if text)


def _where(value: Plan) -> str:
    first = place_text(value)
    if not value["further_offers"]:
        return first
    further, costliest = value["further_offers"], dollars(value["highest_usd_per_hour"], 4)
    return f"{first}; then {counted(further, 'other offer')} at up to {costliest} an hour"


def _chosen_text(shares: Sequence[AccountOffers]) -> str:
    """Return why it is this account's: what each has, in the order of trying."""
    account_texts = [
        f"{one['account']} at {dollars(one['usd_per_hour'], 4)} ({counted(one['offers'], 'offer')})" for one in shares
    ]
    if len(account_texts) == 1:
        return f"of all accounts only {account_texts[0]} has what fits"
    return f"first of {len(account_texts)} accounts: {', '.join(account_texts)}"


def _market(value: Plan) -> str:
    market = str(value["market"]).replace("_", "-")
    persistent = " by a persistent request" if _asks_to_persist(value) and market == "spot" else ""
    fallback = "; on-demand where spot has no capacity" if value["on_demand_fallback"] and market == "spot" else ""
    return market + persistent + fallback


def _asks_to_persist(value: Plan) -> bool:
    """Say whether a spot machine can be stopped only since that was asked for: Azure's and Google's always can be."""
    return bool(value["setup"]["persistent"]) and value["provider"] not in ("azure", "gcp")


def _policy(value: Plan) -> str:
    """Return the policy with lease and renew-until, and where these are set if not by the policy."""
    source_texts = {"option": " as typed", "config.toml": " from config.toml"}
    lease = duration_text(value["lease_s"]) + source_texts.get(value["lease_from"], "")
    renew = duration_text(value["renew_until_s"]) + source_texts.get(value["renew_until_from"], "")
    return f"{value['policy']}: lease {lease}, renew-until {renew}"


def _rule(text: RuleText, now: datetime) -> str:
    return f"{when(text['at'], now)}: {text['text']}" if text["at"] else str(text["text"])


def _cost(value: Plan) -> str:
    """Return what it costs with attached costs while it runs; resources without a price are named."""
    attached_text = " with attached costs" if any(extra["while_running"] for extra in value["attached_costs"]) else ""
    missing = f"; without what has no known price: {', '.join(value['unpriced'])}" if value["unpriced"] else ""
    to_the_end = _at_most_text(value["cost_to_renew_until_usd"], value["low_to_renew_until_usd"])
    if not value["lease_ends"]:
        cost_text = f"{to_the_end} to its renew-until"
    else:
        lease = _at_most_text(value["cost_to_lease_end_usd"], value["low_to_lease_end_usd"])
        cost_text = f"{lease} to the end of the lease, {to_the_end} if it is renewed to the end"
    reaper_text = ""
    if _only_reaper(value["guarded"]):
        hourly = dollars(value["price"]["usd_per_hour"], 4)
        reaper_text = f"; {hourly} an hour until you end it, if neither cloudgpu reap nor watch runs"
    return f"{cost_text}{attached_text}{missing}{reaper_text}"


def _only_reaper(guarded: PlannedGuards) -> bool:
    return bool(guarded["agent"] != "ends" and guarded["timer"] == "none")


def _at_most_text(high: str, low: str) -> str:
    """Return a cost; `at most` that if the lower bound is shown as another amount."""
    highest, lowest = dollars(high), dollars(low)
    return highest if highest == lowest else f"at most {highest}"


def _extra(extra: Extra) -> str:
    basis_text = (
        f" ({extra['basis']})" if extra["usd_per_month"] and extra["basis"] in ("derived", "unverified") else ""
    )
    return f"{extra['what']}: {a_month(extra['usd_per_month'], at_most=extra['at_most'])}{basis_text}"


_SPOT_NOTE = "a spot machine counts at --max-price, without one at the on-demand price"


def _budget(fit: BudgetFit) -> str:
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
    total = f"{spent} spent + {running} running + {requested} of {limit} {fit['period']}"
    return f"{name}: {total}, {remaining_text}{action_text}{assumed_text}"


def _refusal_text(fit: BudgetFit) -> str:
    """Return what a budget does that does not admit it."""
    if fit["overridden"]:
        return "passed by --override"
    return "refused" if fit["refuses"] else "only an alert"


def _stop(value: Plan) -> str:
    """Return what `stop` does, and what a stopped machine costs a month, if anything."""
    extras = [extra for extra in value["attached_costs"] if extra["while_stopped"]]
    return f"{value['stop_effect']}: {_monthly(extras)}" if extras else str(value["stop_effect"])


def _monthly(extras: Sequence[Extra]) -> str:
    priced = [(extra, usd) for extra in extras if (usd := extra["usd_per_month"]) is not None]
    if not priced:
        return "its price is not known"
    total = Money.usd(sum((Decimal(usd) for _, usd in priced), Decimal()))
    more = " and what has no known price" if len(priced) < len(extras) else ""
    at_most = "at most " if any(extra["at_most"] for extra, _ in priced) else ""
    return f"{at_most}{total.text()} a month{more}"


def _ssh(network: Network) -> str | None:
    """Return from where login is possible, and through which host; None if the provider does not decide that."""
    if network["security_group"]:
        sources = f"as security group {network['security_group']} says"
    elif network["ssh_from"]:
        sources = "from EVERY address (with a key)" if _is_open(network) else f"from {', '.join(network['ssh_from'])}"
    else:
        sources = ""
    jump_text = f"through {network['jump']}" if network["jump"] else ""
    return "; ".join(filter(None, (sources, jump_text))) or None


def _template(value: Plan) -> str:
    left_out = f"; left out here: {', '.join(value['left_out'])}" if value["left_out"] else ""
    return f"{value['template']}{left_out}"
