"""A session: settings, ledger, providers and clock of one user, opened once per command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.control.session.base import SessionBase
from cloudgpu.core.model.machine import Machine, command_name, has_retained_resources, jump_host_of
from cloudgpu.core.values.naming import closest_match, did_you_mean
from cloudgpu.errors import InstanceNotFound, InvalidRequest, LedgerMoved, LedgerUnavailable, Unreachable
from cloudgpu.ledger.log.files import is_a_file
from cloudgpu.ledger.log.storage_errors import LedgerAway
from cloudgpu.ledger.open import open_ledger

if TYPE_CHECKING:
    from cloudgpu.access.ssh.target import Target
    from cloudgpu.config.templates.find import Template
    from cloudgpu.core.jobs.job import Job
    from cloudgpu.providers.base import Provider

_SYNC_KINDS = ("ledger_opened", "account_synced")  # the events that a sync alone writes


@dataclass
class Session(SessionBase):
    """What every verb works with. `report` is given one sentence per stage; `clock` returns aware UTC."""

    def provider_of(self, machine: Machine) -> Provider:
        """Return the provider of the account to which this machine belongs, by that account's identity.

        Raises NotReachableHere where no account of this computer is that one, and what the provider raises where its
        identity cannot be known.
        """
        return self.provider(self.account_name_here(machine))

    def account_name_here(self, machine: Machine) -> str:
        """Return the name that this machine's account has here; it may have another one in a colleague's settings.

        Raises as `provider_of` does.
        """
        from cloudgpu.control.session.identity import account_name_here

        return account_name_here(self, machine)

    @contextmanager
    def for_thread(self) -> Iterator[Session]:
        """Yield a session with a ledger connection of its own and the same providers, for another thread.

        While the ledger is away, all of them share what stands in for it: the entries are kept until it is back.
        """
        if self.ledger_away:
            yield replace(self)
            return
        ledger = open_ledger(self.settings.ledger_url, self.home.ledger, actor=self.settings.owner, clock=self.clock)
        try:
            yield replace(self, ledger=ledger)
        finally:
            ledger.close()

    def find(self, name: str | None, *, ended: bool = False, running: bool = False) -> Machine:
        """Return the machine called `name` (or the only one there is, for None).

        A living machine is preferred to one that is parked or retains a disk, and that to ended ones of the same name;
        with `ended`, the latest ended one is found, too.
        With `running`, None means the only one that runs, if one does. A cluster's name means its node 0.
        Raises InstanceNotFound for an unknown name, InvalidRequest when None leaves a choice.
        """
        machines = self.find_machine_or_nodes(name, ended=ended, running=running)
        if len(machines) == 1:
            return machines[0]
        from cloudgpu.core.clusters.members import first_node

        return first_node(machines)

    def find_machine_or_nodes(
        self, name: str | None, *, ended: bool = False, running: bool = False
    ) -> tuple[Machine, ...]:
        """Return the machine called `name`, or all nodes of the cluster; raise as `find` does."""
        return find_machine_or_nodes(self.ledger.machines(), name, self.clock(), ended=ended, running=running)

    def find_one(self, name: str | None, verb: str) -> Machine:
        """Return the machine called `name`, one node of a cluster too; raise as `find`, and for a cluster's name."""
        return single_machine(self.find_machine_or_nodes(name, ended=True), name, verb)

    def find_all_nodes(self, name: str | None, verb: str, *, ended: bool = False) -> tuple[Machine, ...]:
        """Return the machine called `name`, or all nodes of the cluster, for a verb that acts on whole clusters.

        Raises as `find` does, and InvalidRequest where one node of a cluster is named.
        """
        return find_all_nodes(self.ledger.machines(), name, verb, self.clock(), ended=ended)

    def target(self, machine: Machine) -> Target:
        """Return where this machine's SSH server was last seen; raise Unreachable when it has no address."""
        from cloudgpu.access.ssh.target import Target
        from cloudgpu.core.model.instances import Address

        if machine.address is None and has_retained_resources(machine):
            raise Unreachable(
                f"{machine.name} does not run; its disk remains.",
                field="name",
                value=machine.name,
                next=f"Run: cloudgpu start {command_name(machine)}",
            )
        if machine.address is None:
            raise Unreachable(
                f"{machine.name} has no address: it was last seen {machine.state}.",
                field="name",
                value=machine.name,
                next=f"Run: cloudgpu show {machine.name} --refresh",
            )
        address = Address(*machine.address)
        return Target(
            machine.id, machine.name, address, self.client_key_file, self.home.known_hosts, jump_host_of(machine)
        )

    @property
    def client_key_file(self) -> Path:
        """The private key that logs in to every machine."""
        return self.home.keys / "id_ed25519"

    def template_paths(self) -> tuple[Path, ...]:
        """Return where templates are looked for before the shipped ones: the project's, then the user's own."""
        from cloudgpu.config.files.user_files import project_dirs

        return (*project_dirs("templates"), self.home.templates)

    def find_template(self, name: str | None) -> Template:
        """Return the template called `name` (None: the default) with the user's settings.

        Reports its file where it is not a shipped one. Raises InvalidRequest as `load_template` does.
        """
        from cloudgpu.config.files.user_files import data_dir
        from cloudgpu.config.templates.find import load_template

        template_name = self.settings.template if name is None else name
        template = load_template(template_name, search=self.template_paths(), settings=self.settings.templates)
        if template.path.parent != data_dir("templates"):  # a project's template runs commands of its author
            self.report(f"the template {template.name} is from {template.path}")
        return template

    def integrity_problem(self) -> str | None:
        """Return why the ledger may be incomplete: its own checks, or what a sync found; None where all is well."""
        problem = self.ledger.integrity_problem()
        if problem is not None:
            return problem
        last_event = self.ledger.last("ledger")
        return str(last_event.body["why"]) if last_event is not None and last_event.kind == "ledger_doubted" else None

    def check_can_end_machines(self) -> None:
        """Raise LedgerMoved where the ledger has moved; where it is away, machines are ended without it."""
        with suppress(LedgerAway):
            self.ledger.last("ledger")
            self.ledger.check_in_use()

    def moved_sentence(self) -> str | None:
        """Return the sentence that the ledger has moved, and how to follow it; None for one that is in use."""
        try:
            self.ledger.check_in_use()
        except LedgerMoved as moved:
            return f"{moved.message} {moved.next}"
        return None

    def check_home_exists(self) -> None:
        """Raise LedgerUnavailable where this home is gone, for unattended runs.

        Mostly its disk is not mounted: a new ledger there would have no machine, and all would seem well.
        """
        if not self.home.root.is_dir():
            raise LedgerUnavailable(
                f"The directory {self.home.root} is not there, and the ledger with it: no machine was checked.",
                field="CLOUDGPU_HOME",
                value=str(self.home.root),
                next="Mount it, or put it back. If it is gone for good: cloudgpu cron remove",
            )

    def check_ever_used(self, environ: Mapping[str, str]) -> None:
        """Raise InvalidRequest where nothing was ever recorded, for verbs that report on all machines.

        Mostly CLOUDGPU_HOME or CLOUDGPU_LEDGER is mistyped.
        """
        self.check_ledger_exists(environ)
        if environ.get("CLOUDGPU_LEDGER") or self.home.config_file.exists():
            return
        try:  # a sync creates a ledger, too
            is_used = any(event.kind not in _SYNC_KINDS for event in self.ledger.events())
        except LedgerUnavailable:  # the verb reports that, or works without it
            return
        if not is_used:
            raise InvalidRequest(
                f"Nothing was ever launched from {self.home.root}, and it has no config.toml: no machine was checked.",
                field="CLOUDGPU_HOME",
                value=str(self.home.root),
                next="Check CLOUDGPU_HOME. To begin there: cloudgpu init, or cloudgpu up",
            )

    def check_ledger_exists(self, environ: Mapping[str, str]) -> None:
        """Raise InvalidRequest where there never was a ledger."""
        if self.ledger.remembered_id() or self.ledger.id:  # in this order: a database that is down existed once
            return
        setting = "CLOUDGPU_LEDGER" if environ.get("CLOUDGPU_LEDGER") else "CLOUDGPU_HOME"
        own_head = self.ledger.outbox.path.with_suffix(".head")
        has_other_head = any(head.stat().st_size for head in self.home.ledger.glob("*.head") if head != own_head)
        if setting == "CLOUDGPU_HOME" and has_other_head:
            setting = "ledger"
        is_file = is_a_file(self.ledger.location)  # a mistyped database raises by itself
        if (setting == "CLOUDGPU_LEDGER" and is_file) or has_other_head or not self.home.config_file.exists():
            hint = " in config.toml" if setting == "ledger" else ""
            raise InvalidRequest(
                f"There is no ledger at {self.ledger.location}, and never was one: no machine was checked.",
                field=setting,
                value=str(self.home.root) if setting == "CLOUDGPU_HOME" else self.ledger.location,
                next=f"Check {setting}{hint}. To begin there: cloudgpu init, or cloudgpu up",
            )

    def check_launchable(self) -> None:
        """Raise LedgerUnavailable where the ledger may be incomplete or the clock is wrong; stops still work."""
        problem = self.integrity_problem()
        if problem is not None:
            raise LedgerUnavailable(
                f"Launches are refused while the ledger may be incomplete: {problem}",
                field="ledger",
                value=str(self.home.ledger),
                next="Run: cloudgpu cost --verify --yes (it checks the ledger against the providers, and repairs it); "
                "ls, stop and down work meanwhile.",
            )


