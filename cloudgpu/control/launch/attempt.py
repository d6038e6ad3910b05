"""Makes the launch attempts of a plan, one for each node: saved and recorded, then sent.

Either all nodes are launched, or those that were launched are ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

from cloudgpu.access.ssh.client_files import HostKey, client_key, new_host_key
from cloudgpu.config.templates.render import DRIVER_TEMPLATE, driver_parts, parts_for_offer
from cloudgpu.control.budgets.admission import admit, append_if_admitted, check_credit, read_credit
from cloudgpu.control.clusters.together import reload_machines
from cloudgpu.control.inventory.settle import NOT_LAUNCHED, send_saved_call, wait_for_cleanup
from cloudgpu.control.inventory.shared import delete_unused_shared
from cloudgpu.control.inventory.unrecorded_termination import EndedUnrecorded, end_unrecorded_launch
from cloudgpu.control.lifecycle.lifecycle import end_locked
from cloudgpu.control.network.host_keys import generates_host_key, pin_launch_key
from cloudgpu.control.pricing.price_history import on_demand_of
from cloudgpu.control.session.identity import ensure_identity
from cloudgpu.control.session.session import Session
from cloudgpu.core.events.bodies import Outcome
from cloudgpu.core.events.launch_events import launch_intended, launch_settled
from cloudgpu.core.events.observations import instance_observed
from cloudgpu.core.launch.attempt import attempt_of, launch_name, next_attempt_number
from cloudgpu.core.launch.plan import stop_effect
from cloudgpu.core.launch.plan_cost import attached_cost_of, machine_of_launch
from cloudgpu.core.model.cluster import node_keys, request_of_node
from cloudgpu.core.model.launch import Attempt, Boot, BootPart
from cloudgpu.core.model.machine import Machine, has_retained_resources, not_none, sync_subject_of
from cloudgpu.core.model.offers import Offer, Price
from cloudgpu.core.policies.guards import only_warns_to_keep_disk, subject_of_offer
from cloudgpu.core.policies.policy import agent_policy
from cloudgpu.core.values.naming import derived_key, lock_name
from cloudgpu.errors import CloudgpuError, LedgerUnavailable, ProviderUnavailable, StopUnproved
from cloudgpu.ledger import saved_calls as saved
from cloudgpu.providers.abilities import KnowsHostKeys, Resolved, guards_record
from cloudgpu.providers.attached_costs import added_costs
from cloudgpu.providers.cluster_abilities import LaunchesTogether
from cloudgpu.underway import on_abort

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from cloudgpu.config.templates.find import Template
    from cloudgpu.control.launch.candidates import Candidate
    from cloudgpu.control.launch.plan import PreparedLaunch
    from cloudgpu.core.events.log import Draft
    from cloudgpu.core.model.facts import AttachedCost
    from cloudgpu.core.model.identity import AccountIdentity
    from cloudgpu.core.model.records import GuardsRecord
    from cloudgpu.ledger.log.base import View
    from cloudgpu.providers.base import Provider

ErrorTypes = tuple[type[CloudgpuError], ...]


@dataclass(frozen=True, slots=True)
class _LaunchFacts:
    """What the record and the call of a launch attempt need; looked up before the ledger is locked.

    `resolved` is what the provider looked up for the call; `identity` is that of the account; `boot` is what the
    machine gets at its first boot; `on_demand` is the price of the same machine on demand.
    """

    candidate: Candidate
    offer: Offer
    resolved: Resolved
    identity: AccountIdentity
    boot: Boot
    attached_costs: Sequence[AttachedCost]
    on_demand: Price | None
    guards: GuardsRecord  # its safeguards, and whether --no-guard waived scheduled runs


def record_intents(
    session: Session, prepared: PreparedLaunch, node_offers: Sequence[tuple[Offer, Resolved]]
) -> tuple[Attempt, ...]:
    """Save the calls and record the intents, in this order; return the attempts to send, one for each node.

    All are recorded in one transaction, in which the budgets have to admit all of them. `node_offers` has the offer of
    each node, with what was resolved for it: on-premises, every node has its own host; elsewhere all are the same.
    """
    facts = {offer: _gather_facts(session, prepared, offer, resolved) for offer, resolved in dict(node_offers).items()}
    attempts = list[Attempt]()
    candidate = facts[node_offers[0][0]].candidate
    credit, lease = read_credit(candidate.provider), timedelta(seconds=candidate.request.lease_s)

    def build_events(view: View) -> Sequence[Draft]:
        attempts[:] = _attempts(session, prepared, [facts[offer] for offer, _ in node_offers], view)
        for attempt in attempts:
            saved.save(session.home.attempts, attempt)
        events = [
            launch_intended(
                attempt,
                prepared.fingerprint,
                stop_effect(attempt.request, attempt.offer),
                session.clock(),
                costs=facts[attempt.offer].attached_costs,
                on_demand=facts[attempt.offer].on_demand,
                licence=facts[attempt.offer].resolved.licence,
                identity=facts[attempt.offer].identity,
                guards=facts[attempt.offer].guards,
            )
            for attempt in attempts
        ]
        # the planned machines, as budgets count them
        first_node, *other_nodes = [machine_of_launch(event, view.machine(event.subject)) for event in events]
        check_credit(session, view, credit, [first_node, *other_nodes], sync_subject_of(first_node), lease)
        cluster = attempts[0].request.cluster
        cluster_name = cluster.name if cluster else ""
        return [
            *events,
            *admit(session, view, first_node, prepared.override, others=other_nodes, of_cluster=cluster_name),
        ]

    try:
        append_if_admitted(session, build_events, prepared.remedy(session.clock()))
    except BaseException:
        for attempt in attempts:
            if (recorded := session.ledger.machine(attempt.machine)) is None or recorded.token != attempt.token:
                saved.delete(session.home.attempts, attempt.token)
        raise
    return tuple(attempts)


def _gather_facts(session: Session, prepared: PreparedLaunch, offer: Offer, resolved: Resolved) -> _LaunchFacts:
    """Return what an attempt at this offer needs, looked up before the ledger is locked."""
    candidate, configuration = prepared.candidates.for_offer(offer), offer.configuration
    return _LaunchFacts(
        candidate,
        offer,
        resolved,
        ensure_identity(session, configuration.account, configuration.region),
        _boot(session, prepared.template, candidate, offer, resolved),
        list(map(attached_cost_of, added_costs(offer, resolved))),
        on_demand_of(session, offer, prepared.offers),
        guards_record(candidate.provider, offer, resolved, waived=prepared.no_guard),
    )


def _attempts(session: Session, prepared: PreparedLaunch, facts: Sequence[_LaunchFacts], view: View) -> list[Attempt]:
    """Return the attempt of each machine, in the order of the nodes."""
    key, number = _launch_key(prepared, view)
    name = launch_name(prepared.name, key, prepared.plan.nodes, view.names())
    attempts, ledger_position = list[Attempt](), view.head()[0]  # the number of the ledger's last entry
    for node, node_facts in enumerate(facts):
        request = request_of_node(replace(node_facts.candidate.request, key=key, name=name), view.id, node)
        attempt = attempt_of(
            request, node_facts.offer, node_facts.boot, number, (view.id, ledger_position), session.clock()
        )
        attempts.append(replace(attempt, call=node_facts.resolved.call, identity=node_facts.identity))
    return attempts


def _boot(session: Session, template: Template, candidate: Candidate, offer: Offer, resolved: Resolved) -> Boot:
    """Return what a machine gets at its first boot: packages and scripts, the agent with its policy, and keys."""
    from cloudgpu.agent.program import own_meter_source, source

    host_key, user_key = _host_key(session, offer, resolved), client_key(session.home.keys)
    now, policy, request = session.clock(), candidate.policy, candidate.request
    renew_until, configuration = now + timedelta(seconds=request.renew_s), offer.configuration
    # the agent spares it: it would lose its disk, which the policy keeps
    is_exempt = only_warns_to_keep_disk(subject_of_offer(configuration, request.setup), policy)
    is_node = request.cluster is not None
    driver: tuple[BootPart, ...] = ()
    if resolved.driver is not None and template.name != DRIVER_TEMPLATE:
        driver = driver_parts(resolved.driver, session.template_paths(), session.settings.templates, request, offer)
    return Boot(
        template=template.name,
        parts=(*driver, *parts_for_offer(template, request, offer)),
        jupyter=template.jupyter,
        agent_source=source(),
        client_public_keys=(user_key.public_line,),
        host_public_key=host_key.public_line,
        host_private_key=host_key.private_pem,
        policy={}
        if policy is None
        else agent_policy(
            policy, now, renew_until, stoppable=configuration.stoppable, keeps_disk=is_exempt, is_node=is_node
        ),
        own_meter_source=own_meter_source(),
    )


def _host_key(session: Session, offer: Offer, resolved: Resolved) -> HostKey:
    """Return the host key to pin: that of an on-premises host, else a new one that the launch gives the machine.

    An empty one where the machine generates its own: it is read through the API before the first connection.
    """
    if generates_host_key(resolved.call):
        return HostKey("", "")
    provider = session.provider(offer.configuration.account)
    public_key = provider.host_key(offer.configuration) if isinstance(provider, KnowsHostKeys) else None
    return new_host_key() if public_key is None else HostKey(public_key, "")


def _launch_key(prepared: PreparedLaunch, view: View) -> tuple[str, int]:
    """Return the launch key and the number of the attempt; a request whose earlier machine existed gets a new key.

    That is derived with the next `generation`. A key that the user gave (`prepared.key`) stays.
    """
    generation = 1
    while True:
        key = derived_key(prepared.fingerprint, generation) if prepared.key is None else prepared.key
        earlier_machines = [
            machine for node_key in node_keys(key, prepared.plan.nodes) for machine in view.launched(node_key)
        ]
        has_existed = any(
            machine.launch_status in ("made", "open") or has_retained_resources(machine) for machine in earlier_machines
        )
        if prepared.key is not None or not has_existed:
            return key, next_attempt_number(earlier_machines)
        generation += 1


def send_all(
    session: Session,
    provider: Provider,
    attempts: Sequence[Attempt],
    *,
    deadline: datetime,
    closing_errors: ErrorTypes = NOT_LAUNCHED,
) -> None:
    """Send the saved calls of a launch to this provider, and record their outcomes. The caller holds the launch lock.

    Several machines are launched in one call where the provider supports that, else one after another: after the first
    refusal those that exist are ended, and the rest is not sent. Raises what the provider raised. `closing_errors` are
    those that prove that no machine was made: after one, all attempts are closed.
    """
    if len(attempts) == 1:
        send_saved_call(session, provider, attempts[0], deadline=deadline, closing_errors=closing_errors)
    elif isinstance(provider, LaunchesTogether):
        _send_in_one_call(session, provider, attempts, deadline, closing_errors)
    else:
        _send_each(session, provider, attempts, deadline, closing_errors)


def _send_each(
    session: Session, provider: Provider, attempts: Sequence[Attempt], deadline: datetime, closing_errors: ErrorTypes
) -> None:
    recorded, launched = _recorded_machines(session, attempts), list[Machine]()
    try:
        for node, attempt in enumerate(attempts):
            try:
                instance = send_saved_call(session, provider, attempt, deadline=deadline, closing_errors=closing_errors)
            except closing_errors as error:
                name = attempt.request.name
                _close_attempts(session, attempts[node + 1 :], "void", f"{name} was refused, so it was not sent")
                end_nodes(session, launched, f"{name} could not be launched: {error.message}")
                _delete_unused_resources(session, attempt)
                raise
            launched.append(recorded[attempt.machine]._replace(provider_id=instance.id))
    except (LedgerUnavailable, StopUnproved) as error:  # `send_saved_call` has tried to end the one launched last
        if _ledger_error(error) is None:
            raise
        _end_all_unrecorded(session, launched, error)


def _recorded_machines(session: Session, attempts: Sequence[Attempt]) -> dict[str, Machine]:
    """Return the records of these attempts by id. Read before their calls: after them, the ledger may be away."""
    return {attempt.machine: not_none(session.ledger.machine(attempt.machine)) for attempt in attempts}


def _send_in_one_call(
    session: Session,
    provider: LaunchesTogether,
    attempts: Sequence[Attempt],
    deadline: datetime,
    closing_errors: ErrorTypes,
) -> None:
    first = attempts[0]
    for attempt in attempts:
        pin_launch_key(session, attempt)
    wait_for_cleanup(session, deadline)
    session.ledger.check_lock(lock_name(first.request.key))  # else another client may have closed this attempt
    recorded = _recorded_machines(session, attempts)
    cluster = first.request.cluster
    name = cluster.name if cluster else first.request.name
    with on_abort(f"The launch of {name} may have been accepted: the next cloudgpu up or cloudgpu reap finds out."):
        try:
            instances = provider.launch_together(attempts, deadline=deadline)
        except closing_errors as error:
            _close_attempts(session, attempts, "refused", error.message)
            _delete_unused_resources(session, first)
            raise
        except ProviderUnavailable as error:
            error.next = error.next or "Run the same up again: it first finds out what became of this launch."
            raise
        now, why = session.clock(), "the provider accepted it"
        settled_events = [launch_settled(attempt.machine, attempt.token, "made", why, now) for attempt in attempts]
        try:
            session.ledger.append([*settled_events, *(instance_observed(instance, now) for instance in instances)])
        except LedgerUnavailable as error:  # machines that are not recorded would cost without anybody knowing
            pairs = zip(attempts, instances, strict=False)
            launched = [recorded[attempt.machine]._replace(provider_id=instance.id) for attempt, instance in pairs]
            _end_all_unrecorded(session, launched, error)


def _end_all_unrecorded(session: Session, launched: Sequence[Machine], error: CloudgpuError) -> NoReturn:
    """End every machine of a launch that the ledger cannot record, and raise what became of them.

    `error` is the ledger's, or what became of the machine that was launched last: that it could not be ended comes
    before the failures of the others.
    """
    failures: list[CloudgpuError] = [error] if isinstance(error, StopUnproved) else []
    outcome, reason = error, not_none(_ledger_error(error))
    for machine in launched:
        try:
            outcome = end_unrecorded_launch(session, machine, reason)
        except CloudgpuError as end_error:  # the others have to be ended all the same
            session.report(end_error.message)
            failures.append(end_error)
    raised = failures[0] if failures else outcome
    if raised is error:
        raise raised  # with the cause that it has
    raise raised from error


def _ledger_error(error: BaseException | None) -> LedgerUnavailable | None:
    """Return why the ledger could not be written when this error was raised; None if that is not its cause."""
    found = None
    while error is not None and (found is None or isinstance(found, EndedUnrecorded)):
        found = error if isinstance(error, LedgerUnavailable) else found
        error = error.__cause__
    return found


def _close_attempts(session: Session, attempts: Sequence[Attempt], outcome: Outcome, why: str) -> None:
    """Record that these attempts created no machine, and delete their saved calls."""
    now = session.clock()
    session.ledger.append([launch_settled(attempt.machine, attempt.token, outcome, why, now) for attempt in attempts])
    for attempt in attempts:
        saved.delete(session.home.attempts, attempt.token)


def _delete_unused_resources(session: Session, attempt: Attempt) -> None:
    """Delete shared resources that were made for an attempt and that no machine uses."""
    machine = session.ledger.machine(attempt.machine)
    if machine is not None:
        delete_unused_shared(session, machine)


def end_nodes(session: Session, machines: Sequence[Machine], why: str) -> None:
    """End those machines of an incomplete cluster that exist, by the ledger. The caller holds the launch lock.

    All are tried. Raises the first error where one could not be ended: then nothing else is launched, and the next run
    of the reaper ends it.
    """
    failures: list[CloudgpuError] = []
    for machine in reversed(reload_machines(session, machines)):
        if machine.terminated_at is not None:
            continue
        try:
            end_locked(session, machine, why=why, launch_failed=True)
        except CloudgpuError as error:
            session.report(f"{machine.name} could not be ended ({error.message.rstrip('.')}). cloudgpu reap ends it.")
            failures.append(error)
    if failures:
        raise failures[0]
