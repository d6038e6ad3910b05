"""Launches: from a plan to a recorded machine, never two for one request."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING

from cloudgpu.access.ssh.target import AccessBlocked
from cloudgpu.control.access.reach import attach_volume, wait_until_ready
from cloudgpu.control.budgets.admission import sync_before_admission
from cloudgpu.control.clusters.engine import set_up_engine
from cloudgpu.control.clusters.together import living_nodes
from cloudgpu.control.inventory import retention as retention_records
from cloudgpu.control.inventory.listing import build_machine_document
from cloudgpu.control.inventory.local_files import clean_up, clean_up_local_files
from cloudgpu.control.inventory.settle import settle, settle_abandoned_launches
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.inventory.unrecorded_termination import end_unrecorded_launch
from cloudgpu.control.launch.attempt import record_intents, send_all
from cloudgpu.control.launch.budget_preview import launch_differences, sync_for_budgets
from cloudgpu.control.launch.cluster import find_or_settle_node
from cloudgpu.control.launch.containers import filter_runnable
from cloudgpu.control.launch.offers import Refusals, resolve, with_client_ssh_ingress
from cloudgpu.control.launch.plan import PreparedLaunch, find_offers
from cloudgpu.control.lifecycle import timers
from cloudgpu.control.lifecycle.failed_launch import terminate_failed_launch, terminate_surviving_nodes
from cloudgpu.control.lifecycle.lease import refresh_lease, set_lease
from cloudgpu.control.lifecycle.start import UP_STATES, withdraw_requests
from cloudgpu.control.session.accounts import is_forgotten
from cloudgpu.control.session.guarding import check_launch_guarded, is_guarded
from cloudgpu.control.session.session import Session
from cloudgpu.control.team.authorization import check_override, check_right_and_claim_owner, claim_owner
from cloudgpu.core.clusters.layout import engine_of_machine
from cloudgpu.core.launch.attempt import launch_message, launched_machine, unfinished_attempt
from cloudgpu.core.launch.plan import Lease, budget_subjects, node_offers
from cloudgpu.core.model.machine import Machine, Ownership, billed_text, can_be_restored, command_name, launched_text
from cloudgpu.core.model.offers import Market, Offer, Trust
from cloudgpu.core.values.times import iso
from cloudgpu.errors import (
    CloudgpuError,
    InvalidRequest,
    LedgerUnavailable,
    NoCapacity,
    ProviderUnavailable,
    StopUnproved,
    Unreachable,
)
from cloudgpu.providers.abilities import Resolved, Taggable, needs_reaper_run
from cloudgpu.underway import on_abort
from cloudgpu.views.plans import plan_document

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudgpu.views.documents.machines.machines import UpDocument


# After a launch with --new whose outcome is not known, a repeated one would launch a second machine.
RESOLVE_FIRST_REMEDY = (
    "First see whether it made a machine: cloudgpu ls --refresh. After that, --new launches another one."
)
SEND_TIMEOUT = timedelta(minutes=5)
LOCK_TIMEOUT_S = 900


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """The result of `up`: the machine as recorded, and whether it existed before.

    `nodes` are all machines of a cluster, of which `machine` is the first; else that machine alone.
    """

    machine: Machine
    already_existed: bool
    nodes: tuple[Machine, ...] = ()


def launch(
    session: Session, prepared: PreparedLaunch, *, wait: bool = True, confirm: Callable[[], None] = lambda: None
) -> LaunchResult:
    """Execute a plan and return the machine, which may have existed before.

    `confirm` is called once before a launch where the plan expected a machine that has ended since: it raises where the
    user does not agree. Holds the request's lock until the attempt is settled: a second `up` of the same request
    waits for that and returns the same machine. Raises what the provider raised, LaunchUncertain where a later `up` has
    to settle it, Unreachable for a new machine that ended while starting (it is removed then), BudgetRefused where a
    budget does not admit it, or the offer that is tried after one without capacity.
    """
    session.check_launchable()
    if prepared.override is not None:
        check_override(session, prepared.override)
    if prepared.is_restore:
        check_right_and_claim_owner(session, Ownership(prepared.name or "", prepared.plan.request.owner), "start")
    else:
        claim_owner(session, prepared.plan.request.owner)
    confirm = cache(confirm)  # an interrupted launch, and then the one after it, would each ask
    _sync_if_old(session, prepared)
    if session.is_locked(prepared.lock):
        session.report("another cloudgpu is busy with the same request; waiting for it")
    with session.lock(prepared.lock, wait=LOCK_TIMEOUT_S):
        clean_up(session)
        find = _find_cluster if prepared.plan.nodes > 1 else _find_or_resolve
        machine, already_existed = find(session, prepared, confirm)
        if machine is None:
            if prepared.existing is not None:
                sync_for_budgets(session, replace(prepared, existing=None))
                confirm()
            settle_abandoned_launches(session)
            try:
                machine = _launch_new(session, prepared)
            except ProviderUnavailable as error:
                error.next = RESOLVE_FIRST_REMEDY if prepared.new else error.next
                raise
        nodes: Sequence[Machine] = (machine,) if machine.cluster is None else living_nodes(session, machine)
        if already_existed and all(node.state in UP_STATES for node in nodes):
            withdraw_requests(session, nodes)
        abort_text = launched_text(machine)
        with on_abort(abort_text):
            nodes = [timers.ensure_timer(session, node, "launch") for node in nodes]
    with on_abort(abort_text):
        if not already_existed or any(node.state in UP_STATES for node in nodes):
            nodes = _wait_for_all(session, nodes, already_existed=already_existed, wait=wait)
        clean_up_local_files(session)
    return LaunchResult(nodes[0], already_existed, tuple(nodes))


def launch_document(
    session: Session, prepared: PreparedLaunch, result: LaunchResult, on_start: str | None = None
) -> UpDocument:
    """Return the answer of `up`: the machine, whether it existed before, the state of its `on_start`, and the plan."""
    return {
        "machine": build_machine_document(session, result.machine),
        "nodes": [build_machine_document(session, node) for node in result.nodes] if len(result.nodes) > 1 else [],
        "found": result.already_existed,
        "on_start": on_start,
        "differences": launch_differences(session, prepared, result.machine) if result.already_existed else [],
        "plan": plan_document(prepared.plan),
    }


def _sync_if_old(session: Session, prepared: PreparedLaunch, offer: Offer | None = None) -> None:
    """Sync the account, and those of the budgets, where the last sync is old; raise if the ledger may be incomplete.

    `offer` is what will be launched, None for the first one of the plan. The accounts of budgets are synced only where
    something may be launched.
    """
    machines = budget_subjects(prepared.plan, prepared.name, offer)
    may_launch = offer is not None or prepared.existing is None
    sync_before_admission(
        session,
        {machines[0].account: machines[0].region},
        lambda budget: may_launch and any(map(budget.scope.covers, machines)),
    )
    session.check_launchable()


def _find_or_resolve(
    session: Session, prepared: PreparedLaunch, confirm: Callable[[], None]
) -> tuple[Machine | None, bool]:
    """Return the machine of this request, and whether it was launched before, without interruption of the launch.

    One that is parked, or was interrupted and retains its disk, is returned as it is, rather than launching a second
    one. The machine of an interrupted launch is this request's, too. Its call is sent again only where no other machine
    exists, and the plan allows it.
    """
    machine = None if prepared.new else launched_machine(session.ledger.machines(), prepared.key, prepared.fingerprint)
    if machine is not None and machine.terminated_at is None:
        machine = refresh(session, machine)  # it may have ended since the last sync
        if machine.terminated_at is None:
            return machine, True
        machine = retention_records.query_and_record_retained(session, machine)
    if machine is not None and can_be_restored(machine) and not prepared.is_restore:
        return machine, True
    if machine is not None and not can_be_restored(machine):
        # Raises where its key cannot be used again.
        launched_machine(session.ledger.machines(), prepared.key, prepared.fingerprint)
    machine = unfinished_attempt(session.ledger.machines(), prepared.lock)
    if machine is None:
        return None, False
    if prepared.existing is not None:
        confirm()
    try:
        machine = settle(
            session, machine, deadline=session.clock() + SEND_TIMEOUT, replay=_is_in_plan(session, prepared, machine)
        )
    except NoCapacity as error:  # that proves that nothing was launched: the next offer is tried
        session.report(f"{machine.zone}: {error.message}")
        return _find_or_resolve(session, prepared, confirm)
    if machine.terminated_at is not None:
        return None, False
    return _set_planned_lease(session, prepared, machine), False


def _find_cluster(
    session: Session, prepared: PreparedLaunch, confirm: Callable[[], None]
) -> tuple[Machine | None, bool]:
    """Return a node of this request's cluster as `_find_or_resolve` returns the machine of a request."""
    if prepared.key is not None:  # raises where another request has used it since the plan
        launched_machine(session.ledger.machines(), prepared.key, prepared.fingerprint)
    deadline = session.clock() + SEND_TIMEOUT
    machine, already_existed = find_or_settle_node(
        session, prepared, confirm, deadline, is_in_plan=lambda node: _is_in_plan(session, prepared, node)
    )
    if machine is not None and not already_existed:
        for node in living_nodes(session, machine):
            _set_planned_lease(session, prepared, node)
    return machine, already_existed


