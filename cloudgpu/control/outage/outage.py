"""Works without the ledger while it is away: finds machines, and stops them; that is recorded later.

Where the ledger cannot be read, machines are found by the tags at their clouds, and by the saved calls of this home.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cloudgpu.control.inventory.adoption import abilities_of
from cloudgpu.control.inventory.sync_accounts import list_accounts
from cloudgpu.control.inventory.unrecorded_termination import EndedUnrecorded
from cloudgpu.control.session.accounts import used_accounts
from cloudgpu.control.session.session import Session, find_all_nodes
from cloudgpu.control.team.roles import last_role
from cloudgpu.core.events.launch_events import launch_intended, launch_settled, machine_adopted
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
from cloudgpu.ledger.log.head import FOLLOW_COMMAND
from cloudgpu.ledger.log.storage_errors import LedgerAway, LedgerMovedAway
from cloudgpu.ledger.outage.delivery import DeliveryResult, deliver
from cloudgpu.ledger.outage.stand_in import StandInLedger

if TYPE_CHECKING:
    from cloudgpu.ledger.log.base import Ledger
    from cloudgpu.ledger.log.outbox import Outbox

T = TypeVar("T")
# the sentence at the end of a message: a sync records later what happened
SYNC_LATER = "What has become of the machines, the ledger learns by: cloudgpu ls --refresh"


@contextmanager
def continue_without_ledger(
    session: Session, fault: LedgerAway, machines: Iterable[Machine] = ()
) -> Iterator[StandInLedger]:
    """Give the session a stand-in for its ledger in this block: what is written to it waits in the outbox.

    Where the ledger cannot be read either, `machines` are all that is known. `fault` is the error that says why the
    ledger is away; it is raised where this home does not
    know the ledger's id: then nobody can tell which machines are its own.
    """
    ledger = session.ledger
    stand_in = StandInLedger(ledger, _ledger_id_of(session, fault), fault, machines)
    session.ledger, session.ledger_away = stand_in, True
    try:
        yield stand_in
    finally:
        session.ledger, session.ledger_away = ledger, False


@contextmanager
def read_without_ledger(session: Session) -> Iterator[None]:
    """Replace a ledger that cannot be read by an empty one in this block, for callers that write nothing."""
    ledger, ledger_id = session.ledger, ""
    try:
        ledger.head()
    except LedgerUnavailable as error:
        with suppress(LedgerUnavailable):
            ledger_id = ledger.remembered_id()
        session.ledger = StandInLedger(ledger, ledger_id, error)
    try:
        yield
    finally:
        session.ledger = ledger


def without_ledger(session: Session, machine: Machine, act: Callable[[Machine], T], describe: Callable[[T], str]) -> T:
    """Return `act(machine)`; where the ledger is away, act without it.

    Raises Unrecorded where the ledger still takes no event then. `describe` turns the result into a sentence about what
    was done, without its full stop.
    """
    try:
        return act(machine)
    except LedgerAway as error:
        if session.ledger_away:
            raise
        with continue_without_ledger(session, error, [machine]) as stand_in:
            session.report(f"{machine.name}: {error.message} Continuing without it")
            result = act(machine)
            if stand_in.deliver():
                return result
        raise unrecorded_error(describe(result), stand_in) from error


def unrecorded_error(done_sentence: str, stand_in: StandInLedger) -> EndedUnrecorded:
    """Return the error that says what was done, that the ledger does not know it yet, and what writes it there."""
    return EndedUnrecorded(
        f"{done_sentence}, but the ledger does not know it yet: {stand_in.error.message}",
        field=stand_in.error.field,
        value=stand_in.error.value,
        next=ledger_remedy(stand_in),
    )


def ledger_remedy(stand_in: StandInLedger) -> str:
    """Return what the user has to do so that the ledger records what was done without it."""
    if isinstance(stand_in.error, LedgerMovedAway):
        if stand_in.unwritten is not None:
            return f"Run: {FOLLOW_COMMAND}, then run: cloudgpu ls --refresh"
        return f"Run: {FOLLOW_COMMAND} (it takes along what waits in {stand_in.outbox.path})"
    if stand_in.refused:
        return f"The ledger refuses a part of it ({stand_in.refused[0].rstrip('.')}). Run: cloudgpu ls --refresh"
    remedy = outage_remedy(stand_in.error)
    if stand_in.unwritten is not None:
        return f"{remedy}, then run: cloudgpu ls --refresh"
    if isinstance(stand_in.error, LedgerAway) and stand_in.error.is_lasting:
        return f"{remedy}. The next cloudgpu command after that writes what waits in {stand_in.outbox.path}"
    return f"{remedy}: the next cloudgpu command writes it (until then it is in {stand_in.outbox.path})"


def outage_remedy(error: CloudgpuError) -> str:
    """Return what brings the ledger back, without a full stop: some faults end by themselves, and others do not."""
    if isinstance(error, LedgerAway) and not error.is_lasting:
        lock_remedy = "End the command that holds its lock (it may be suspended: see `jobs`)"
        space_or_lock = "Free some space there" if error.is_disk_full else lock_remedy if error.is_locked else ""
        return space_or_lock or "Wait until the ledger is back"
    return (error.next or "Put that right").rstrip(".")


def replay(session: Session) -> None:
    """Write the events that wait in the outbox into the ledger, in order; one that is there is not written again.

    Reports nothing while the ledger is away: the command that needs it does. Where it has moved, `ledger move --follow`
    takes along what waits. What the ledger refuses is set aside, and reported once. A file that cannot be read keeps no
    other back.
    """
    ledger, written = session.ledger, 0
    for outbox in (ledger.outbox, *ledger.outbox.other_outboxes()):
        try:
            if outbox.path != ledger.outbox.path and not _has_lines_for(ledger, outbox):
                continue
            result = deliver(ledger, outbox, ledger.id)
            if result is not None:
                written += result.written
                report_refused(session, ledger, result)
        except (LedgerAway, LedgerMoved):
            return
        except (LedgerUnavailable, OSError) as error:
            session.report(f"what was done while the ledger was away still waits in {outbox.path}: {error}")
            if isinstance(error, LedgerUnavailable):
                return
    if written:
        count_text = "1 line" if written == 1 else f"{written} lines"
        session.report(f"the ledger is back: {count_text} about what was done meanwhile were written")


def report_refused(session: Session, ledger: Ledger, result: DeliveryResult) -> None:
    """Report which events this ledger refuses, why, and where they are kept."""
    if result.refused:
        session.report(
            f"{refused_sentence(ledger, result.refused)} "
            f"What was refused is kept in {result.refused_file}. {SYNC_LATER}"
        )


def refused_sentence(ledger: Ledger, refused: Sequence[tuple[Draft, str]]) -> str:
    """Return how many events the ledger refuses, about what, and why, as a sentence."""
    machines = {machine.id: machine.name for machine in ledger.machines()}
    subjects = ", ".join(dict.fromkeys(machines.get(draft.subject, draft.subject) for draft, _ in refused))
    count_text = "1 line" if len(refused) == 1 else f"{len(refused)} lines"
    return f"The ledger refuses {count_text} about {subjects}: {refused[0][1].rstrip('.')}."


def _has_lines_for(ledger: Ledger, outbox: Outbox) -> bool:
    """Return whether events wait there for this ledger, from when it was configured by another URL. Raises OSError."""
    return isinstance(ledger, Book) and bool(outbox.waiting(ledger.id)) and ledger.owns_outbox(outbox)


def _ledger_id_of(session: Session, fault: LedgerAway) -> str:
    """Return the ledger's id, from the ledger or from what this home remembers."""
    ledger_id = ""
    with suppress(LedgerUnavailable):
        ledger_id = session.ledger.remembered_id()
    with suppress(LedgerUnavailable):
        ledger_id = ledger_id or session.ledger.id
    if not ledger_id:
        raise fault
    return ledger_id


