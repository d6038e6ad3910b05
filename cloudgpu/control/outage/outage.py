"""Goes on without the ledger where it is away: finds machines, and does what ends a bill, which is recorded later.

Where the ledger cannot be read, machines are found by the tags at their clouds, and by the saved calls of this home.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cloudgpu.control.inventory.sync_accounts import list_accounts
from cloudgpu.control.inventory.unrecorded_termination import Unrecorded
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
from cloudgpu.errors import (
    CloudgpuError,
    InstanceNotFound,
    InvalidRequest,
    LedgerMoved,
    LedgerUnavailable,
    NotReachableHere,
)
from cloudgpu.ledger.book import Book
from cloudgpu.ledger.log.head import FOLLOW
from cloudgpu.ledger.log.storage_errors import LedgerAway, LedgerMovedAway
from cloudgpu.ledger.outage.offering import OfferResult, offer
from cloudgpu.ledger.outage.stand_in import StandInLedger
from cloudgpu.providers.abilities import Pausable, Resolved, can_keep_images, launch_safeguards

if TYPE_CHECKING:
    from cloudgpu.ledger.log.base import Ledger
    from cloudgpu.ledger.log.outbox import Outbox

T = TypeVar("T")
SYNC_LATER = "What has become of the machines, the ledger learns by: cloudgpu ls --refresh"


@contextmanager
def continue_without_ledger(
    session: Session, fault: LedgerAway, machines: Iterable[Machine] = ()
) -> Iterator[StandInLedger]:
    """Have the session work without its ledger in this block; what it writes waits in the outbox.

    Where the ledger cannot be read either, `machines` are all that is known. Raises `fault` where this home does not
    know the ledger's id: then nobody can tell which machines are its own.
    """
    ledger = session.ledger
    stand_in = StandInLedger(ledger, _id_of(session, fault), fault, machines)
    session.ledger, session.ledger_away = stand_in, True
    try:
        yield stand_in
    finally:
        session.ledger, session.ledger_away = ledger, False


@contextmanager
def read_without_ledger(session: Session) -> Iterator[None]:
    """Have an empty ledger stand in for one that cannot be read, for whoever has more to look at and writes nothing."""
    behind, known = session.ledger, ""
    try:
        behind.head()
    except LedgerUnavailable as error:
        with suppress(LedgerUnavailable):
            known = behind.remembered_id()
        session.ledger = StandInLedger(behind, known, error)
    try:
        yield
    finally:
        session.ledger = behind


def without_ledger(session: Session, machine: Machine, act: Callable[[Machine], T], done: Callable[[T], str]) -> T:
    """Return `act(row)`; where the ledger is away, do it without the ledger and prove it.

    Raises Unrecorded where the ledger still takes no line then: it does where only this computer's disk is full.
    `done` says what was done, in a sentence without its full stop.
    """
    try:
        return act(machine)
    except LedgerAway as error:
        if session.ledger_away:
            raise
        with continue_without_ledger(session, error, [machine]) as stand_in:
            session.report(f"{machine.name}: {error.message} Continuing without it")
            result = act(machine)
            if stand_in.offer():
                return result
        raise unrecorded_error(done(result), stand_in) from error


def unrecorded_error(done: str, stand_in: StandInLedger) -> Unrecorded:
    """Return the error that says what was done, that the ledger does not know it yet, and what writes it there."""
    return Unrecorded(
        f"{done}, but the ledger does not know it yet: {stand_in.fault.message}",
        field=stand_in.fault.field,
        value=stand_in.fault.value,
        next=ledger_remedy(stand_in),
    )


def ledger_remedy(stand_in: StandInLedger) -> str:
    """Return what has to be done so that the ledger knows what was done without it."""
    if isinstance(stand_in.fault, LedgerMovedAway):
        if stand_in.unwritten is not None:
            return f"Run: {FOLLOW}, then run: cloudgpu ls --refresh"
        return f"Run: {FOLLOW} (it takes along what waits in {stand_in.outbox.path})"
    if stand_in.refused:
        return f"The ledger refuses a part of it ({stand_in.refused[0].rstrip('.')}). Run: cloudgpu ls --refresh"
    way = outage_remedy(stand_in.fault)
    if stand_in.unwritten is not None:
        return f"{way}, then run: cloudgpu ls --refresh"
    if isinstance(stand_in.fault, LedgerAway) and stand_in.fault.lasts:
        return f"{way}. The next cloudgpu command after that writes what waits in {stand_in.outbox.path}"
    return f"{way}: the next cloudgpu command writes it (until then it is in {stand_in.outbox.path})"


def outage_remedy(error: CloudgpuError) -> str:
    """Return what brings the ledger back, without a full stop: some faults end by themselves, and others do not."""
    if isinstance(error, LedgerAway) and not error.lasts:
        held = "End the command that holds its lock (it may be suspended: see `jobs`)"
        return "Free some space there" if error.full else held if error.held else "Wait until the ledger is back"
    return (error.next or "Put that right").rstrip(".")


def replay(session: Session) -> None:
    """Write what waits in the outbox into the ledger, in its order; a line that stands is not written a second time.

    Nothing is said while the ledger is away: whoever needs it says so. Where it has moved, `ledger move --follow` takes
    along what waits. What the ledger refuses is set aside, and said once.
    """
    ledger, written, outbox = session.ledger, 0, session.ledger.outbox
    try:
        for outbox in (ledger.outbox, *_elsewhere(ledger)):
            offered = offer(ledger, outbox, ledger.id)
            if offered is not None:
                written += offered.written
                tell_refused(session, offered)
    except (LedgerAway, LedgerMoved):
        return
    except (LedgerUnavailable, OSError) as error:
        session.report(f"what was done while the ledger was away still waits in {outbox.path}: {error}")
        return
    if written:
        lines = "1 line" if written == 1 else f"{written} lines"
        session.report(f"the ledger is back: {lines} about what was done meanwhile were written")


def tell_refused(session: Session, offered: OfferResult) -> None:
    """Say which lines the ledger refuses, why, and where they are kept."""
    if offered.refused:
        session.report(
            f"{refused_sentence(session, offered.refused)} What was refused is kept in {offered.at}. {SYNC_LATER}"
        )


def refused_sentence(session: Session, refused: Sequence[tuple[Draft, str]]) -> str:
    """Return how many lines the ledger refuses, about what, and why, as a sentence."""
    machines = {machine.id: machine.name for machine in session.ledger.machines()}
    about = ", ".join(dict.fromkeys(machines.get(one.subject, one.subject) for one, _ in refused))
    lines = "1 line" if len(refused) == 1 else f"{len(refused)} lines"
    return f"The ledger refuses {lines} about {about}: {refused[0][1].rstrip('.')}."


def _elsewhere(ledger: Ledger) -> Iterator[Outbox]:
    """Yield the outboxes in which lines wait for this ledger under another name of its place."""
    if isinstance(ledger, Book):
        mine = ledger.id
        yield from (one for one in ledger.outbox.others() if one.waiting(mine) and ledger.is_of(one))


def _id_of(session: Session, fault: LedgerAway) -> str:
    """Return the ledger's id, by the ledger or by what this home remembers."""
    known = ""
    with suppress(LedgerUnavailable):
        known = session.ledger.remembered_id()
    with suppress(LedgerUnavailable):
        known = known or session.ledger.id
    if not known:
        raise fault
    return known


@dataclass(frozen=True, slots=True)
class FoundMachines:
    """The machines of this ledger that were found without it, what did not answer, and what this home has launched."""

    rows: list[Machine]
    unanswered: Sequence[Unanswered]
    fault: LedgerAway
    launched: Collection[str] = ()


def find_to_stop(session: Session, name: str | None) -> tuple[Machine, ...]:
    """Return the row of the machine called `name`, or those of all nodes of the cluster, as `Session.find_all_nodes`.

    By their tags where the ledger cannot be read.
    """
    try:
        return session.find_all_nodes(name, "stop")
    except LedgerAway as error:
        return named(session, tagged(session, error), name, "stop")


def tagged(session: Session, fault: LedgerAway) -> FoundMachines:
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
        return FoundMachines(machines, gaps, fault, calls.keys())


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


def named(session: Session, tagged: FoundMachines, name: str | None, verb: str) -> tuple[Machine, ...]:
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


def mine(session: Session, tagged: FoundMachines) -> list[Machine]:
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
            "parkable": can_keep_images(provider),
            "guards": launch_safeguards(provider, Resolved({})).to_json(),
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