def living_machines(machines: list[Machine]) -> list[Machine]:
    """Return the machines that are not proved to be gone."""
    return [machine for machine in machines if machine.terminated_at is None]


def present_machines(machines: list[Machine]) -> list[Machine]:
    """Return the machines that are not proved to be gone, or that retain resources."""
    return [machine for machine in machines if machine.terminated_at is None or has_retained_resources(machine)]


def single_machine(machines: tuple[Machine, ...], name: str | None, verb: str) -> Machine:
    """Return the machine that was found; raise InvalidRequest where `name` is a cluster's, and has several."""
    if machines[0].cluster_node is None or name in (machines[0].name, machines[0].id):
        return machines[0]
    raise InvalidRequest(
        f"{machines[0].cluster_node.name} is a cluster, and {verb} is about one machine.",
        field="name",
        value=name,
        next=f"Name one of its nodes: {', '.join(machine.name for machine in machines[:8])}",
    )


def find_all_nodes(
    machines: list[Machine], name: str | None, verb: str, now: datetime, *, ended: bool = False
) -> tuple[Machine, ...]:
    """Return the machine meant by `name`, or all nodes of a cluster, as `Session.find_all_nodes` says."""
    found = find_machine_or_nodes(machines, name, now, ended=ended)
    if found[0].cluster_node is None:
        return found
    from cloudgpu.core.clusters.members import require_whole_cluster

    require_whole_cluster(found[0], name, verb)
    return found