@dataclass(frozen=True, slots=True)
class FoundMachines:
    """The machines of this ledger that were found without it, and what did not answer.

    `fault` is why the ledger cannot be used; `launched` are the ids of machines that this home launched.
    """

    machines: list[Machine]
    unanswered: Sequence[Unanswered]
    fault: LedgerAway
    launched: Collection[str] = ()


def find_to_stop(session: Session, name: str | None) -> tuple[Machine, ...]:
    """Return the machine called `name`, or all nodes of the cluster, as `Session.find_all_nodes`.

    They are found by their tags where the ledger cannot be read.
    """
    try:
        return session.find_all_nodes(name, "stop")
    except LedgerAway as error:
        return select_by_name(session, find_by_tags(session, error), name, "stop")


def find_by_tags(session: Session, fault: LedgerAway) -> FoundMachines:
    """Ask every account of the settings, and those of this home's saved calls, for machines of this ledger.

    Raises `fault` where this home does not know the ledger's id.
    """
    session.report(f"{fault.message} Machines are looked for by their tags")
    with continue_without_ledger(session, fault) as stand_in:
        calls = _saved_calls(session, stand_in.id)
        accounts = sorted({*used_accounts(session), *(call.request.account for call in calls.values())})
        listings = list_accounts(session, accounts)
        instances = [
            instance
            for listing in listings
            for instance in listing.instances
            if instance.tags.get(TAG_LEDGER) == stand_in.id
        ]
        unanswered = [gap for listing in listings for gap in listing.unanswered]
        machines = list[Machine]()
        listed_ids = {instance.tags[TAG_ID] for instance in instances if TAG_ID in instance.tags}
        living_by_id, unidentified = _by_machine_id(
            instance for instance in instances if instance.state is not State.TERMINATED
        )
        unanswered += unidentified
        for gap in unidentified:
            session.report(f"{gap.scope} is left alone: {gap.why}")
        for machine_id, instance in living_by_id.items():
            read_machine = partial(_machine_of, session, instance, calls.get(machine_id))
            _add_machine(machines, unanswered, instance.account, read_machine)
        for call in (call for machine_id, call in calls.items() if machine_id not in listed_ids):
            _add_machine(machines, unanswered, call.request.account, partial(_unresolved_machine, session, call))
        return FoundMachines(machines, unanswered, fault, calls.keys())


