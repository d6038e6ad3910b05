"""Finds machines while the ledger cannot be read: by the tags at their clouds, and by the saved calls of this home."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from cloudgpu.control.inventory.sync_accounts import list_accounts
from cloudgpu.control.outage.outage import continue_without_ledger
from cloudgpu.control.session.accounts import used_accounts
from cloudgpu.control.session.session import Session, find_all_nodes
from cloudgpu.control.team.roles import last_role
from cloudgpu.core.events.bodies import Able
from cloudgpu.core.events.launch_lines import launch_intended, launch_settled, machine_adopted
from cloudgpu.core.events.log import Draft, EventSummary
from cloudgpu.core.events.observations import instance_observed
from cloudgpu.core.events.projection import machine_of
from cloudgpu.core.launch.attempt import attempt_from_json
from cloudgpu.core.launch.plan import stop_effect
from cloudgpu.core.model.identity import AccountElsewhere, Unanswered
from cloudgpu.core.model.instances import TAG_ID, TAG_LEDGER, Instance, State
from cloudgpu.core.model.launch import Attempt
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.times import iso
from cloudgpu.errors import CloudgpuError, InstanceNotFound, InvalidRequest, LedgerUnavailable, NotReachableHere
from cloudgpu.ledger.log.storage_errors import LedgerAway
from cloudgpu.providers.abilities import Pausable, Resolved, guarding, keeps_images


@dataclass(frozen=True, slots=True)
class Tagged:
    """The machines of this ledger that were found without it, what did not answer, and what this home has launched."""

    rows: list[Machine]
    unanswered: Sequence[Unanswered]
    fault: LedgerAway
    launched: Collection[str] = ()


def to_stop(session: Session, name: str | None) -> tuple[Machine, ...]:
    """Return the row of the machine called `name`, or those of all nodes of the cluster, as `Session.find_all_nodes`.

    By their tags where the ledger cannot be read.
    """
    try:
        return session.find_all_nodes(name, "stop")
    except LedgerAway as error:
        return named(session, tagged(session, error), name, "stop")


def tagged(session: Session, fault: LedgerAway) -> Tagged:
    """Ask every account of the settings, and those of this home's saved calls, for machines of this ledger.

    Raises `fault` where this home does not know the ledger's id.
    """
    session.report(f"{fault.message} Machines are looked for by their tags")
    with continue_without_ledger(session, fault) as aside:
        calls = _saved_calls(session, aside.id)
        accounts = sorted({*used_accounts(session), *(one.request.account for one in calls.values())})
        listings = list_accounts(session, accounts)
        found = [one for each in listings for one in each.instances if one.tags.get(TAG_LEDGER) == aside.id]
        gaps = [gap for each in listings for gap in each.unanswered]
        machines, seen = list[Machine](), {one.tags[TAG_ID] for one in found if TAG_ID in one.tags}
        living, untold = _by_id(one for one in found if one.state is not State.TERMINATED)
        gaps += untold
        for gap in untold:
            session.report(f"{gap.scope} is left alone: {gap.why}")
        for machine, one in living.items():
            _add(machines, gaps, one.account, partial(_machine_of, session, one, calls.get(machine)))
        for call in (call for machine, call in calls.items() if machine not in seen):
            _add(machines, gaps, call.request.account, partial(_unresolved_machine, session, call))
        return Tagged(machines, gaps, fault, calls.keys())


def _by_id(living: Iterable[Instance]) -> tuple[dict[str, Instance], list[Unanswered]]:
    """Return the living machines by their ids, and a gap for each whose tags do not say which one it is."""
    found, untold = dict[str, Instance](), list[Unanswered]()
    for one in living:
        known = found.setdefault(one.tags[TAG_ID], one) if TAG_ID in one.tags else None
        if known is None:
            untold.append(Unanswered(f"{one.id} in {one.account}", f"its tag {TAG_ID} is gone"))
        elif known is not one:
            untold.append(Unanswered(f"{one.id} in {one.account}", f"its tag {TAG_ID} is that of {known.id}, too"))
    return found, untold


def _add(machines: list[Machine], gaps: list[Unanswered], account: str, row: Callable[[], Machine | None]) -> None:
    """Add what is known of a machine, unless its account does not say which one it is."""
    try:
        found = row()
        if found is not None:
            machines.append(found)
    except NotReachableHere as error:
        gaps.append(AccountElsewhere(account, error.message))
    except CloudgpuError as error:
        gaps.append(Unanswered(account, error.message))


def named(session: Session, tagged: Tagged, name: str | None, verb: str) -> tuple[Machine, ...]:
    """Return the one machine, or the nodes of the one cluster, that is meant for this verb.

    Raises InvalidRequest where several bear the name, with their ids, and where one node of a cluster is named.
    """
    machines = tagged.rows if name is not None else mine(session, tagged)
    same = {machine.id: machine for machine in machines if name == machine.name}
    same |= {machine.gang.id: machine for machine in machines if machine.gang and name == machine.gang.name}
    if len(same) > 1:
        ids = ", ".join(f"{one} ({machine.owner or 'nobody'})" for one, machine in same.items())
        raise InvalidRequest(
            f"{len(same)} machines are called {name!r}, and the ledger, which tells them apart, cannot be read.",
            field="name",
            value=name,
            next=f"Name one by its id: {ids}",
        )
    try:
        return find_all_nodes(machines, name, verb, session.clock())
    except InstanceNotFound as unknown:
        silent = "".join(f" {unanswered_sentence(gap)}" for gap in tagged.unanswered)
        what = f"machine called {name!r}" if name is not None else "machine of yours"
        raise LedgerUnavailable(
            f"No {what} was found by its tags, and the ledger cannot be read.{silent} {tagged.fault.message}",
            field="name",
            value=name,
            next=tagged.fault.next,
        ) from unknown


def mine(session: Session, tagged: Tagged) -> list[Machine]:
    """Return those of these machines that are this user's, by the role that they last had."""
    known = last_role(session)
    return [machine for machine in tagged.rows if known.owns(machine, tagged.launched)]


