"""Gives ledger rows and plans as plain values, and says which layers would end a machine when.

`-o json` prints those values, and the library returns them. The layers go by what the machine's row says: the agent on
it, its timer, the reaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from cloudgpu.core.billing.totals import spent
from cloudgpu.core.policies.endings import is_spared
from cloudgpu.core.policies.guards import Agent, Timer, guards_of
from cloudgpu.core.values.money import Money, usd
from cloudgpu.core.values.times import from_iso, iso

if TYPE_CHECKING:
    from cloudgpu.core.launch.plan import LaunchPlan, Share
    from cloudgpu.core.launch.plan_cost import Extra
    from cloudgpu.core.model.instances import Instance
    from cloudgpu.core.model.launch import Setup
    from cloudgpu.core.model.offers import Accelerator, Price

Row = dict[str, Any]
FIRES_WITHIN = timedelta(minutes=5)  # clouds fire to the minute, and a machine takes a while to be stopped
NOT_KNOWN = "none"  # the rule of the warning that nothing is known of a machine: it ends nothing
BY_TIMER = "renew-until: the timer in the cloud"


def guards_value(row: Row) -> dict[str, Any]:
    """Return when each layer would end the machine as things stand, null for a layer that would not, and what it is.

    The agent may be sooner, for one that is idle; the reaper's is what its last pass has decided.
    """
    found = guards_of(row)
    what = {"agent_is": found and str(found.agent), "timer_is": found and str(found.timer)}
    if row["ended"] is not None or not row["billed"]:
        return {"agent": None, "timer": None, "reaper": None} | what
    return {
        "agent": _agents_end(row) if ends_itself(row) else None,
        "timer": timer_of(row),
        "reaper": (row.get("decision") or {}).get("at"),
    } | what


def _agents_end(row: Row) -> str | None:
    """Return when the agent ends it at the latest, if nobody uses it; its lease may be no reason for that."""
    spared = is_spared(row, None)
    end: str | None = row["renew_until"] if spared else row["expires"]
    return end


def ends_itself(row: Row) -> bool:
    """Say whether the agent's shutdown ends what the machine costs; where its launch is not known, it may."""
    found = guards_of(row)
    return found is None or found.agent is Agent.ENDS


def unjudged(row: Row) -> str | None:
    """Return why passes do not know whether a machine is used, once its people were told so; None where they do."""
    told = row.get("warnings", {}).get(NOT_KNOWN)
    return str(told["why"]) if told is not None and row["ended"] is None and row["billed"] else None


def timer_of(row: Row) -> str | None:
    """Return when its timer fires, as far as the ledger knows; None for none."""
    found = guards_of(row)
    follows = found is not None and found.follows and found.timer is not Timer.NONE
    at: str | None = row["renew_until"] if follows else row.get("timer")
    return at


def reason_of(row: Row) -> str | None:
    """Return why a machine is over, where that was not asked: its provider's word, else its timer's time."""
    at, since = row.get("timer"), row["since"]
    if row["reason"] is not None or row["billed"] or at is None or since is None:
        return None if row["reason"] is None else str(row["reason"])
    return BY_TIMER if _is_at(from_iso(since), from_iso(at)) else None


def _is_at(since: datetime, at: datetime) -> bool:
    return at <= since <= at + FIRES_WITHIN


_PLAIN = (
    "id name state billed provider account region zone instance_type market owner project policy template key "
    "launched_at expires renew_until hold_until last_active reason seen_at address ended"
).split()