def _is_in_plan(session: Session, prepared: PreparedLaunch, machine: Machine) -> bool:
    """Say whether the plan allows the machine of an interrupted launch.

    It has to be guarded, trusted as requested now, and no more expensive than the plan.
    """
    is_trusted = prepared.plan.request.requirements.trust.accepts(Trust(machine.trust or Trust.CLOUD))
    fits_price = machine.price is None or machine.price.nanos_per_hour <= prepared.plan.highest_price.nanos
    return is_trusted and fits_price and (prepared.no_guard or is_guarded(session, machine))


def _set_planned_lease(session: Session, prepared: PreparedLaunch, machine: Machine) -> Machine:
    """Give the machine of an interrupted launch the lease of the current plan.

    The lease ends no later than the machine's timer, where that cannot be changed.
    """
    provider = session.provider_of(machine)
    lease = timers.limit_lease_to_timer(session, machine, Lease(prepared.plan.expires, prepared.plan.renew_until))
    if not isinstance(provider, Taggable) or (machine.expires, machine.renew_until) == (
        iso(lease.expires),
        iso(lease.renew_until),
    ):
        return machine
    machine = refresh_lease(session, machine)
    return set_lease(session, machine, lease, "the interrupted launch was asked for again", prepared.override)


def _wait_for_all(session: Session, nodes: Sequence[Machine], *, already_existed: bool, wait: bool) -> list[Machine]:
    """Return the nodes once each is ready; where one of a new cluster does not come up, all are ended."""
    ready: list[Machine] = []
    try:
        for node in nodes:
            ready.append(_wait_until_ready(session, node, already_existed=already_existed, wait=wait))  # noqa: PERF401
        if wait and engine_of_machine(ready[0]) == "slurm":
            set_up_engine(session, ready)
    except (InvalidRequest, Unreachable, LedgerUnavailable, StopUnproved) as error:
        failed = nodes[len(ready)] if len(ready) < len(nodes) else None
        # Without a ledger for the engine's set-up, the nodes stay: the same `up` again goes on.
        nodes_stay = isinstance(error, AccessBlocked) or (failed is None and isinstance(error, LedgerUnavailable))
        if not already_existed and nodes[0].cluster is not None and not nodes_stay:
            # The end of the node that failed has been tried, except where its request is not valid.
            terminate_surviving_nodes(session, nodes, error, None if isinstance(error, InvalidRequest) else failed)
        raise
    return ready