def unanswered_sentence(gap: Unanswered) -> str:
    """Return what a part that did not answer leaves open, as a sentence."""
    return gap.why if isinstance(gap, AccountElsewhere) else f"{gap.scope} did not answer: {gap.why}"


def _saved_calls(session: Session, ledger: str) -> dict[str, Attempt]:
    """Return the latest call that this home has saved of each machine of the ledger; what cannot be read is left."""
    found: dict[str, Attempt] = {}
    for path in session.home.attempts.glob("*.*.json"):
        try:
            one = attempt_from_json(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, KeyError, TypeError, ValueError):
            continue
        known = found.get(one.machine)
        if one.ledger == ledger and (known is None or known.number < one.number):
            found[one.machine] = one
    return found


def _machine_of(session: Session, instance: Instance, call: Attempt | None) -> Machine:
    """Return what is known of a machine. Its state is left open: the ledger has to be told it by a look of its own."""
    machine = _observed_machine(session, instance, call)
    return machine._replace(state=State.UNKNOWN, billed=True, since=None, seen_at=machine.intended_at)


def _observed_machine(session: Session, instance: Instance, call: Attempt | None) -> Machine:
    now = session.clock()
    if call is None:
        provider = session.provider(instance.account)
        able: Able = {
            "stoppable": None if isinstance(provider, Pausable) else False,
            "parkable": keeps_images(provider),
            "guards": guarding(provider, Resolved({})).to_json(),
        }
        identity = provider.identity(instance.region)
        return _folded(
            [machine_adopted(instance, None, now, able=able, identity=identity), instance_observed(instance, now)]
        )
    made = launch_settled(call.machine, call.token, "made", "found by its tags", call.made_at)
    return _folded([_intent(session, call), made, instance_observed(instance, now)])


def _unresolved_machine(session: Session, call: Attempt) -> Machine | None:
    """Return what is known of a launch that no listing shows: None once a listing would show it.

    It was never made then, or has ended, or is parked: only the ledger knows. Raises NotReachableHere.
    """
    row = _folded([_intent(session, call)])
    rule = session.provider_of(row).token_rule
    return row if session.clock() - call.made_at < rule.listing_proves_after else None


def _intent(session: Session, call: Attempt) -> Draft:
    item = call.offer.available
    identity = call.identity or session.provider(item.account).identity(item.region)
    return launch_intended(
        call, call.request.key, stop_effect(call.request, call.offer), call.made_at, identity=identity
    )


def _folded(drafts: Sequence[Draft]) -> Machine:
    lines = [
        EventSummary(at, iso(one.occurred_at), one.kind, one.subject, one.dedupe, one.body)
        for at, one in enumerate(drafts, 1)
    ]
    row = machine_of(lines)
    assert row is not None  # noqa: S101  (for the type checker: each of these begins a row)
    return row