def find_machine_or_nodes(
    machines: list[Machine], name: str | None, now: datetime, *, ended: bool = False, running: bool = False
) -> tuple[Machine, ...]:
    """Return the machine, or the nodes of the cluster, that `name` means, by a name or a cloudgpu-id."""
    living = living_machines(machines)
    if name is None:
        now_running = [machine for machine in living if machine.state == "running"] if running else []
        return _only_machine(now_running or living or present_machines(machines))
    for candidates in (living, present_machines(machines), machines if ended else []):
        found = [machine for machine in candidates if name in (machine.name, machine.id)]
        if found:
            return (found[-1],)
        if any(
            machine.cluster_node and name in (machine.cluster_node.name, machine.cluster_node.id)
            for machine in candidates
        ):
            from cloudgpu.core.clusters.members import members

            return members(machines, name, ended=ended)
    raise _unknown_error(name, machines, now)


def _only_machine(living: list[Machine]) -> tuple[Machine, ...]:
    """Return the only machine, or the nodes of the only cluster. Raises InstanceNotFound for none, InvalidRequest."""
    if len(living) == 1:
        return (living[0],)
    if not living:
        raise InstanceNotFound("No machine is running.", field="name", value=None, next="Run: cloudgpu up")
    if living[0].cluster_node and all(
        machine.cluster_node and machine.cluster_node.id == living[0].cluster_node.id for machine in living
    ):
        from cloudgpu.core.clusters.members import members

        return members(living, living[0].cluster_node.id)
    names = list(
        dict.fromkeys(machine.cluster_node.name if machine.cluster_node else machine.name for machine in living)
    )
    raise InvalidRequest(
        f"There are {len(living)} machines; name the one you mean.",
        field="name",
        value=None,
        next=f"One of: {', '.join(names[:8])}",
    )


def _unknown_error(name: str, machines: list[Machine], now: datetime) -> InstanceNotFound:
    from cloudgpu.views.ended import ended_error

    ended = [
        machine
        for machine in machines
        if name
        in (
            machine.name,
            machine.id,
            *((machine.cluster_node.name, machine.cluster_node.id) if machine.cluster_node else ()),
        )
    ]
    if ended:
        return ended_error(ended[-1], now)
    present = present_machines(machines)
    names = [machine.name for machine in present] + [
        machine.cluster_node.name for machine in present if machine.cluster_node
    ]
    return InstanceNotFound(
        f"No machine is called {name!r}" + did_you_mean(closest_match(name, names), "."),
        field="name",
        value=name,
        next="Run: cloudgpu ls" + (" --all" if machines else ", or: cloudgpu up"),
    )


def all_jobs(session: Session) -> dict[str, Job]:
    """Return every job of the ledger by its id, oldest first.

    Not in the same read as the machines: a job event more or less moves costs between machines, and changes no sum.
    """
    from cloudgpu.core.events.job_events import SUBJECT
    from cloudgpu.core.jobs.job import jobs_of  # `ls` does without

    return jobs_of(session.ledger.events(SUBJECT))