def _by_machine_id(living: Iterable[Instance]) -> tuple[dict[str, Instance], list[Unanswered]]:
    """Return the living machines by their ids, and those whose tags do not identify them as unanswered."""
    by_id, unidentified = dict[str, Instance](), list[Unanswered]()
    for instance in living:
        scope = f"{instance.id} in {instance.account}"
        first_instance = by_id.setdefault(instance.tags[TAG_ID], instance) if TAG_ID in instance.tags else None
        if first_instance is None:
            unidentified.append(Unanswered(scope, f"its tag {TAG_ID} is gone"))
        elif first_instance is not instance:
            unidentified.append(Unanswered(scope, f"its tag {TAG_ID} is that of {first_instance.id}, too"))
    return by_id, unidentified


def _add_machine(
    machines: list[Machine], unanswered: list[Unanswered], account: str, read_machine: Callable[[], Machine | None]
) -> None:
    """Add what is known of a machine to `machines`; its account to `unanswered` where that cannot be asked."""
    try:
        machine = read_machine()
        if machine is not None:
            machines.append(machine)
    except NotReachableHere as error:
        unanswered.append(AccountElsewhere(account, error.message))
    except CloudgpuError as error:
        unanswered.append(Unanswered(account, error.message))


def select_by_name(session: Session, found: FoundMachines, name: str | None, verb: str) -> tuple[Machine, ...]:
    """Return the one machine called `name`, or the nodes of the cluster, for `verb`.

    Raises InvalidRequest where several have the name, with their ids, and where one node of a cluster is named.
    """
    machines = found.machines if name is not None else own_machines(session, found)
    matches = {machine.id: machine for machine in machines if name == machine.name}
    matches |= {
        machine.cluster_node.id: machine
        for machine in machines
        if machine.cluster_node and name == machine.cluster_node.name
    }
    if len(matches) > 1:
        ids = ", ".join(f"{id_} ({machine.owner or 'nobody'})" for id_, machine in matches.items())
        raise InvalidRequest(
            f"{len(matches)} machines are called {name!r}, and the ledger, which tells them apart, cannot be read.",
            field="name",
            value=name,
            next=f"Name one by its id: {ids}",
        )
    try:
        return find_all_nodes(machines, name, verb, session.clock())
    except InstanceNotFound as unknown:
        gap_sentences = "".join(f" {unanswered_sentence(gap)}" for gap in found.unanswered)
        sought = f"machine called {name!r}" if name is not None else "machine of yours"
        raise LedgerUnavailable(
            f"No {sought} was found by its tags, and the ledger cannot be read.{gap_sentences} {found.fault.message}",
            field="name",
            value=name,
            next=found.fault.next,
        ) from unknown


