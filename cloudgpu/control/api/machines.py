"""The library's methods for machines, and for the disks and images that are kept after their end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from cloudgpu.control.api.namespace import Namespace
from cloudgpu.control.clusters.together import call_for_each
from cloudgpu.control.inputs.launch_request import (
    UpOptions,
    check_reason,
    parse_future_moment,
    parse_optional_duration,
    parse_request,
)
from cloudgpu.control.inventory.listing import build_cluster_document, build_machine_document, list_machines
from cloudgpu.core.model.machine import Machine, command_name
from cloudgpu.core.model.resources import Kind
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.providers.shared.calls import result_or_error

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


class Machines(Namespace):
    """`connect().machines`: launch, list, connect to, stop and end machines; their disks and images that are kept.

    A machine is named by its name or id; the name may be left out (None) if there is only one.
    """

    def plan(self, **options: Unpack[UpOptions]) -> PlannedUpDocument:
        """Return what `up` would launch with the same arguments, or the existing machine that it would return.

        Raises InvalidRequest for an invalid argument, NoCapacity if no offer fits.
        """
        from cloudgpu.control.launch.budget_preview import build_plan_document
        from cloudgpu.control.launch.plan import prepare

        return build_plan_document(
            self._session, prepare(self._session, replace(parse_request(**options), interactive=True))
        )

    def up(self, *, wait: bool = True, **options: Unpack[UpOptions]) -> UpDocument:
        """Launch a machine, or return the one that the same request has launched; wait until SSH is verified.

        This spends money without confirmation: `plan` says how much first. Without `wait` it returns once the provider
        has accepted. Raises the provider's errors (NoCapacity, QuotaExceeded, ...), LaunchUncertain if the same call
        has to be repeated to resolve the launch, Unreachable for a machine that ended while it started (it is removed),
        BudgetRefused, with the sums, if a budget does not allow it and no `override` gives a reason.
        """
        from cloudgpu.control.access.on_start import on_start_state_of
        from cloudgpu.control.launch.launch import launch, launch_document
        from cloudgpu.control.launch.plan import prepare

        request = replace(parse_request(**options), interactive=True)
        prepared = prepare(self._session, request)
        launched = launch(self._session, prepared, wait=wait)
        is_reachable = wait and launched.machine.state == "running"
        on_start = on_start_state_of(self._session, launched.machine, prepared.template) if is_reachable else None
        return launch_document(self._session, prepared, launched, on_start)

    def ls(self, *, refresh: bool = False, all: bool = False, mine: bool = False) -> LsDocument:  # noqa: A002  (option)
        """Return the machines that have not ended (with `all` every one), by the ledger; `refresh` asks the clouds.

        With `mine` only those of the settings' owner. An account that does not answer raises nothing: it is named under
        `unanswered`, its machines are as last seen.
        """
        queues = None
        if refresh:
            from cloudgpu.control.clusters.engine import query_queue_texts

            queues = query_queue_texts(self._session, self._session.ledger.present_machines())
        return list_machines(self._session, refresh=refresh, ended=all, mine=mine, queues=queues)

    def show(
        self, name: str | None = None, *, refresh: bool = False, history: bool = False, why: bool = False
    ) -> ShownDocument:
        """Return one machine, also an ended one; with `history` also its ledger entries.

        For a cluster, a `ShownClusterDocument`: it has the same keys, with sums, and its nodes under `machines`. With
        `why`, the evidence by which the machine counts as in use, idle or unknown, and when it would be ended;
        `refresh` asks its provider, and for `why` the machine itself.
        """
        from cloudgpu.control.api.show import show_document

        return show_document(self._session, name, refresh=refresh, history=history, why=why)

    def exec(self, name: str | None, argv: Sequence[str], *, input: bytes = b"") -> Completed:  # noqa: A002
        """Run a command there and return its `status`, `stdout` and `stderr`; a status that is not 0 raises nothing.

        The arguments `argv` arrive unchanged, without a shell. Raises Unreachable if the connection is lost, Frozen if
        the machine stops answering. The output is collected in memory.
        """
        _check_argv(argv)
        return _execute(self._session, self._session.find(name), argv, input)

    def exec_all(self, name: str, argv: Sequence[str]) -> Mapping[str, Completed | CloudgpuError]:
        """Run a command on every node of a cluster in parallel, without input; return the results by node name.

        A node that cannot be reached has its error instead of a result. For a machine without a cluster there is one
        result.
        """
        _check_argv(argv)
        machines = self._session.find_machine_or_nodes(name, running=True)
        results = call_for_each(
            self._session,
            lambda session, machine: result_or_error(_execute, session, machine, argv, None),
            machines,
            len(machines),
            "nodes",
        )
        return dict(zip([machine.name for machine in machines], results, strict=True))

    def bench_network(
        self,
        name: str,
        other: str | None = None,
        *,
        seconds: int = 5,
        expected: float | None = None,
        tool: str | None = None,
    ) -> NetworkBenchDocument:
        """Measure how fast the nodes of a cluster, or two machines in one zone, send to each other.

        `seconds` (1 to 10) is how long iperf3 sends; `expected` is the network's Gbit/s, if not that of the machine
        type; `tool` is `iperf3` or `nccl-tests` (None: nccl-tests if it can run). Raises InvalidRequest if the tool is
        missing or the traffic would be billed, Unreachable if the machines do not reach each other.
        """
        from cloudgpu.control.clusters.bench import bench_network, parse_tool

        return bench_network(self._session, name, other, seconds=seconds, nominal_gbit=expected, tool=parse_tool(tool))

    def cp(self, sources: str | Path | Sequence[str | Path], destination: str | Path) -> CopyDocument:
        """Copy files or directories to a machine or from it: `"NAME:PATH"` on one side, relative to its home directory.

        Other kinds of files are left out and listed under `skipped`. If a path could not be copied, raises its error
        after all others are copied.
        """
        from cloudgpu.access.copy.copy import copy, machine_of
        from cloudgpu.control.access.reach import connected_to

        source_list = [sources] if isinstance(sources, str | Path) else sources
        paths, target = [str(source) for source in source_list], str(destination)
        with connected_to(self._session, self._session.find(machine_of(paths, target))) as connection:
            copied = copy(connection, paths, target)
        for error in copied.failed[:1]:
            error.add_note(f"Copied: {copied.files} files. Not copied: {len(copied.failed)}.")
            raise error
        return copy_document(copied)

    def tunnel(self, name: str | None = None, *, port: int = FIRST_PORT) -> JupyterTunnel:
        """Return a tunnel to the machine's JupyterLab: open in its `with` block, or from `open` to `close`.

        While it is open, `run` runs a notebook cell there, and it has `port`, `token`, `url` (which has the token: keep
        it secret) and `document()`. It takes the first free local port from `port` on. Lost connections are opened
        again; Jupyter continues to run afterwards.
        """
        from cloudgpu.access.tunnel.background import check_port
        from cloudgpu.control.access.jupyter import JupyterTunnel

        check_port(port)
        return JupyterTunnel(self._session, self._session.find(name), first_port=port)

    def stop(self, name: str | None = None) -> MachineDocument:
        """Stop a machine, or park it if it cannot be stopped; return it once it is confirmed that it is not billed.

        The name of a cluster stops all its nodes, as `start`, `hold`, `extend` and `down` act on all of them: what they
        return has the keys of a machine, with sums, and the nodes under `machines`. If a node failed, raises the
        gravest error; its notes (`__notes__`) have the states of the nodes.
        """
        from cloudgpu.control.lifecycle.lifecycle import stop
        from cloudgpu.control.outage.outage import find_to_stop

        machines = find_to_stop(self._session, name)
        if machines[0].cluster_node is not None:
            from cloudgpu.control.clusters.power import stop_all

            return self._cluster_document(stop_all(self._session, machines, why="asked by the user"))
        return build_machine_document(self._session, stop(self._session, machines[0], why="asked by the user"))

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
        """Start a stopped machine under a new lease (None: as long as its policy says), and wait until SSH is verified.

        A parked machine, or one that was interrupted, is launched again from its image. With `move`, a stopped machine
        is saved as an image and launched elsewhere in its region, on any type with the same GPUs. Both respect the
        `max_price` of the launch, unless you give another one (USD per hour). Raises NoCapacity, which leaves the
        machine as it was; BudgetRefused, as `up`; InvalidRequest if only the reaper could end it and no scheduled run
        of it is recorded, unless `no_guard`.
        """
        from cloudgpu.control.launch.restore import check_max_price, start_machine
        from cloudgpu.core.values.typed import parse_price

        machine, *other_nodes = self._session.find_all_nodes(name, "start")
        lease_duration, renew_duration = (
            parse_optional_duration(lease, "--lease"),
            parse_optional_duration(renew_until, "--renew-until"),
        )
        override_reason = check_reason(override)
        hourly_limit = None if max_price is None else parse_price(str(max_price))
        if machine.cluster_node is not None:
            check_max_price(machine, hourly_limit, move_it=move)
            from cloudgpu.control.clusters.start import check_no_move_option, start_all
            from cloudgpu.control.lifecycle.start import new_lease

            check_no_move_option(machine, move=move)
            lease_to_set = new_lease(self._session, machine, lease_duration, renew_duration)
            nodes = [machine, *other_nodes]
            return self._cluster_document(
                start_all(self._session, nodes, lease_to_set, override=override_reason, no_guard=no_guard, wait=wait)
            )
        return build_machine_document(
            self._session,
            start_machine(
                self._session,
                machine,
                lease_duration,
                renewable_for=renew_duration,
                override=override_reason,
                move_it=move,
                wait=wait,
                no_guard=no_guard,
                max_price=hourly_limit,
            ),
        )

    def hold(
        self, name: str | None, until: datetime | timedelta | str | None = None, *, release: bool = False
    ) -> MachineDocument:
        """Keep a machine from being ended by its lease until a time, or for a time from now; or `release` it.

        If something else would end it earlier, that is reported through `tell` of `connect`.
        """
        from cloudgpu.control.lifecycle.lease import check_hold_options, hold_caveat, set_hold
        from cloudgpu.control.team.authorization import check_right_and_claim_owner

        session = self._session
        machine, *other_nodes = session.find_all_nodes(name, "hold")
        check_right_and_claim_owner(session, machine, "hold")
        check_hold_options(command_name(machine), until, release=release)
        held_until = None if until is None else parse_future_moment(until, "UNTIL", session.clock())
        caveat = held_until and hold_caveat(session, machine, held_until)
        if caveat:
            session.report(caveat)
        if machine.cluster_node is not None:
            from cloudgpu.control.clusters.lease import hold_all

            return self._cluster_document(hold_all(session, [machine, *other_nodes], held_until))
        return build_machine_document(self._session, set_hold(session, machine, held_until))

    def extend(self, name: str | None, by: timedelta | str, *, override: str | None = None) -> MachineDocument:
        """Extend a machine's lease, counted from its end; `renew_until` moves too if the lease would exceed it.

        Raises BudgetRefused if a budget does not allow it.
        """
        from cloudgpu.control.lifecycle.lease import extend, plan_extension

        added_duration = parse_optional_duration(by, "BY")
        if added_duration is None:
            raise InvalidRequest("Say by how much.", field="BY", value=None, next="For example 4h.")
        machine, *other_nodes = self._session.find_all_nodes(name, "extend")
        override_reason = check_reason(override)
        if machine.cluster_node is not None:
            from cloudgpu.control.clusters.lease import extend_all, plan_extension_of_all

            planned = plan_extension_of_all(self._session, [machine, *other_nodes], added_duration)
            return self._cluster_document(extend_all(self._session, planned, override=override_reason))
        return build_machine_document(
            self._session,
            extend(self._session, plan_extension(self._session, machine, added_duration), override=override_reason),
        )

    def down(self, *names: str, all: bool = False) -> DownDocument:  # noqa: A002  (the option's name)
        """End machines and all resources of their launches, and confirm it; without a name the only one there is.

        Each machine is tried. If one could not be ended, or its end not confirmed, raises the gravest error; its notes
        (`__notes__`) say which machines have ended.
        """
        from cloudgpu.control.api.down import end_machines, machines_to_end

        if all and not names:
            self._session.check_ever_used(self._client_session.environ)
        self._session.check_can_end_machines()
        document, gravest = end_machines(self._session, machines_to_end(self._session, names, all_=all))
        if gravest is None:
            return document
        ended = ", ".join(machine["name"] for machine in document["terminated"])
        gravest.add_note(f"Proved gone: {ended or 'none'}. Not proved: {len(document['failed'])}.")
        raise gravest

    def save_image(self, name: str | None, image: str | None = None, *, restart: bool = True) -> NamedResource:
        """Save a running or stopped machine as an image under a name, and return it once it is ready.

        A running machine is restarted for it unless `restart` is false: files being written may then be incomplete.
        """
        from cloudgpu.control.resources.named import named_resource_document, save_image

        return named_resource_document(save_image(self._session, self._session.find(name), image, restart=restart))

    def images(self) -> ImagesDocument:
        """Return the named images, with what they cost; accounts that did not answer are under `unanswered`."""
        from cloudgpu.control.resources.named import images_document, list_named

        return images_document(list_named(self._session, Kind.IMAGE))

    def remove_image(self, name: str, *, region: str | None = None) -> RemovedDocument:
        """Remove an image, and confirm that it is gone."""
        return self._remove(Kind.IMAGE, name, region)

    def volumes(self) -> VolumesDocument:
        """Return the data volumes, with what they cost; accounts that did not answer are under `unanswered`."""
        from cloudgpu.control.resources.named import list_named, volumes_document

        return volumes_document(list_named(self._session, Kind.VOLUME))

    def remove_volume(self, name: str, *, region: str | None = None) -> RemovedDocument:
        """Remove a data volume with all its data, and confirm that it is gone."""
        return self._remove(Kind.VOLUME, name, region)

    def _remove(self, kind: Kind, name: str, region: str | None) -> RemovedDocument:
        from cloudgpu.control.resources.named import find_named, named_resource_document, remove

        resource = find_named(self._session, kind, name, region)
        remove(self._session, resource)
        return {"removed": named_resource_document(resource)}

    def rehearse(self, name: str | None = None) -> InterruptionDocument:
        """Rehearse a spot interruption: the machine gets its notice, and is then taken away."""
        from cloudgpu.control.lifecycle.interruption import rehearsal_document, rehearse

        machine = self._session.find_one(name, "a rehearsal")
        return rehearsal_document(machine, rehearse(self._session, machine))

    def allow(self, name: str | None = None, *, from_: str | None = None, from_any: bool = False) -> AllowDocument:
        """Open SSH of one machine, or of all, to this client's address (or to `from_`, a CIDR) instead of the last one.

        Each machine is tried. If one of several failed, raises the gravest error.
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
        """Let a colleague's public key (a file) log in until the machine ends; or `remove` it (None: every shared key).

        `from_` is the network they connect from, a CIDR or `same`: required if the provider has SSH rules.
        """
        from cloudgpu.access.ssh.authorized_keys import read_public_key
        from cloudgpu.control.access.share import check_from, share, unshare

        shared_key = None if key is None else read_public_key(Path(key))
        if shared_key is None and not remove:
            raise InvalidRequest(
                "--key is missing: which public key may log in?",
                field="--key",
                value=None,
                next="Name the file of a public key.",
            )
        check_from(from_, remove=remove)
        machine = self._session.find(name)
        if remove or shared_key is None:
            return unshare(self._session, machine, shared_key)
        return share(self._session, machine, shared_key, from_=from_)

    def _cluster_document(self, result: ClusterResult) -> ClusterMachinesDocument:
        """Return the document of a cluster; raise the gravest error if one of its machines failed."""
        if result.worst is not None:
            result.worst.add_note("; ".join(f"{machine.name}: {machine.state}" for machine in result.machines))
            raise result.worst
        return build_cluster_document(self._session, result.machines)


def _check_argv(argv: Sequence[str]) -> None:
    if isinstance(argv, str):
        example = 'For example ["nvidia-smi", "-L"], or ["sh", "-c", "..."] for a shell.'
        raise InvalidRequest("A command is a list of words.", field="CMD", value=argv, next=example)


def _execute(session: Session, machine: Machine, argv: Sequence[str], stdin: bytes | None) -> Completed:
    from cloudgpu.access.ssh.connection import Completed
    from cloudgpu.access.ssh.execute import run
    from cloudgpu.control.access.reach import connected_to

    out, err = BytesIO(), BytesIO()
    with connected_to(session, machine) as connection:
        status = run(connection, argv, stdin=None if stdin is None else BytesIO(stdin), stdout=out, stderr=err)
    return Completed(status, out.getvalue(), err.getvalue())


def copy_document(copied: Copied) -> CopyDocument:
    """Return the document of `cp`."""
    failed = [error.as_dict() for error in copied.failed]
    return {"files": copied.files, "bytes": copied.bytes, "skipped": list(copied.skipped), "failed": failed}
