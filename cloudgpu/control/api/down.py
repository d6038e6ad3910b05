"""Makes the document of `down`: finds the machines to end, ends each even if another fails, returns the results."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from cloudgpu.control.clusters.engine import remove_engine_from_owned
from cloudgpu.control.clusters.power import end_all
from cloudgpu.control.clusters.together import call_for_each, worst_of
from cloudgpu.control.inventory.listing import sync_reported
from cloudgpu.control.jobs.slurm.events import record_external_jobs
from cloudgpu.control.lifecycle.lifecycle import Termination, terminate_with_resources
from cloudgpu.core.clusters.layout import engine_of_machine
from cloudgpu.core.model.identity import AccountElsewhere, QueriedAccount, Unanswered, account_text
from cloudgpu.core.model.machine import Machine, command_name, may_run_text, node_of
from cloudgpu.errors import CloudgpuError, InvalidRequest, LedgerUnavailable, ProviderUnavailable, StopUnproved
from cloudgpu.ledger.log.head import FOLLOW_COMMAND
from cloudgpu.ledger.log.storage_errors import LedgerAway, LedgerMovedAway
from cloudgpu.views.machines import machine_document, queried_accounts_document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudgpu.control.session.session import Session
    from cloudgpu.core.team.rights import Authorization
    from cloudgpu.views.documents.machines.ended import BusyMachine, DownDocument
    from cloudgpu.views.documents.machines.storage import NamedResource

MAX_PARALLEL = 8  # machines or clusters that are ended in parallel


@dataclass(frozen=True, slots=True)
class MachinesToEnd:
    """The machines that `down` ends, and an error for each account that did not answer (`account_errors`).

    `queried` are the accounts that were synced, none if machines were named. `not_queried` are accounts with
    credentials on this computer that are not valid. `others` are present machines of other team members, which
    `--all` does not end.
    """

    machines: Sequence[Machine]
    account_errors: Sequence[CloudgpuError] = ()
    queried: Sequence[QueriedAccount] = ()
    not_queried: Sequence[Unanswered] = ()
    others: Sequence[Machine] = ()


def machines_to_end(session: Session, names: Sequence[str], *, all_: bool = False) -> MachinesToEnd:
    """Return the machines that `down` ends. For `--all`: this user's machines, after a sync of all accounts.

    Raises InvalidRequest for names together with `--all`, InstanceNotFound for an unknown name, RoleNeeded for a
    machine that this user may not end.
    """
    from cloudgpu.control.outage.outage import outage_remedy
    from cloudgpu.control.session.session import present_machines
    from cloudgpu.control.team.authorization import authorization_of, check_right

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
            authorization, recorded = authorization_of(session), present_machines(session.ledger.machines())
        else:
            machines = _machines_of_names(session, names)
            authorization = authorization_of(session)
            for machine in machines:
                check_right(session, machine, "end", authorization=authorization)
            return MachinesToEnd(machines)
    except LedgerAway as error:
        return _machines_by_tags(session, names, error, all_=all_)
    try:
        synced = sync_reported(session)
        own, others = _split_by_owner(present_machines(session.ledger.machines()), authorization)
        return MachinesToEnd(own, _account_errors(synced.unanswered, own), synced.queried, synced.not_queried, others)
    except LedgerUnavailable as error:  # for example a full disk: what is recorded is ended all the same
        not_synced = LedgerUnavailable(
            f"The accounts were not checked for other machines: {error.message}",
            field=error.field,
            value=error.value,
            next=f"{outage_remedy(error)}, then run: cloudgpu ls --refresh",
        )
        own, others = _split_by_owner(recorded, authorization)
        return MachinesToEnd(own, [not_synced], others=others)


def _split_by_owner(machines: Sequence[Machine], authorization: Authorization) -> tuple[list[Machine], list[Machine]]:
    """Return this user's machines, and those of others."""
    own = [machine for machine in machines if authorization.owns(machine)]
    return own, [machine for machine in machines if not authorization.owns(machine)]


def _machines_of_names(session: Session, names: Sequence[str]) -> list[Machine]:
    """Return the machines with these names or ids, all nodes of a cluster, each once; without names the only one."""
    if not names:
        return [*session.find_all_nodes(None, "down")]
    found = (machine for name in names for machine in session.find_all_nodes(name, "down", ended=True))
    return list({machine.id: machine for machine in found}.values())


