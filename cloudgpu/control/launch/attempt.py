"""Makes an attempt of a plan: its key, name, tags and boot data; saved and recorded before it is sent."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from cloudgpu.agent import own_source
from cloudgpu.agent import source as agent_source
from cloudgpu.config.templates.render import DRIVER_TEMPLATE, driver_parts, parts_at
from cloudgpu.control.access.reach import client_key
from cloudgpu.control.budgets.admission import carried, decided
from cloudgpu.control.launch.budget_preview import way_of
from cloudgpu.control.network.host_keys import makes_its_own
from cloudgpu.control.pricing.attached_costs import extras_of
from cloudgpu.control.pricing.price_history import on_demand_of
from cloudgpu.control.session.identity import identity_of
from cloudgpu.control.session.session import Session
from cloudgpu.core.events.launch_lines import launch_intended
from cloudgpu.core.launch.plan import stop_means
from cloudgpu.core.launch.plan_cost import beside_entry, row_of
from cloudgpu.core.model import instances
from cloudgpu.core.model.launch import Attempt, Boot, LaunchRequest, Part
from cloudgpu.core.model.machine import Machine, stays
from cloudgpu.core.model.offers import Offer
from cloudgpu.core.policies.endings import is_spared, of_offer
from cloudgpu.core.policies.policy import for_agent
from cloudgpu.core.values.naming import derived_key, machine_id, made_name, tag_value, token
from cloudgpu.core.values.times import epoch
from cloudgpu.errors import InvalidRequest
from cloudgpu.ledger import saved_calls as saved
from cloudgpu.providers.abilities import KnowsHostKeys, Resolved, guarding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudgpu.access.keys import HostKey
    from cloudgpu.config.templates.find import Template
    from cloudgpu.control.launch.candidates import Candidate
    from cloudgpu.control.launch.plan import Prepared
    from cloudgpu.core.events.log import Draft
    from cloudgpu.ledger.log.base import View


def record(session: Session, prepared: Prepared, offer: Offer, resolved: Resolved) -> Attempt:
    """Save the call and write the intent, in this order, and return the attempt that is to be sent."""
    identity = identity_of(session, offer.available.account, offer.available.region)
    at = prepared.candidates.of(offer)
    boot = _boot(session, prepared.template, at, offer, resolved)
    asked = at.request
    extras, on_demand = extras_of(offer, resolved), on_demand_of(session, offer, prepared.offers)
    made: list[Attempt] = []

    def decision(view: View) -> Sequence[Draft]:
        key, number = _key(prepared, view)
        name = _name(prepared, key, view)
        request = replace(asked, key=key, name=name)
        attempt = replace(_attempt(session, view, request, offer, number, boot), call=resolved.call, identity=identity)
        saved.save(session.home.attempts, attempt)
        made.append(attempt)
        means = stop_means(request, offer)
        line = launch_intended(
            attempt,
            prepared.fingerprint,
            means,
            session.clock(),
            beside=list(map(beside_entry, extras)),
            on_demand=on_demand,
            licence=resolved.licence,
            identity=identity,
            guards=guarding(at.provider, resolved).to_json(),
        )
        return [line, *carried(session, view, row_of(line, view.machine(attempt.machine)), prepared.override)]

    try:
        decided(session, decision, way_of(session, prepared))
    except BaseException:
        for attempt in made:
            if (there := session.ledger.machine(attempt.machine)) is None or there.token != attempt.token:
                saved.forget(session.home.attempts, attempt.token)
        raise
    return made[0]


def _attempt(session: Session, view: View, request: LaunchRequest, offer: Offer, number: int, boot: Boot) -> Attempt:
    now = session.clock()
    expires = now.replace(microsecond=0) + timedelta(seconds=request.lease_s)
    renew_until = now.replace(microsecond=0) + timedelta(seconds=request.renew_s)
    machine = machine_id(view.id, request.key)
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
        return prepared.key, _next_attempt(view.launched(prepared.key))
    generation = 1
    while True:
        key = derived_key(prepared.fingerprint, generation)
        rows = view.launched(key)
        if not any(row.launch_status in ("made", "open") or stays(row) for row in rows):
            return key, _next_attempt(rows)
        generation += 1


def _next_attempt(machines: list[Machine]) -> int:
    return max((machine.attempt_number for machine in machines), default=0) + 1


def _name(prepared: Prepared, key: str, view: View) -> str:
    taken = {name for name, of in view.names() if of != key}
    if prepared.name is None:
        return made_name(key, taken)
    if prepared.name in taken:
        raise InvalidRequest(
            f"A machine called {prepared.name} is already there, launched by another request.",
            field="--name",
            value=prepared.name,
            next=f"Choose another --name, use it as it is (cloudgpu show {prepared.name}), "
            f"or end it first: cloudgpu down {prepared.name}",
        )
    return prepared.name
