"""Gives plans of launches, their prices and setups as plain values: what `up --dry-run -o json` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cloudgpu.core.values.money import usd
from cloudgpu.core.values.times import iso

if TYPE_CHECKING:
    from cloudgpu.core.launch.plan import IdleEnd, LaunchPlan, OffersOfAccount
    from cloudgpu.core.launch.plan_cost import AddedCost
    from cloudgpu.core.model.launch import Setup
    from cloudgpu.core.model.offers import Accelerator, Price
    from cloudgpu.views.documents.machines.plans import (
        AccountOffers,
        BudgetFit,
        Extra as ExtraDocument,
        Plan,
        PlannedEnds,
        PlannedGuards,
        PlannedIdle,
        Setup as SetupDocument,
    )
    from cloudgpu.views.documents.parts import Gpu, Price as PriceDocument


def plan_document(plan: LaunchPlan, budgets: Sequence[BudgetFit] = ()) -> Plan:
    """Return a launch plan: what `up --dry-run -o json` prints; `budgets` say how it fits them."""
    from cloudgpu.core.model.offers import note_kind

    configuration, request = plan.offer.configuration, plan.request
    return {
        "name": request.name or None,
        "nodes": plan.nodes,
        "engine": None if request.cluster is None else request.cluster.engine,
        "provider": configuration.provider,
        "account": configuration.account,
        "region": configuration.region,
        "zone": configuration.zone,
        "instance_type": configuration.instance_type,
        "market": str(configuration.market),
        "trust": str(configuration.trust),
        "gpus": [_accelerator(gpu) for gpu in configuration.accelerators],
        "gpu_users": list(configuration.gpus_now),
        "vcpus": configuration.vcpus,
        "memory_gib": configuration.memory_gib,
        "price": price_document(plan.offer.price),
        "template": request.template,
        "left_out": list(plan.left_out),
        "owner": request.owner,
        "project": request.project,
        "policy": request.policy,
        "policy_from": request.policy_by or None,
        "rules": [
            {"rule": str(rule.rule), "text": rule.text, "at": None if rule.at is None else iso(rule.at)}
            for rule in plan.rules
        ],
        "lease_s": request.lease_s,
        "lease_from": str(plan.lease_origin),
        "renew_until_s": request.renew_s,
        "renew_until_from": str(plan.renew_origin),
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
        "stop_effect": plan.stop_effect,
        "ends": _planned_ends(plan),
        "idle": None if plan.idle is None else _idle(plan.idle),
        "guards": list(plan.safeguard_texts),
        "guarded": _safeguards(plan),
        "lease_ends": plan.lease_ends,
        "further_offers": plan.further_offers,
        "highest_usd_per_hour": usd(plan.highest_price),
        "by_account": [_account_offers(offers) for offers in plan.by_account],
        "on_demand_fallback": request.requirements.or_on_demand,
        "setup": setup_document(request.setup),
        "attached_costs": [added_cost_document(extra) for extra in plan.added_costs],
        "notes": [str(remark) for remark in plan.remarks],
        "note_kinds": [note_kind(remark).value for remark in plan.remarks],
        "budgets": list(budgets),
    }


def _account_offers(offers: OffersOfAccount) -> AccountOffers:
    """Return how many offers one account has, and the one of them that is tried first."""
    configuration = offers.first.configuration
    return {
        "account": configuration.account,
        "provider": configuration.provider,
        "offers": offers.offer_count,
        "zone": configuration.zone,
        "instance_type": configuration.instance_type,
        "usd_per_hour": usd(offers.first.price.per_hour),
    }


def _safeguards(plan: LaunchPlan) -> PlannedGuards:
    """Return which safeguards a planned machine has, and the scheduled run that it relies on."""
    return {
        "agent": str(plan.safeguards.agent),
        "timer": str(plan.safeguards.timer),
        "run": None
        if plan.scheduled_run is None
        else {
            "host": plan.scheduled_run.host,
            "every_s": plan.scheduled_run.every.total_seconds(),
            "at": iso(plan.scheduled_run.at),
        },
        "waived": plan.waived,
    }


def _planned_ends(plan: LaunchPlan) -> PlannedEnds:
    """Return what each end of a plan's machine does to it."""
    ends = plan.ends
    return {
        "lease": ends.lease and str(ends.lease),
        "renew_until": str(ends.renew_until),
        "budget": str(ends.budget),
    }


def _idle(idle: IdleEnd) -> PlannedIdle:
    """Return what idle time does to a plan's machine."""
    return {
        "do": idle.action and str(idle.action),
        "after_s": idle.after.total_seconds(),
        "grace_s": idle.grace.total_seconds(),
        "spares_scratch": idle.spares_scratch,
    }


def setup_document(setup: Setup) -> SetupDocument:
    """Return a machine's setup in addition to its type; null is the provider's default."""
    volume, network = setup.volume, setup.network
    return {
        "image": setup.image,
        "disk_gb": setup.disk_gb,
        "volume": None if volume is None else {"name": volume.name, "size_gb": volume.size_gb},
        "persistent": setup.persistent,
        "network": {
            "ssh_from": list(network.ssh_from),
            "subnet": network.subnet,
            "security_group": network.security_group,
            "public_ip": network.public_ip,
            "jump": network.jump,
        },
        "keep_disk": setup.keep_disk,
    }


def added_cost_document(cost: AddedCost) -> ExtraDocument:
    """Return an attached cost per month; null, never zero, if no price is known."""
    return {
        "what": cost.what,
        "usd_per_month": None if cost.per_month is None else usd(cost.per_month),
        "low_usd_per_month": usd(low) if (low := cost.rate and cost.rate.least_per_month) else None,
        "at_most": cost.upper_bound,
        "while_running": cost.running,
        "while_stopped": cost.kept,
        "source": cost.source,
        "basis": str(cost.rate.basis) if cost.rate and cost.rate.basis else None,
    }


def price_document(price: Price) -> PriceDocument:
    """Return a price with its source, date and how far it can be trusted."""
    return {
        "usd_per_hour": usd(price.per_hour),
        "source": price.source,
        "as_of": iso(price.as_of),
        "basis": str(price.basis),
        "negotiated": price.is_negotiated,
    }


def _accelerator(gpu: Accelerator) -> Gpu:
    return {"name": gpu.name, "count": gpu.count, "memory_gib": gpu.memory_gib, "share": gpu.share, "of": gpu.out_of}