def _wait_until_ready(session: Session, machine: Machine, *, already_existed: bool, wait: bool) -> Machine:
    try:
        machine = attach_volume(session, machine)
        return wait_until_ready(session, machine) if wait else machine
    except LedgerUnavailable as error:
        raise error if already_existed else end_unrecorded_launch(session, machine, error) from error
    except CloudgpuError as error:
        # A machine whose firewall blocks only this client may work, so it is kept.
        if isinstance(error, Unreachable) and not isinstance(error, AccessBlocked):
            if not already_existed:
                terminate_failed_launch(session, machine, error)
            raise
        if isinstance(error, InvalidRequest) and machine.cluster is not None and not already_existed:
            raise  # all nodes are ended
        billed_clause = billed_text(machine, " and billed meanwhile")
        hint = f"{machine.name} is launched{billed_clause}; to end it: cloudgpu down {command_name(machine)}"
        error.next = f"{error.next} {hint}" if error.next else hint
        raise


def _launch_new(session: Session, prepared: PreparedLaunch) -> Machine:
    """Try the offers in order; each attempt is recorded before it is sent and settled before the next."""
    refusals = Refusals(prepared.candidates.any_account)
    # The plan expected an existing machine, which has ended: its offers may be that machine's, at the price of then.
    if prepared.resolved_offer is None:
        prepared = _with_current_offers(session, prepared)
    synced_accounts = {prepared.plan.offer.configuration.account}
    for offer in _remaining_offers(prepared):
        if refusals.rules_out(offer):
            continue
        if offer.configuration.account not in synced_accounts:
            synced_accounts.add(offer.configuration.account)
            _sync_if_old(session, prepared, offer)  # before anything is sent to another account
        try:
            offers_by_node = node_offers(prepared.plan.nodes, offer, prepared.offers)
            resolved_offers = [
                (node_offer, _resolve_offer(session, prepared, node_offer)) for node_offer in offers_by_node
            ]
            if not prepared.no_guard and needs_reaper_run(
                prepared.candidates.for_offer(offer).provider, *resolved_offers[0]
            ):
                check_launch_guarded(session, offer)  # the scheduled run may have stopped since the plan
        except refusals.errors_before_sending as error:  # known before anything is sent
            session.report(refusals.add(offer, error))
            continue
        if is_forgotten(session, offer.configuration.account):
            session.report(
                f"account {offer.configuration.account} was forgotten: from this launch on, it is synced again"
            )
        attempts = record_intents(session, prepared, resolved_offers)
        session.report(launch_message(attempts))
        try:
            provider = session.provider(offer.configuration.account)
            send_all(session, provider, attempts, deadline=session.clock() + SEND_TIMEOUT)
        except refusals.errors_after_sending as error:
            session.report(refusals.add(offer, error, was_sent=True))
            continue
        machine = session.ledger.machine(attempts[0].machine)
        if machine is None:
            raise ProviderUnavailable("The ledger lost the machine that was just launched.", field="ledger")
        return machine
    raise _all_refused_error(prepared, refusals.first_error)


