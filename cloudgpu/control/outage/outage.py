"""Goes on without the ledger where it is away: what ends a bill does not wait for it, and is written there later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from cloudgpu.control.inventory.unrecorded_termination import Unrecorded
from cloudgpu.core.model.machine import Machine
from cloudgpu.errors import CloudgpuError, LedgerMoved, LedgerUnavailable
from cloudgpu.ledger.book import Book
from cloudgpu.ledger.log.head import FOLLOW
from cloudgpu.ledger.log.storage_errors import LedgerAway, LedgerLeft
from cloudgpu.ledger.outage.offering import Offered, offer
from cloudgpu.ledger.outage.stand_in import StandInLedger

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.events.log import Draft
    from cloudgpu.ledger.log.base import Ledger
    from cloudgpu.ledger.log.outbox import Outbox

T = TypeVar("T")
LOOK_AGAIN = "What has become of the machines, the ledger learns by: cloudgpu ls --refresh"


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
    if isinstance(stand_in.fault, LedgerLeft):
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


def tell_refused(session: Session, offered: Offered) -> None:
    """Say which lines the ledger refuses, why, and where they are kept."""
    if offered.refused:
        session.report(
            f"{refused_sentence(session, offered.refused)} What was refused is kept in {offered.at}. {LOOK_AGAIN}"
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