def machine_value(
    row: Row,
    now: datetime,
    *,
    reachable: bool | None = None,
    absent: str | None = None,
    gpus_now: Sequence[str] = (),
) -> dict[str, Any]:
    """Return one machine: times as UTC text, money as decimal text in USD, `price` null where none is known.

    `spent_usd` is what it has cost up to `now` with its disks and all that is paid beside it, as far as the last look
    tells; `unpriced` are the resources of it without a known price, in no sum. `unsettled` says that its launch
    was interrupted and nobody knows yet whether it exists. `kept` is what stays of it without it, and what that costs
    a month: at most, for images. `cloud_id` is what its provider calls it, None before that has told.
    `beside` is what is paid beside it, and `stopped_usd_per_month` what of that is paid
    while it is stopped; both null where its launch did not say (found by its tags, or launched by an old version).
    `taken_at` is when a rehearsed spot interruption takes it, None where there is none.
    `shared` are the keys that were let in beside those of the launch.
    `guards` is when each layer would end it, `unjudged` why passes cannot tell whether it is used.
    `identity` is the account, or the computer, that it is at; `reachable` whether that is an account of this home.
    `absent` is why it cannot be asked from here where config.toml names its account or host no more, and what to do.
    `gpus_now` is who uses the GPUs of its computer, for whoever has just asked.
    """
    value = {name: row[name] for name in _PLAIN}
    value["cloud_id"] = cloud_id(row["provider_id"], row["region"], row["zone"])
    value["gpus"] = [_gpu(gpu) for gpu in row["accelerators"] or ()]
    value["gpus_now"] = list(gpus_now)
    value["price"] = _row_price(row["price"])
    value["spent_usd"] = None if row["unpriced"] else usd(spent(row, now))
    value["unpriced"] = unpriced_of(row)
    value["unsettled"] = row["attempt"] == "open"
    value["asked"] = row["asked"]
    value["taken_at"] = row.get("taken_at")
    value["shared"] = [
        {"key": key, **{name: said[name] for name in ("label", "from", "at")}}
        for key, said in row.get("shared", {}).items()
    ]
    value["parked"] = row["parked"]
    value["kept"] = [kept_value(entry) for entry in row["kept"]]
    value["kept_usd_per_month"] = _kept_a_month(row)
    value["beside"] = None if row.get("beside") is None else [_beside(entry) for entry in row["beside"]]
    value["stopped_usd_per_month"] = _while_stopped(row)
    value["reason"] = reason_of(row)
    value["guards"] = guards_value(row)
    value["identity"] = row["identity"]
    value["reachable"] = reachable
    value["absent"] = absent
    value["unjudged"] = unjudged(row)
    return value


def cloud_id(id: str | None, region: str | None, zone: str | None) -> str | None:  # noqa: A002
    """Return what a provider's console calls a machine: its id without the place that cloudgpu sets before it.

    `us-east-1/i-0123456789abcdef0` on AWS is `i-0123456789abcdef0`. None where the provider has not told one.
    """
    if not id:
        return None
    return next((id.removeprefix(f"{place}/") for place in (zone, region) if place and id.startswith(f"{place}/")), id)


def unpriced_of(row: Row) -> list[str]:
    """Return of which resources something ran, or runs, without a known price."""
    ended = {resource for resource, sums in row["totals"].items() if sums[5]}
    return sorted(ended | {use["resource"] for use in row["uses"] if not use["segments"]})


def kept_value(entry: Row) -> dict[str, Any]:
    """Return something that is kept, with its price a month, null where that is not known."""
    names = ("id", "kind", "region", "zone", "size_gb", "made_at", "ready")
    return {**{name: entry[name] for name in names}, "usd_per_month": _monthly(entry["nanos_per_month"])}


def _beside(entry: Row) -> dict[str, Any]:
    names = ("what", "at_most", "running", "kept")
    return {**{name: entry[name] for name in names}, "usd_per_month": _monthly(entry["nanos_per_month"])}


def _kept_a_month(row: Row) -> str | None:
    """Return what is kept costs a month; right after a park that is the machine's disk, which no line names yet."""
    if not row["parked"] or row["ended"] is None or row["kept"]:
        return _sum_of(row["kept"])
    disks = [entry for entry in row.get("beside") or () if entry["kept"]]
    return _sum_of(disks) if disks else None


def _while_stopped(row: Row) -> str | None:
    entries = row.get("beside")
    return None if entries is None else _sum_of([entry for entry in entries if entry["kept"]])


def _sum_of(entries: list[Row]) -> str | None:
    """Return what all of it costs a month; None where a part has no known price."""
    prices = [entry["nanos_per_month"] for entry in entries]
    return None if None in prices else usd(Money(sum(prices)))


def _monthly(nanos: int | None) -> str | None:
    return None if nanos is None else usd(Money(nanos))


def foreign_value(instance: Instance) -> dict[str, Any]:
    """Return a machine that belongs to another ledger: shown, never touched."""
    return {
        "provider_id": instance.id,
        "cloud_id": cloud_id(instance.id, instance.region, instance.zone),
        "provider": instance.provider,
        "account": instance.account,
        "region": instance.region,
        "zone": instance.zone,
        "state": str(instance.state),
        "billed": instance.billed,
        "name": instance.tags.get("cloudgpu-name"),
        "ledger": instance.tags.get("cloudgpu-ledger"),
        "owner": instance.tags.get("cloudgpu-owner"),
    }


