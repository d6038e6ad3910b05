"""What the library does with machines, and with the disks and images that outlive them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from cloudgpu.control.api.capability import Capability
from cloudgpu.control.inputs.launch_request import UpOptions, check_reason, duration, moment, parse_request
from cloudgpu.control.inventory.listing import cluster, list_machines, machine
from cloudgpu.core.model.machine import Machine, command_name
from cloudgpu.core.model.resources import Kind
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.parallel import Pool

if TYPE_CHECKING:
    from cloudgpu.access.copy.copy import Copied
    from cloudgpu.access.ssh.connection import Completed
    from cloudgpu.control.access.jupyter import JupyterTunnel
    from cloudgpu.control.clusters.together import ClusterResult
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.access import (
        AllowDocument,
        CopyDocument,
        NetworkBenchDocument,
        ShareDocument,
    )
    from cloudgpu.views.documents.machines.ended import DownDocument
    from cloudgpu.views.documents.machines.machines import (
        ClusterMachinesDocument,
        InterruptionDocument,
        LsDocument,
        MachineDocument,
        PlannedUpDocument,
        ShownDocument,
        UpDocument,
    )
    from cloudgpu.views.documents.machines.storage import (
        ImagesDocument,
        NamedResource,
        RemovedDocument,
        VolumesDocument,
    )

FIRST_PORT = 8888


class Machines(Capability):
    """`connect().machines`: launch, list, reach, stop and end machines, and what outlives them.

    A machine is named by its name or id; the name may be left out (None) when there is only one.
    """

    def plan(self, **asked: Unpack[UpOptions]) -> PlannedUpDocument:
        """Return what `up` would launch with the same arguments, and the machine that it would return instead.

        Raises InvalidRequest for an argument that cannot be read, NoCapacity when nothing fits.
        """
        from cloudgpu.control.launch.budget_preview import plan_document
        from cloudgpu.control.launch.plan import prepare

        return plan_document(self._session, prepare(self._session, replace(parse_request(**asked), by_hand=True)))

    def up(self, *, wait: bool = True, **asked: Unpack[UpOptions]) -> UpDocument:
        """Launch a machine, or return the one that the same request has launched; wait until SSH is verified.

        This spends money without asking: `plan` says how much first. Without `wait` it returns once the provider has
        accepted. Raises what the provider says (NoCapacity, QuotaExceeded, ...), LaunchUncertain where the same call
        has to be made again to settle it, Unreachable for a machine that ended while it started (it is removed),
        BudgetRefused, with the sums, where a budget does not allow it and no `override` says why it is to.
        """
        from cloudgpu.control.access.on_start import on_start_of
        from cloudgpu.control.launch.launch import launch, launch_document
        from cloudgpu.control.launch.plan import prepare

        request = replace(parse_request(**asked), by_hand=True)
        prepared = prepare(self._session, request)
        done = launch(self._session, prepared, wait=wait)
        reached = wait and done.machine.state == "running"
        on_start = on_start_of(self._session, done.machine, prepared.template) if reached else None
        return launch_document(self._session, prepared, done, on_start)

    def ls(self, *, refresh: bool = False, all: bool = False, mine: bool = False) -> LsDocument:  # noqa: A002  (option)
        """Return the living machines (with `all` every one) as the ledger knows them; `refresh` asks the clouds.

        With `mine` only those that the settings' owner has. An account that does not answer raises nothing: it is named
        under `unanswered`, its machines as last seen.
        """
        queues = None
        if refresh:
            from cloudgpu.control.clusters.engine import queues_of

            queues = queues_of(self._session, self._session.ledger.present_machines())
        return list_machines(self._session, refresh=refresh, ended=all, mine=mine, queues=queues)

    def show(
        self, name: str | None = None, *, refresh: bool = False, history: bool = False, why: bool = False
    ) -> ShownDocument:
        """Return one machine, ended ones too; with `history` also its lines of the ledger.

        Of a cluster, a `ShownClusterDocument`: it has the same keys, with sums, and its nodes under `machines`.

        With `why`, by which signs it counts as in use, idle or unknown, and when it would be ended; `refresh` asks it.
        """
        from cloudgpu.control.api.show import show_document

        return show_document(self._session, name, refresh=refresh, history=history, why=why)

    def exec(self, name: str | None, argv: Sequence[str], *, input: bytes = b"") -> Completed:  # noqa: A002
        """Run a command there and return its `status`, `stdout` and `stderr`; a status that is not 0 raises nothing.

        Every word of `argv` arrives as it is, without a shell. Raises Unreachable when the connection is lost, Frozen
        when the machine falls silent. All that the command writes is held in memory.
        """
        _check_words(argv)
        return _executed(self._session, self._session.find(name), argv, input)

    def exec_all(self, name: str, argv: Sequence[str]) -> Mapping[str, Completed | CloudgpuError]:
        """Run a command on every node of a cluster at once, without input; return by node what `exec` would.

        A node that cannot be reached has the error instead, and keeps no other one from its answer. A machine of its
        own has one answer.
        """
        _check_words(argv)
        machines = self._session.find_any(name, running=True)

        def run_on(machine: Machine) -> Completed | CloudgpuError:
            try:
                with self._session.for_thread() as own:
                    return _executed(own, machine, argv, None)
            except CloudgpuError as error:
                return error

        with Pool(len(machines), "nodes") as pool:
            return dict(zip([row.name for row in machines], pool.map(run_on, machines), strict=True))

    def bench_network(
        self,
        name: str,
        other: str | None = None,
        *,
        seconds: int = 5,
        expected: float | None = None,
        tool: str | None = None,
    ) -> NetworkBenchDocument:
        """Measure how fast the nodes of a cluster, or two machines in one place, send to each other.

        `seconds` (1 to 10) is how long iperf3 sends, `expected` the network's Gbit/s instead of the type's, `tool`
        `iperf3` or `nccl-tests`; None: nccl-tests where they can. Raises InvalidRequest where the tool is missing or
        the traffic would be billed, Unreachable where the machines do not reach each other.
        """
        from cloudgpu.control.clusters.bench import bench_network, parse_tool

        return bench_network(self._session, name, other, seconds=seconds, expected=expected, tool=parse_tool(tool))

    def cp(self, sources: str | Path | Sequence[str | Path], destination: str | Path) -> CopyDocument:
        """Copy files or directories to a machine or from it: `"NAME:PATH"` on one side, relative to its home.

        What was left out, being neither file nor directory, stands under `skipped`. Raises the first error where a path
        could not be copied; the others were.
        """
        from cloudgpu.access.copy.copy import copy, machine_of
        from cloudgpu.control.access.reach import reached

        given = [sources] if isinstance(sources, str | Path) else sources
        words, target = [str(source) for source in given], str(destination)
        with reached(self._session, self._session.find(machine_of(words, target))) as connection:
            done = copy(connection, words, target)
        for error in done.failed[:1]:
            error.add_note(f"Copied: {done.files} files. Not copied: {len(done.failed)}.")
            raise error
        return copy_document(done)

    def tunnel(self, name: str | None = None, *, port: int = FIRST_PORT) -> JupyterTunnel:
        """Return a tunnel to the machine's JupyterLab: open in its `with` block, or from `open` to `close`.

        While it is open, `run` runs a notebook cell there, and it has `port`, `token` and `url` (which holds the token:
        keep it to yourself), and `document()`. The first free port from `port` on is taken. Lost connections are made
        again; Jupyter lives on afterwards.
        """
        from cloudgpu.access.tunnel.background import check_port
        from cloudgpu.control.access.jupyter import JupyterTunnel

        check_port(port)
        return JupyterTunnel(self._session, self._session.find(name), first_port=port)

    def stop(self, name: str | None = None) -> MachineDocument:
        """Stop a machine, or park it where it cannot be stopped; return it once it is proved not to be billed.

        A cluster is stopped as a whole, as `start`, `hold`, `extend` and `down` act on all of it: what they return has
        the keys of a machine, with sums, and its nodes under `machines`. Where one node failed, the gravest error is
        raised, and its notes (`__notes__`) say what the others have become.
        """
        from cloudgpu.control.lifecycle.lifecycle import stop
        from cloudgpu.control.outage.outage import find_to_stop

        machines = find_to_stop(self._session, name)
        if machines[0].gang is not None:
            from cloudgpu.control.clusters.power import stop_all

            return self._cluster(stop_all(self._session, machines, why="asked by the user"))
        return self._machine(stop(self._session, machines[0], why="asked by the user"))

    def start(
        self,
        name: str | None = None,
        *,
        lease: timedelta | str | None = None,
        renew_until: timedelta | str | None = None,
        override: str | None = None,
        wait: bool = True,
        move: bool = False,
        no_guard: bool = False,
        max_price: Decimal | str | float | None = None,
    ) -> MachineDocument:
        """Start a stopped machine under a new lease (as long as its policy says), and wait until SSH is verified.

        A parked machine, or one that was interrupted, is launched again from its image. With `move` a stopped one is
        imaged and launched elsewhere in its region, on any type with the same GPUs. Both keep to the `max_price` of
        the launch, unless you give another one (USD per hour). Raises NoCapacity: all stays,
        and BudgetRefused, as `up` does; InvalidRequest where only the reaper could end it and no scheduled run is
        heard, unless `no_guard`.
        """
        from cloudgpu.control.launch.restore import check_max_price, start_machine
        from cloudgpu.core.values.typed import parse_price

        machine, *others = self._session.find_all_nodes(name, "start")
        span, renew = duration(lease, "--lease"), duration(renew_until, "--renew-until")
        reason = check_reason(override)
        limit = None if max_price is None else parse_price(str(max_price))
        if machine.gang is not None:
            check_max_price(machine, limit, move_it=move)
            from cloudgpu.control.clusters.start import check_not_moved, start_all
            from cloudgpu.control.lifecycle.start import new_lease

            check_not_moved(machine, move=move)
            until = new_lease(self._session, machine, span, renew)
            nodes = [machine, *others]
            done = start_all(self._session, nodes, until, override=reason, no_guard=no_guard, wait=wait)
            return self._cluster(done)
        return self._machine(
            start_machine(
                self._session,
                machine,
                span,
                renew=renew,
                override=reason,
                move_it=move,
                wait=wait,
                no_guard=no_guard,
                max_price=limit,
            )
        )

    def hold(
        self, name: str | None, until: datetime | timedelta | str | None = None, *, release: bool = False
    ) -> MachineDocument:
        """Keep a machine from being ended by its lease until a time, or for a time from now; or `release` it.

        Where something else ends it before, `tell` is given the sentence that says so.
        """
        from cloudgpu.control.lifecycle.lease import check_hold, hold_caveat, set_hold
        from cloudgpu.control.team.authorization import check_may

        session = self._session
        machine, *others = session.find_all_nodes(name, "hold")
        check_may(session, machine, "hold")
        check_hold(command_name(machine), until, release=release)
        end = None if until is None else moment(until, "UNTIL", session.clock())
        loses = end and hold_caveat(session, machine, end)
        if loses:
            session.report(loses)
        if machine.gang is not None:
            from cloudgpu.control.clusters.lease import hold_all

            return self._cluster(hold_all(session, [machine, *others], end))
        return self._machine(set_hold(session, machine, end))

    def extend(self, name: str | None, by: timedelta | str, *, override: str | None = None) -> MachineDocument:
        """Make a machine's lease longer, counted from its end; past `renew_until` that end moves along.

        Raises BudgetRefused where a budget does not carry that.
        """
        from cloudgpu.control.lifecycle.lease import extend, plan_extension

        span = duration(by, "BY")
        if span is None:
            raise InvalidRequest("Say by how much.", field="BY", value=None, next="For example 4h.")
        machine, *others = self._session.find_all_nodes(name, "extend")
        reason = check_reason(override)
        if machine.gang is not None:
            from cloudgpu.control.clusters.lease import extend_all, plan_extension_of_all

            planned = plan_extension_of_all(self._session, [machine, *others], span)
            return self._cluster(extend_all(self._session, planned, override=reason))
        return self._machine(extend(self._session, plan_extension(self._session, machine, span), override=reason))

    def down(self, *names: str, all: bool = False) -> DownDocument:  # noqa: A002  (the option's name)
        """End machines and all that was made with them, and prove it; without a name the only one there is.

        Every one is tried. When the end of one failed or could not be proved, the gravest error is raised, and its
        notes (`__notes__`) say which machines are gone.
        """
        from cloudgpu.control.api.down import end_machines, machines_to_end

        if all and not names:
            self._session.check_ever_used(self._opened.environ)
        self._session.check_ends_here()
        document, gravest = end_machines(self._session, machines_to_end(self._session, names, all_=all))
        if gravest is None:
            return document
        gone = ", ".join(machine["name"] for machine in document["terminated"])
        gravest.add_note(f"Proved gone: {gone or 'none'}. Not proved: {len(document['failed'])}.")
        raise gravest

    def save_image(self, name: str | None, image: str | None = None, *, restart: bool = True) -> NamedResource:
        """Save a running or stopped machine as an image under a name, and return it once it is ready.

        A running machine restarts for it unless `restart` is false: what it writes then may be cut in two.
        """
        from cloudgpu.control.resources.named import leftover_value, save

        return leftover_value(save(self._session, self._session.find(name), image, restart=restart))

    def images(self) -> ImagesDocument:
        """Return the images that are kept by name, with what they cost; what did not answer is under `unanswered`."""
        from cloudgpu.control.resources.named import images_value, named

        return images_value(named(self._session, Kind.IMAGE))

    def remove_image(self, name: str, *, region: str | None = None) -> RemovedDocument:
        """Remove an image, and prove that it is gone."""
        return self._remove(Kind.IMAGE, name, region)

    def volumes(self) -> VolumesDocument:
        """Return the data volumes, with what they cost; what did not answer is under `unanswered`."""
        from cloudgpu.control.resources.named import named, volumes_value

        return volumes_value(named(self._session, Kind.VOLUME))

    def remove_volume(self, name: str, *, region: str | None = None) -> RemovedDocument:
        """Remove a data volume with all that is on it, and prove that it is gone."""
        return self._remove(Kind.VOLUME, name, region)

    def _remove(self, kind: Kind, name: str, region: str | None) -> RemovedDocument:
        from cloudgpu.control.resources.named import leftover_value, remove, the_one

        resource = the_one(self._session, kind, name, region)
        remove(self._session, resource)
        return {"removed": leftover_value(resource)}

    def rehearse(self, name: str | None = None) -> InterruptionDocument:
        """Rehearse a spot interruption: the machine gets its notice, and is then taken away."""
        from cloudgpu.control.lifecycle.interruption import rehearsal_document, rehearse

        machine = self._session.find_one(name, "a rehearsal")
        return rehearsal_document(machine, rehearse(self._session, machine))

    def allow(self, name: str | None = None, *, from_: str | None = None, from_any: bool = False) -> AllowDocument:
        """Open SSH to this client's address (or to `from_`, a CIDR) in place of the one before: on one machine or all.

        Every one is tried. When one of several failed, the gravest error is raised.
        """
        from cloudgpu.control.access.allowlist import allow, parse_network

        document, error = allow(self._session, name, parse_network(from_, any_source=from_any))
        if error:
            raise error
        return document

    def share(
        self,
        name: str | None,
        key: Path | str | None = None,
        *,
        from_: str | None = None,
        remove: bool = False,
    ) -> ShareDocument:
        """Let a colleague's public key (a file) in to a machine until it ends; or take it, or every one, out again.

        `from_` is where they come from, a CIDR or `same`: needed where the provider says who may connect.
        """
        from cloudgpu.access.ssh.authorized_keys import read_guest_key
        from cloudgpu.control.access.share import check_from, share, unshare

        guest = read_guest_key(Path(key)) if key else None
        if guest is None and not remove:
            raise InvalidRequest(
                "--key is missing: which public key may log in?",
                field="--key",
                value=None,
                next="Name the file of a public key.",
            )
        check_from(from_, remove=remove)
        machine = self._session.find(name)
        if remove or guest is None:
            return unshare(self._session, machine, guest)
        return share(self._session, machine, guest, from_=from_)

    def _machine(self, row: Machine) -> MachineDocument:
        return machine(self._session, row)

    def _cluster(self, done: ClusterResult) -> ClusterMachinesDocument:
        """Return a cluster with its machines; raise the gravest fault where one of them failed."""
        worst = done.worst
        if worst is None:
            return cluster(self._session, done.machines)
        worst.add_note("; ".join(f"{machine.name}: {machine.state}" for machine in done.machines))
        raise worst


def _check_words(argv: Sequence[str]) -> None:
    if isinstance(argv, str):
        way_out = 'For example ["nvidia-smi", "-L"], or ["sh", "-c", "..."] for a shell.'
        raise InvalidRequest("A command is a list of words.", field="CMD", value=argv, next=way_out)


def _executed(session: Session, machine: Machine, argv: Sequence[str], given: bytes | None) -> Completed:
    from cloudgpu.access.ssh.connection import Completed
    from cloudgpu.access.ssh.execute import run
    from cloudgpu.control.access.reach import reached

    out, err = BytesIO(), BytesIO()
    with reached(session, machine) as connection:
        status = run(connection, argv, stdin=None if given is None else BytesIO(given), stdout=out, stderr=err)
    return Completed(status, out.getvalue(), err.getvalue())


def copy_document(done: Copied) -> CopyDocument:
    """Return the answer of `cp`."""
    failed = [error.as_dict() for error in done.failed]
    return {"files": done.files, "bytes": done.bytes, "skipped": list(done.skipped), "failed": failed}