def _machines_by_tags(session: Session, names: Sequence[str], error: LedgerAway, *, all_: bool) -> MachinesToEnd:
    """Return the machines to end by their tags, while the ledger cannot be read.

    Roles cannot be read either: a named machine may be ended by anybody whom the cloud lets, and `--all` ends this
    user's own machines, by the role they had last.
    """
    from cloudgpu.control.outage.outage import find_by_tags, own_machines, select_by_name
    from cloudgpu.control.team.roles import last_role

    tagged = find_by_tags(session, error)
    if not all_:
        named = (machine for name in names or (None,) for machine in select_by_name(session, tagged, name, "down"))
        return MachinesToEnd(list({machine.id: machine for machine in named}.values()))
    own = own_machines(session, tagged)
    roles_unknown_error = LedgerUnavailable(
        f"Which machines there are is known by their tags alone. {last_role(session).sentence()} {error.message}",
        field="ledger",
        value=error.value,
        next=f"Run: {FOLLOW_COMMAND}, then run the same again."
        if isinstance(error, LedgerMovedAway)
        else "Run the same again when the ledger is back.",
    )
    silent_accounts = [gap for gap in tagged.unanswered if not isinstance(gap, AccountElsewhere)]
    elsewhere_errors = [
        ProviderUnavailable(gap.why, field="--all", value=gap.scope, next="Run it where that account is.")
        for gap in tagged.unanswered
        if isinstance(gap, AccountElsewhere)
    ]
    return MachinesToEnd(
        own,
        [*_account_errors(silent_accounts), *elsewhere_errors, roles_unknown_error],
        others=[machine for machine in tagged.machines if machine not in own],
    )


def _account_errors(unanswered: Sequence[Unanswered], own: Sequence[Machine] | None = None) -> list[CloudgpuError]:
    """Return an error for each account or region that did not answer.

    An account that is configured elsewhere is left out if it has none of the machines `own`.
    """
    accounts = {account_text(machine) for machine in own or ()}
    return [
        ProviderUnavailable(
            f"{gap.scope} did not answer, so it is not known what runs there: {gap.why}",
            field="--all",
            value=gap.scope,
            next="Run it again when it answers.",
        )
        for gap in unanswered
        if own is None or not isinstance(gap, AccountElsewhere) or gap.scope in accounts
    ]


def end_machines(
    session: Session, to_end: MachinesToEnd, busy: Sequence[BusyMachine] | None = None
) -> tuple[DownDocument, CloudgpuError | None]:
    """End each of these machines, even if another fails; return the document of `down` and the gravest error.

    `busy` is what is still in progress on them (None: not asked yet).
    """
    from cloudgpu.control.lifecycle.termination_summary import machines_with_processes

    machines = to_end.machines
    busy = machines_with_processes(session, machines) if busy is None else busy
    outcomes = _end_parallel(session, _group_by_cluster(machines))
    ended = [outcome for outcome in outcomes if not isinstance(outcome, CloudgpuError)]
    errors = [*(outcome for outcome in outcomes if isinstance(outcome, CloudgpuError)), *to_end.account_errors]
    now = session.clock()
    document: DownDocument = {
        "terminated": [machine_document(termination.machine, now) for termination in ended],
        "running": list(busy),
        "retained": _named_resources(ended),
        "kept_files": [
            {
                "name": termination.machine.name,
                "where": files.directory,
                "files": list(files.files),
                "count": files.count,
            }
            for termination in ended
            if (files := termination.remaining_files)
        ],
        "failed": [error.as_dict() for error in errors],
        "others": [{"name": machine.name, "id": machine.id, "owner": machine.owner} for machine in to_end.others],
        **queried_accounts_document(to_end.queried, to_end.not_queried),
    }
    return document, worst_of(errors)


def _named_resources(ended: Sequence[Termination]) -> list[NamedResource]:
    """Return the named volumes and images of these machines that stay, each once."""
    resources = {resource.id: resource for termination in ended for resource in termination.named_resources}
    if not resources:
        return []
    from cloudgpu.control.resources.named import named_resource_document

    return [named_resource_document(resource) for resource in resources.values()]


def _group_by_cluster(machines: Sequence[Machine]) -> list[list[Machine]]:
    """Return the nodes of each cluster as one group, in their order, and each other machine as a group of its own."""
    groups: dict[str, list[Machine]] = {}
    for machine in machines:
        groups.setdefault(machine.cluster_node.id if machine.cluster_node else machine.id, []).append(machine)
    return [sorted(group, key=node_of) for group in groups.values()]


def _end_parallel(session: Session, groups: Sequence[Sequence[Machine]]) -> list[Termination | CloudgpuError]:
    """End the groups in parallel, so that one that is slow to end delays no other."""
    return list(chain.from_iterable(call_for_each(session, _end_group, groups, MAX_PARALLEL, "machines")))


def _end_group(session: Session, machines: Sequence[Machine]) -> list[Termination | CloudgpuError]:
    """End a machine, or the nodes of one cluster; return what became of each, errors instead of raising them."""
    machine = machines[0]
    if engine_of_machine(machine) == "slurm":
        record_external_jobs(session, machines)
        remove_engine_from_owned(session, machines)
    try:
        if machine.cluster_node is not None:
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