def plan_value(plan: LaunchPlan) -> dict[str, Any]:
    """Return a launch plan: what `up --dry-run -o json` prints."""
    item, request = plan.offer.available, plan.request
    return {
        "name": request.name or None,
        "provider": item.provider,
        "account": item.account,
        "region": item.region,
        "zone": item.zone,
        "instance_type": item.instance_type,
        "market": str(item.market),
        "gpus": [_accelerator(gpu) for gpu in item.accelerators],
        "gpus_now": list(item.gpus_now),
        "vcpus": item.vcpus,
        "memory_gib": item.memory_gib,
        "price": price_value(plan.offer.price),
        "template": request.template,
        "left_out": list(plan.left_out),
        "owner": request.owner,
        "project": request.project,
        "policy": request.policy,
        "policy_by": request.policy_by or None,
        "rules": [{"rule": str(one.rule), "text": one.text, "at": one.at and iso(one.at)} for one in plan.rules],
        "lease_s": request.lease_s,
        "lease_from": str(plan.lease_from),
        "renew_s": request.renew_s,
        "renew_until_from": str(plan.renew_from),
        "expires": iso(plan.expires),
        "renew_until": iso(plan.renew_until),
        "cost_to_lease_end_usd": usd(plan.to_lease_end.amount),
        "cost_to_renew_until_usd": usd(plan.to_renew_until.amount),
        "low_to_lease_end_usd": usd(plan.to_lease_end.low),
        "low_to_renew_until_usd": usd(plan.to_renew_until.low),
        "machine_to_lease_end_usd": usd(plan.to_lease_end.machine),
        "machine_to_renew_until_usd": usd(plan.to_renew_until.machine),
        "cost_reasons": list(plan.to_renew_until.reasons),
        "unpriced": list(plan.to_renew_until.unpriced),
        "stop_means": plan.stop_means,
        "ends": {name: (do := getattr(plan.ends, name)) and str(do) for name in ("lease", "renew_until", "budget")},
        "guards": list(plan.guards),
        "guarded": {"agent": str(plan.guarded.agent), "timer": str(plan.guarded.timer)},
        "lease_ends": plan.lease_ends,
        "further_offers": plan.further_offers,
        "dearest_usd_per_hour": usd(plan.dearest),
        "of_accounts": [_share(one) for one in plan.of_accounts],
        "or_on_demand": request.want.or_on_demand,
        "setup": setup_value(request.setup),
        "extras": [extra_value(extra) for extra in plan.extras],
        "remarks": list(plan.remarks),
        "budgets": [],  # of whoever knows them: a plan alone does not
    }


def _share(share: Share) -> dict[str, Any]:
    """Return how many offers one account has, and the one of them that is tried first."""
    item = share.first.available
    return {
        "account": item.account,
        "provider": item.provider,
        "offers": share.offers,
        "zone": item.zone,
        "instance_type": item.instance_type,
        "usd_per_hour": usd(share.first.price.per_hour),
    }


def setup_value(setup: Setup) -> dict[str, Any]:
    """Return what a machine is set up with beside its type; null is the provider's usual."""
    return asdict(setup) | {"network": asdict(setup.network) | {"ssh_from": list(setup.network.ssh_from)}}


def extra_value(extra: Extra) -> dict[str, Any]:
    """Return what is paid beside the machine, per month; null where no price is known, never zero."""
    return {
        "what": extra.what,
        "usd_per_month": None if extra.per_month is None else usd(extra.per_month),
        "at_most": extra.upper_bound,
        "running": extra.running,
        "kept": extra.kept,
        "source": extra.source,
        "basis": str(extra.rate.basis) if extra.rate and extra.rate.basis else None,
    }


def price_value(price: Price) -> dict[str, Any]:
    """Return a price with its source, date and how far it can be trusted."""
    return {
        "usd_per_hour": usd(price.per_hour),
        "source": price.source,
        "as_of": iso(price.as_of),
        "basis": str(price.basis),
    }


def _row_price(price: Row | None) -> dict[str, Any] | None:
    if price is None:
        return None
    shown = {name: price[name] for name in ("source", "as_of", "basis")}
    return {"usd_per_hour": usd(Money(price["nanos_per_hour"])), **shown}


def _accelerator(gpu: Accelerator) -> dict[str, Any]:
    return {"name": gpu.name, "count": gpu.count, "memory_gib": gpu.memory_gib, "share": gpu.share, "of": gpu.of}


def _gpu(gpu: Row) -> Row:
    return {**{name: gpu[name] for name in ("name", "count", "memory_gib", "share")}, "of": gpu.get("of")}
