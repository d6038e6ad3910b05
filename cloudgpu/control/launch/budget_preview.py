"""What is shown with a plan, or refuses it, before it is executed: budgets, and a prepaid account's credit.

Where a machine of this request exists already, also how the request differs from its latest launch.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from cloudgpu.control.budgets.admission import credit_notes, evaluate_budgets, planned_credit_fit, sync_before_admission
from cloudgpu.control.inventory.listing import build_machine_document
from cloudgpu.control.pricing.price_history import on_demand_of
from cloudgpu.core.budgets.credit import CreditFit, credit_refusal
from cloudgpu.core.budgets.refusal import Remedy, period_text, refusal
from cloudgpu.core.launch.plan import budget_subjects
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.money import usd
from cloudgpu.core.values.times import from_iso, iso
from cloudgpu.errors import CloudgpuError
from cloudgpu.views.differences import differences_document
from cloudgpu.views.plans import plan_document

if TYPE_CHECKING:
    from cloudgpu.control.launch.plan import PreparedLaunch
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.budgets.admission import AdmissionRequest, BudgetVerdict
    from cloudgpu.views.documents.machines.machines import PlannedUpDocument, RequestDifference
    from cloudgpu.views.documents.machines.plans import BudgetFit


def sync_for_budgets(session: Session, prepared: PreparedLaunch) -> None:
    """Sync the accounts of the budgets that cover the plan, where the last sync is old."""
    planned_machines = budget_subjects(prepared.plan, prepared.name)
    sync_before_admission(
        session, {}, lambda budget: prepared.existing is None and any(map(budget.scope.covers, planned_machines))
    )


def admission_request(session: Session, prepared: PreparedLaunch) -> AdmissionRequest | None:
    """Return what budgets are asked for the plan: its nodes, and the budgets that cover them.

    None where nothing would be launched.
    """
    if prepared.existing is not None:
        return None
    price = on_demand_of(session, prepared.plan.offer, prepared.offers)
    first_node, *other_nodes = budget_subjects(prepared.plan, prepared.name, on_demand=price)
    name = prepared.name or "this cluster"
    return session.ledger.read(
        lambda view: evaluate_budgets(session, view, first_node, others=other_nodes, of_cluster=name)
    )


def check_budgets(session: Session, prepared: PreparedLaunch) -> None:
    """Raise BudgetRefused, as the launch would, where a budget does not admit the plan and is not overridden.

    Raises it, too, where a prepaid account's credit does not last to the end of the lease; no override helps there.
    """
    credit_fit, request = credit_fit_of_plan(session, prepared), prepared.plan.request
    if credit_fit is not None and not isinstance(credit_fit, CloudgpuError) and not credit_fit.fits:
        name = request.name or prepared.name or "this machine"
        raise credit_refusal(credit_fit, name, timedelta(seconds=request.lease_s))
    admission = admission_request(session, prepared)
    if admission is not None:
        check_admission(admission, prepared.override, prepared.remedy(session.clock()))


def credit_fit_of_plan(session: Session, prepared: PreparedLaunch) -> CreditFit | CloudgpuError | None:
    """Return whether the credit of a prepaid account covers the plan, or why that is not known; None if not prepaid.

    Read once for each plan.
    """
    if prepared.existing is not None:
        return None
    if not prepared.credit:
        offer, request = prepared.plan.offer, prepared.plan.request
        # The candidates are accounts, each with the request as it would be there.
        provider, lease = prepared.candidates.for_offer(offer).provider, timedelta(seconds=request.lease_s)
        planned_machines = budget_subjects(prepared.plan, prepared.name)
        prepared.credit.append(planned_credit_fit(session, provider, planned_machines, lease))
    return prepared.credit[0]


def check_admission(request: AdmissionRequest, override: str | None, remedy: Remedy) -> None:
    """Raise BudgetRefused where a budget does not admit the request, unless `override` (a reason) overrides it."""
    refusals = request.admission().refusals
    if refusals and (override is None or not all(verdict.budget.allow_override for verdict in refusals)):
        raise refusal(request, remedy)


def launch_differences(session: Session, prepared: PreparedLaunch, machine: Machine) -> list[RequestDifference]:
    """Return each option in which this request differs from the latest launch of the machine, with the remedy.

    A machine that was parked and restored has several launches. Empty for one that was adopted without a launch record.
    """
    begins = [
        event for event in session.ledger.events(machine.id) if event.kind in ("launch_intended", "start_requested")
    ]
    launches = [event for event in begins if event.kind == "launch_intended"]
    if not launches:
        return []
    return list(
        differences_document(
            prepared.plan.request,
            dict(launches[-1].body),
            launches[-1].occurred_at,
            machine,
            began_at=from_iso(begins[-1].occurred_at),
            now=session.clock(),
        )
    )


def build_plan_document(session: Session, prepared: PreparedLaunch) -> PlannedUpDocument:
    """Return the answer of `up --dry-run`: the plan, and the existing machine of this request."""
    existing_machine = prepared.existing
    existing = None if existing_machine is None else build_machine_document(session, existing_machine)
    differs = [] if existing_machine is None else launch_differences(session, prepared, existing_machine)
    notes = credit_notes(credit_fit_of_plan(session, prepared), prepared.plan.offer.configuration.account)
    plan = replace(prepared.plan, remarks=(*prepared.plan.remarks, *notes))
    return {
        "plan": plan_document(plan, budgets_document(session, prepared)),
        "existing": existing,
        "differences": differs,
    }


def budgets_document(session: Session, prepared: PreparedLaunch) -> list[BudgetFit]:
    """Return how the plan fits each budget that covers it; nothing where nothing would be launched."""
    admission = admission_request(session, prepared)
    verdicts = () if admission is None else admission.admission().verdicts
    return [_verdict_document(verdict, prepared.override) for verdict in verdicts]


def _verdict_document(verdict: BudgetVerdict, override: str | None) -> BudgetFit:
    """Return a verdict as a document, with its tightest period; `override` overrides one that allows it."""
    tightest, budget = verdict.tightest, verdict.budget
    return {
        "name": budget.name,
        "limit_usd": usd(budget.limit),
        "scope": budget.scope.text,
        "period": period_text(budget, tightest),
        "since": None if tightest.since is None else iso(tightest.since),
        "until": iso(tightest.until),
        "spent_usd": usd(tightest.spent),
        "running_usd": usd(tightest.running),  # what is committed already, to the end of the period
        "requested_usd": usd(tightest.requested),
        "remaining_usd": usd(budget.limit - tightest.total),
        "fits": verdict.fits,
        "refuses": budget.refuses,  # the budget's own setting: it is a hard limit
        "overridden": override is not None and budget.refuses and budget.allow_override and not verdict.fits,
        "unpriced": list(verdict.machines_without_price),
        "assumed": list(verdict.price_assumptions),
    }
