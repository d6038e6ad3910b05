"""Answers `down`: which machines are meant, each ended whatever becomes of the others, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudgpu.control.clusters.engine import remove_engine_from_owned
from cloudgpu.control.clusters.power import end_all
from cloudgpu.control.clusters.together import worst_of
from cloudgpu.control.inventory.listing import sync_reported
from cloudgpu.control.jobs.slurm.lines import keep_record
from cloudgpu.control.lifecycle.lifecycle import Termination, terminate_with_resources
from cloudgpu.core.clusters.layout import engine_of_machine
from cloudgpu.core.clusters.members import node_number
from cloudgpu.core.model.identity import AccountElsewhere, QueriedAccount, Unanswered, account_text
from cloudgpu.core.model.machine import Machine, command_name, may_run_text
from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerUnavailable, ProviderUnavailable, StopUnproved
from cloudgpu.ledger.log.head import FOLLOW
from cloudgpu.ledger.log.storage_errors import LedgerAway, LedgerMovedAway
from cloudgpu.parallel import Pool
from cloudgpu.views.machines import machine_value, queried_accounts_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudgpu.control.session.session import Session
    from cloudgpu.providers.abilities import RemainingFiles
    from cloudgpu.views.documents.machines.ended import BusyMachine, DownDocument, RetainedFiles
    from cloudgpu.views.documents.machines.storage import NamedResource

MAX_PARALLEL = 8  # machines that are ended side by side


@dataclass(frozen=True, slots=True)
class MachinesToEnd:
    """The machines that `down` is about, and a fault for each account that did not say what it has.

    `queried` are the accounts, none where machines were named; `not_queried` are those that only a credential
    on this computer names, and that it does not open. `others` are living machines of others, which `--all` leaves
    alone in a team.
    """

    rows: Sequence[Machine]
    gaps: Sequence[CloudgpuError] = ()
    queried: Sequence[QueriedAccount] = ()
    not_queried: Sequence[Unanswered] = ()
    others: Sequence[Machine] = ()


def machines_to_end(session: Session, names: Sequence[str], *, all_: bool = False) -> MachinesToEnd:
    """Return the machines that `down` is about, after a sync of all accounts for `--all`: those are one's own.

    Raises InvalidRequest where names and `--all` contradict, InstanceNotFound for an unknown name, RoleNeeded for a
    machine that is not theirs to end.
    """
    from cloudgpu.control.outage.outage import outage_remedy
    from cloudgpu.control.session.session import present_machines
    from cloudgpu.control.team.authorization import authorization_of, check_may

    if all_ and names:
        raise InvalidRequest(
            f"--all ends every machine, so {names[0]} must not be named, too.",
            field="--all",
            value=names[0],
            next="Leave out --all, or the names.",
        )
    if len(set(names)) != len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise InvalidRequest(f"{twice} is named twice.", field="name", value=twice, next="Name each machine once.")
    try:
        if all_:
            authorization, known = authorization_of(session), present_machines(session.ledger.machines())
        else:
            machines = _named(session, names)
            authorization = authorization_of(session)
            for machine in machines:
                check_may(session, machine, "end", authorization=authorization)
            return MachinesToEnd(machines)
    except LedgerAway as error:
        return _to_end_by_tags(session, names, error, all_=all_)
    try:
        look = sync_reported(session)
        machines = present_machines(session.ledger.machines())
        ours, others = (
            [machine for machine in machines if authorization.owns(machine)],
            [machine for machine in machines if not authorization.owns(machine)],
        )
        return MachinesToEnd(ours, _gaps(look.unanswered, ours), look.queried, look.not_queried, others)
    except LedgerUnavailable as error:  # a full disk, say: what is known is ended all the same
        unseen = LedgerUnavailable(
            f"The accounts were not checked for other machines: {error.message}",
            field=error.field,
            value=error.value,
            next=f"{outage_remedy(error)}, then run: cloudgpu ls --refresh",
        )
        ours, others = (
            [machine for machine in known if authorization.owns(machine)],
            [machine for machine in known if not authorization.owns(machine)],
        )
        return MachinesToEnd(ours, [unseen], others=others)


def _named(session: Session, names: Sequence[str]) -> list[Machine]:
    """Return the machines with these names, of a cluster all nodes; the only one there is, where none is named."""
    if not names:
        return [*session.find_all_nodes(None, "down")]
    return [row for name in names for row in session.find_all_nodes(name, "down", ended=True)]


def _to_end_by_tags(session: Session, names: Sequence[str], fault: LedgerAway, *, all_: bool) -> MachinesToEnd:
    """Return the machines that are meant while the ledger cannot be read; of all, one's own by the role of last time.

    Nobody can say who has which role now: whoever names a machine ends it, where the cloud lets them.
    """
    from cloudgpu.control.outage.outage import find_by_tags, own_machines, select_by_name
    from cloudgpu.control.team.roles import last_role

    found = find_by_tags(session, fault)
    if not all_:
        return MachinesToEnd([row for name in names or (None,) for row in select_by_name(session, found, name, "down")])
    own = own_machines(session, found)
    unread = LedgerUnavailable(
        f"Which machines there are is known by their tags alone. {last_role(session).sentence()} {fault.message}",
        field="ledger",
        value=fault.value,
        next=f"Run: {FOLLOW}, then run the same again."
        if isinstance(fault, LedgerMovedAway)
        else "Run the same again when the ledger is back.",
    )
    silent = [gap for gap in found.unanswered if not isinstance(gap, AccountElsewhere)]
    away = [_not_here(gap) for gap in found.unanswered if isinstance(gap, AccountElsewhere)]
    return MachinesToEnd(
        own, [*_gaps(silent), *away, unread], others=[machine for machine in found.machines if machine not in own]
    )


def _not_here(gap: AccountElsewhere) -> ProviderUnavailable:
    return ProviderUnavailable(gap.why, field="--all", value=gap.scope, next="Run it where that account is.")


def _gaps(unanswered: Sequence[Unanswered], ours: Sequence[Machine] | None = None) -> list[CloudgpuError]:
    """Return a fault for each part that did not answer; accounts in which there is nothing of `ours` are none."""
    concerned = {account_text(row) for row in ours or ()}
    return [
        ProviderUnavailable(
            f"{gap.scope} did not answer, so it is not known what runs there: {gap.why}",
            field="--all",
            value=gap.scope,
            next="Run it again when it answers.",
        )
        for gap in unanswered
        if ours is None or not isinstance(gap, AccountElsewhere) or gap.scope in concerned
    ]


def end_machines(
    session: Session, to_end: MachinesToEnd, running: Sequence[BusyMachine] | None = None
) -> tuple[DownDocument, CloudgpuError | None]:
    """End each of these machines, whatever becomes of the others; return the answer of `down` and the gravest fault.

    `running` is what still runs on them (None: not asked yet).
    """
    from cloudgpu.control.lifecycle.termination_summary import still_running

    machines = to_end.rows
    running = still_running(session, machines) if running is None else running
    outcomes = _ended_at_once(session, group_by_cluster(machines))
    gone = [outcome for outcome in outcomes if not isinstance(outcome, CloudgpuError)]
    faults = [*(outcome for outcome in outcomes if isinstance(outcome, CloudgpuError)), *to_end.gaps]
    now = session.clock()
    document: DownDocument = {
        "terminated": [machine_value(one.machine, now) for one in gone],
        "running": list(running),
        "retained": _on_purpose(gone),
        "kept_files": [_retained(one.machine, one.remains) for one in gone if one.remains],
        "failed": [fault.as_dict() for fault in faults],
        "others": [{"name": machine.name, "id": machine.id, "owner": machine.owner} for machine in to_end.others],
        **queried_accounts_value(to_end.queried, to_end.not_queried),
    }
    return document, worst_of(faults)


def _retained(machine: Machine, remains: RemainingFiles) -> RetainedFiles:
    return {"name": machine.name, "where": remains.directory, "files": list(remains.files), "count": remains.count}


def _on_purpose(ended: Sequence[Termination]) -> list[NamedResource]:
    """Return what the user keeps by name of these machines, each thing once."""
    resources = {resource.id: resource for one in ended for resource in one.on_purpose}
    if not resources:
        return []
    from cloudgpu.control.resources.named import leftover_value

    return [leftover_value(resource) for resource in resources.values()]


def group_by_cluster(machines: Sequence[Machine]) -> list[list[Machine]]:
    """Return the machines that end as one: the nodes of each cluster together, in their order, all others alone."""
    found: dict[str, list[Machine]] = {}
    for machine in machines:
        found.setdefault(machine.gang.id if machine.gang else machine.id, []).append(machine)
    return [sorted(some, key=node_number) for some in found.values()]


def _ended_at_once(session: Session, wholes: Sequence[Sequence[Machine]]) -> list[Termination | CloudgpuError]:
    """End these side by side: one whose proof does not come keeps no other one on."""
    if len(wholes) == 1:
        return _ended(session, wholes[0])

    def in_own_session(machines: Sequence[Machine]) -> list[Termination | CloudgpuError]:
        with session.for_thread() as own:
            return _ended(own, machines)

    with Pool(MAX_PARALLEL, "machines") as pool:
        return [outcome for some in pool.map(in_own_session, wholes) for outcome in some]


def _ended(session: Session, machines: Sequence[Machine]) -> list[Termination | CloudgpuError]:
    machine = machines[0]
    if engine_of_machine(machine) == "slurm":
        keep_record(session, machines)
        remove_engine_from_owned(session, machines)
    try:
        if machine.gang is not None:
            return end_all(session, machines, why="asked by the user")
        return [terminate_with_resources(session, machine, why="asked by the user")]
    except CloudgpuError as error:
        return [error]
    except Exception as bug:  # noqa: BLE001  (the other machines have to be ended all the same)
        return [
            StopUnproved(
                f"{machine.name} {may_run_text(machine)}: ending it failed ({type(bug).__name__}: {bug}).",
                field="name",
                value=machine.name,
                next=f"Run: cloudgpu down {command_name(machine)}, and report this.",
            )
        ]
