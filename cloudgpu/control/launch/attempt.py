"""Makes an attempt of a plan: its key, name, tags and boot data; saved and recorded before it is sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from cloudgpu.agent import own_source
from cloudgpu.agent import source as agent_source
from cloudgpu.config.templates.render import DRIVER_TEMPLATE, driver_parts, parts_at
from cloudgpu.control.access.reach import client_key
from cloudgpu.control.budgets.admission import admit, append_if_admitted
from cloudgpu.control.budgets.credit import check_credit, read_credit
from cloudgpu.control.launch.budget_preview import budget_remedy
from cloudgpu.control.network.host_keys import makes_its_own
from cloudgpu.control.pricing.attached_costs import extras_of
from cloudgpu.control.pricing.price_history import on_demand_of
from cloudgpu.control.session.guarding import needs_guard
from cloudgpu.control.session.identity import registered_identity
from cloudgpu.control.session.session import Session
from cloudgpu.core.events.launch_lines import launch_intended
from cloudgpu.core.launch.plan import stop_means
from cloudgpu.core.launch.plan_cost import beside_entry, row_of
from cloudgpu.core.model import instances
from cloudgpu.core.model.cluster import cluster_name, node_id, node_key, node_name, request_of_node
from cloudgpu.core.model.launch import Attempt, Boot, LaunchRequest, Part
from cloudgpu.core.model.machine import Machine, has_retained_resources, scope_of_row
from cloudgpu.core.model.offers import Offer, Price
from cloudgpu.core.policies.guards import is_spared, of_offer
from cloudgpu.core.policies.policy import for_agent
from cloudgpu.core.values.naming import derived_key, machine_id, made_name, tag_value, token
from cloudgpu.core.values.times import epoch
from cloudgpu.errors import InvalidRequest
from cloudgpu.ledger import saved_calls as saved
from cloudgpu.providers.abilities import KnowsHostKeys, Resolved, guarding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cloudgpu.access.keys import HostKey
    from cloudgpu.config.templates.find import Template
    from cloudgpu.control.launch.candidates import Candidate
    from cloudgpu.control.launch.plan import Prepared
    from cloudgpu.core.events.log import Draft
    from cloudgpu.core.model.facts import AttachedCost
    from cloudgpu.core.model.identity import AccountIdentity
    from cloudgpu.core.model.records import GuardsRecord
    from cloudgpu.ledger.log.base import View


@dataclass(frozen=True, slots=True)
class _Ready:
    """What is found out for an attempt at an offer before the ledger is locked."""

    at: Candidate
    offer: Offer
    resolved: Resolved
    identity: AccountIdentity
    boot: Boot
    beside: Sequence[AttachedCost]
    on_demand: Price | None


def record(session: Session, prepared: Prepared, places: Sequence[tuple[Offer, Resolved]]) -> tuple[Attempt, ...]:
    """Save the call and write the intent, in this order, and return the attempt that is to be sent.

    One for each node of a cluster: all are saved, then written in one transaction that asks the budgets for all of
    them. `places` has one for each, an offer and what was looked up for it: on own machines every node has a host of
    its own, elsewhere all are the same.
    """
    each = {offer: _ready(session, prepared, offer, resolved) for offer, resolved in dict(places).items()}
    made = list[Attempt]()
    account = each[places[0][0]].at
    credit, lease = read_credit(account.provider), timedelta(seconds=account.request.lease_s)

    def decision(view: View) -> Sequence[Draft]:
        made[:] = _attempts(session, prepared, [each[offer] for offer, _ in places], view)
        for attempt in made:
            saved.save(session.home.attempts, attempt)
        lines = [
            launch_intended(
                attempt,
                prepared.fingerprint,
                stop_means(attempt.request, attempt.offer),
                session.clock(),
                beside=each[attempt.offer].beside,
                on_demand=each[attempt.offer].on_demand,
                licence=each[attempt.offer].resolved.licence,
                identity=each[attempt.offer].identity,
                guards=_guards(prepared, each[attempt.offer]),
            )
            for attempt in made
        ]
        first, *others = [row_of(line, view.machine(line.subject)) for line in lines]
        check_credit(session, view, credit, [first, *others], scope_of_row(first), lease)
        cluster = made[0].request.cluster
        named = cluster.name if cluster else ""
        return [*lines, *admit(session, view, first, prepared.override, others=others, of_cluster=named)]

    try:
        append_if_admitted(session, decision, budget_remedy(session, prepared))
    except BaseException:
        for attempt in made:
            if (there := session.ledger.machine(attempt.machine)) is None or there.token != attempt.token:
                saved.delete(session.home.attempts, attempt.token)
        raise
    return tuple(made)


def _guards(prepared: Prepared, ready: _Ready) -> GuardsRecord:
    """Return what guards a machine, and whether it was agreed that no run from outside does."""
    provider, resolved = ready.at.provider, ready.resolved
    found = guarding(provider, resolved).to_json()
    return {**found, "waived": True} if prepared.no_guard and needs_guard(provider, ready.offer, resolved) else found


def _ready(session: Session, prepared: Prepared, offer: Offer, resolved: Resolved) -> _Ready:
    at, item = prepared.candidates.of(offer), offer.available
    return _Ready(
        at,
        offer,
        resolved,
        registered_identity(session, item.account, item.region),
        _boot(session, prepared.template, at, offer, resolved),
        list(map(beside_entry, extras_of(offer, resolved))),
        on_demand_of(session, offer, prepared.offers),
    )


def _attempts(session: Session, prepared: Prepared, each: Sequence[_Ready], view: View) -> Iterator[Attempt]:
    """Yield the attempt of each machine, in the order of the nodes."""
    key, number = _key(prepared, view)
    name = _name(prepared, key, view)
    for node, ready in enumerate(each):
        request = request_of_node(replace(ready.at.request, key=key, name=name), view.id, node)
        attempt = _attempt(session, view, request, ready.offer, number, ready.boot)
        yield replace(attempt, call=ready.resolved.call, identity=ready.identity)


def _attempt(session: Session, view: View, request: LaunchRequest, offer: Offer, number: int, boot: Boot) -> Attempt:
    now = session.clock()
    expires = now.replace(microsecond=0) + timedelta(seconds=request.lease_s)
    renew_until = now.replace(microsecond=0) + timedelta(seconds=request.renew_s)
    cluster = request.cluster
    machine = node_id(cluster) if cluster else machine_id(view.id, request.key)
    tags = {
        instances.TAG_ID: machine,
        instances.TAG_NAME: tag_value(request.name),
        instances.TAG_LEDGER: view.id,
        instances.TAG_SEQ: str(view.head()[0]),
        instances.TAG_KEY: request.key,
        instances.TAG_OWNER: tag_value(request.owner),
        instances.TAG_PROJECT: tag_value(request.project),
        instances.TAG_POLICY: tag_value(request.policy),
        instances.TAG_EXPIRES: epoch(expires),
        instances.TAG_RENEW_UNTIL: epoch(renew_until),
    }
    if cluster is not None:
        tags |= {instances.TAG_CLUSTER: cluster.tag(), instances.TAG_NODE: str(cluster.node)}
    return Attempt(
        token=token(view.id, request.key, number),
        number=number,
        machine=machine,
        ledger=view.id,
        request=request,
        offer=offer,
        tags=tags,
        boot=boot,
        made_at=now,
        expires=expires,
        renew_until=renew_until,
    )


def _boot(session: Session, template: Template, at: Candidate, offer: Offer, resolved: Resolved) -> Boot:
    host = _host_key(session, offer, resolved)
    now, policy, request = session.clock(), at.policy, at.request
    until, item = now + timedelta(seconds=request.renew_s), offer.available
    spared = is_spared(of_offer(item, request.setup), policy)
    node = request.cluster is not None
    driver: tuple[Part, ...] = ()
    if resolved.driver is not None and template.name != DRIVER_TEMPLATE:
        driver = driver_parts(resolved.driver, session.template_paths(), session.settings.templates, request, offer)
    return Boot(
        template=template.name,
        parts=(*driver, *parts_at(template, request, offer)),
        jupyter=template.jupyter,
        agent_source=agent_source(),
        user="",
        client_public_keys=(client_key(session).public_line,),
        host_public_key=host.public_line,
        host_private_key=host.private_pem,
        policy={}
        if policy is None
        else for_agent(policy, now, until, stoppable=item.stoppable, spared=spared, node=node),
        own_source=own_source(),
    )


def _host_key(session: Session, offer: Offer, resolved: Resolved) -> HostKey:
    """Return the key to pin: the machine's own where it has one already, else a new one that the launch gives it.

    An empty one where the image takes none: it is read through the API before the first connection.
    """
    from cloudgpu.access.keys import HostKey, new_host_key

    if makes_its_own(resolved.call):
        return HostKey("", "")
    provider = session.provider(offer.available.account)
    own = provider.host_key(offer.available) if isinstance(provider, KnowsHostKeys) else None
    return new_host_key() if own is None else HostKey(own, "")


def _key(prepared: Prepared, view: View) -> tuple[str, int]:
    """Return the launch key and the number of the attempt: a new generation after a machine that lived."""
    if prepared.key is not None:
        return prepared.key, _next_attempt(_launched(prepared, prepared.key, view))
    generation = 1
    while True:
        key = derived_key(prepared.fingerprint, generation)
        rows = _launched(prepared, key, view)
        if not any(machine.launch_status in ("made", "open") or has_retained_resources(machine) for machine in rows):
            return key, _next_attempt(rows)
        generation += 1


def _launched(prepared: Prepared, key: str, view: View) -> list[Machine]:
    """Return what was launched under a key: of a cluster all nodes."""
    if prepared.plan.nodes == 1:
        return view.launched(key)
    return [row for node in range(prepared.plan.nodes) for row in view.launched(node_key(key, node))]


def _next_attempt(machines: list[Machine]) -> int:
    return max((machine.attempt_number for machine in machines), default=0) + 1


def _name(prepared: Prepared, key: str, view: View) -> str:
    """Return what a machine or a cluster is called: neither has the name of one that is there, nor has a node."""
    own = {key, *(node_key(key, node) for node in range(prepared.plan.nodes))}
    taken = {name for name, of in view.names() if of not in own}
    taken |= {cluster_name(name) for name, of in view.names() if of not in own and of.endswith("--0")}
    if prepared.name is None:
        return made_name(key, taken)
    nodes = [node_name(prepared.name, node) for node in range(prepared.plan.nodes)] if prepared.plan.nodes > 1 else []
    found = next((name for name in (prepared.name, *nodes) if name in taken), None)
    if found is None:
        return prepared.name
    raise InvalidRequest(
        f"A machine called {found} is already there, launched by another request.",
        field="--name",
        value=prepared.name,
        next=f"Choose another --name, use it as it is (cloudgpu show {found}), or end it first: cloudgpu down {found}",
    )