def own_machines(session: Session, found: FoundMachines) -> list[Machine]:
    """Return those of these machines that are this user's, by the role that they last had."""
    role = last_role(session)
    return [machine for machine in found.machines if role.owns(machine, found.launched)]


def unanswered_sentence(gap: Unanswered) -> str:
    """Return what did not answer and why, as a sentence."""
    return gap.why if isinstance(gap, AccountElsewhere) else f"{gap.scope} did not answer: {gap.why}"


def _saved_calls(session: Session, ledger_id: str) -> dict[str, Attempt]:
    """Return the latest saved call of each machine of the ledger, by its id; files that cannot be read are skipped."""
    latest: dict[str, Attempt] = {}
    for path in session.home.attempts.glob("*.*.json"):
        try:
            call = attempt_from_json(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, KeyError, TypeError, ValueError):
            continue
        saved = latest.get(call.machine)
        if call.ledger == ledger_id and (saved is None or saved.number < call.number):
            latest[call.machine] = call
    return latest


def _machine_of(session: Session, instance: Instance, call: Attempt | None) -> Machine:
    """Return what is known of a machine. Its state is left unknown: a later sync records it in the ledger."""
    now = session.clock()
    if call is None:
        provider = session.provider(instance.account)
        abilities, identity = abilities_of(provider), provider.identity(instance.region)
        launch_events = [machine_adopted(instance, None, now, able=abilities, identity=identity)]
    else:
        settled = launch_settled(call.machine, call.token, "made", "found by its tags", call.made_at)
        launch_events = [_launch_intended(session, call), settled]
    machine = _machine_from([*launch_events, instance_observed(instance, now)])
    return machine._replace(state=State.UNKNOWN, billed=True, since=None, seen_at=machine.intended_at)


def _unresolved_machine(session: Session, call: Attempt) -> Machine | None:
    """Return the machine of a launch that no listing shows; None once a listing would show it.

    It was never created then, or was terminated, or is parked: only the ledger knows. Raises NotReachableHere.
    """
    machine = _machine_from([_launch_intended(session, call)])
    rule = session.provider_of(machine).token_rule
    # after this time a listing shows every machine that was created
    return machine if session.clock() - call.made_at < rule.listing_proves_after else None


def _launch_intended(session: Session, call: Attempt) -> Draft:
    configuration = call.offer.configuration
    identity = call.identity or session.provider(configuration.account).identity(configuration.region)
    return launch_intended(
        call, call.request.key, stop_effect(call.request, call.offer), call.made_at, identity=identity
    )


def _machine_from(drafts: Sequence[Draft]) -> Machine:
    """Return the machine that these events, not recorded yet, describe."""
    events = [
        EventSummary(number, iso(draft.occurred_at), draft.kind, draft.subject, draft.dedupe, draft.body)
        for number, draft in enumerate(drafts, 1)
    ]
    machine = machine_of(events)
    assert machine is not None  # noqa: S101  (for the type checker: each of these begins a machine)
    return machine