def _with_current_offers(session: Session, prepared: PreparedLaunch) -> PreparedLaunch:
    """Return the plan with constrained requests and the offers of now that cost no more than planned.

    Raises NoCapacity where there is none, and what the query for them raises.
    """
    found = find_offers(session, prepared.candidates, None)
    runnable, planned_price = filter_runnable(prepared.template, found.offers)[0], prepared.plan.highest_price
    offers = tuple(offer for offer in runnable if offer.price.per_hour <= planned_price)
    if not offers:
        price = runnable[0].price.per_hour
        raise NoCapacity(
            f"The machine of this request has ended, and another one costs more than in the plan: {price.text(4)} an "
            f"hour, and not {planned_price.text(4)}.",
            field="price",
            value=f"{price.dollars:f}",
            next="Run the same up again: it shows the plan with that price.",
        )
    candidates = with_client_ssh_ingress(session, found.candidates)
    return replace(prepared, candidates=candidates, offers=offers)


def _all_refused_error(prepared: PreparedLaunch, first_error: CloudgpuError | None) -> CloudgpuError:
    """Return the first refusal, with the number of refused offers and a remedy."""
    if first_error is None:
        return NoCapacity("There is no offer that fits.", field="offer")
    offers, requirements = _remaining_offers(prepared), prepared.plan.request.requirements
    if (isinstance(first_error, NoCapacity) or prepared.candidates.any_account) and len(offers) > 1:
        first_error.message = (
            f"None of the {len(offers)} offers that fit could be launched; the first: {first_error.message}"
        )
    if first_error.next is None:
        hint = (
            ", or allow --or-on-demand" if requirements.market is Market.SPOT and not requirements.or_on_demand else ""
        )
        first_error.next = f"Run it again later, ask for another --gpu or --region{hint}."
    return first_error


def _remaining_offers(prepared: PreparedLaunch) -> Sequence[Offer]:
    """Return the offers to try, in order, without those that the plan skipped."""
    if prepared.plan.offer not in prepared.offers:
        return prepared.offers
    return prepared.offers[prepared.offers.index(prepared.plan.offer) :]


def _resolve_offer(session: Session, prepared: PreparedLaunch, offer: Offer) -> Resolved:
    """Return what the call of this offer needs, as resolved with the plan, or resolve it now."""
    if prepared.resolved_offer is not None and prepared.resolved_offer.offer == offer:
        return prepared.resolved_offer.resolved
    candidate = prepared.candidates.for_offer(offer)
    return resolve(session.provider(candidate.account), candidate.request, offer)
