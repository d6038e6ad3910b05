"""Opens Jupyter on a machine through the tunnel, and asks the agent there what it sees."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from cloudgpu.access.jupyter import client as jupyter
from cloudgpu.access.tunnel import background
from cloudgpu.access.tunnel.tunnel import FIRST_PORT, Tunnel, TunnelChange, TunnelEvent
from cloudgpu.control.access.reach import check_reachable, find_moved, reached
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.network.host_keys import pin_confirmed, pin_known_key
from cloudgpu.control.network.reachability import access_blocked_error
from cloudgpu.core.model.machine import Machine
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest, ProviderUnavailable, Unreachable
from cloudgpu.providers.abilities import Resolves

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from cloudgpu.access.jupyter.client import JupyterServer, NotReadyYet
    from cloudgpu.access.jupyter.notebook import CellResult
    from cloudgpu.access.ssh.connection import Connection
    from cloudgpu.access.ssh.target import Target
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.access import TunnelDocument

STATUS_WITHIN = 20.0
SETUP_WITHIN = timedelta(minutes=30)  # from the launch: packages, a driver, Jupyter
SETUP_PAUSE_S = 5.0
DOOR_AFTER_TRIES = 2  # tries to reconnect, from then on it is looked whether the machine is open to us at all


@dataclass(frozen=True, slots=True)
class Notebook:
    """Where a notebook can be opened here. The token is the machine's, read over the verified connection."""

    port: int
    token: str
    started: bool

    def __repr__(self) -> str:
        return f"Notebook(port={self.port}, started={self.started})"

    @property
    def url(self) -> str:
        """The address with its token: for the user's terminal, never for a log or an argument list."""
        return f"http://127.0.0.1:{self.port}/lab?token={self.token}"


class JupyterTunnel:
    """A tunnel to a machine's JupyterLab, which is started there when it is not running.

    Survives lost connections and a machine that comes back at another address; ends by itself when the machine is
    gone, shows a wrong host key or refuses the login.
    """

    def __init__(self, session: Session, machine: Machine, *, first_port: int = FIRST_PORT) -> None:
        self._session = session
        self._machine = machine
        self._first_port = first_port
        self._server: JupyterServer | None = None
        self._opened = False
        self._tries = 0
        self._tunnel = self._new_tunnel()

    def __enter__(self) -> Self:
        return self.open()

    def open(self) -> Self:
        """Open the tunnel and start Jupyter where it does not run: for a notebook, whose cells share no `with` block.

        Raises Unreachable, WrongHostKey and AuthFailed as a connection does. `close` ends it.
        """
        check_reachable(self._session, self._machine)
        pin_known_key(self._session, self._machine)
        try:
            self._tunnel.open()
        except Unreachable as error:
            # Only the first connection may find that the ledger's address is out of date.
            self._machine = find_moved(self._session, self._machine, error)
            self._tunnel = self._new_tunnel()
            self._tunnel.open()
        self._opened = True
        return self

    def _new_tunnel(self) -> Tunnel:
        return Tunnel(self._target, self._ask_jupyter, first_port=self._first_port, tell=self._told)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the tunnel. The machine and its Jupyter go on."""
        self._tunnel.close()

    def run(self, code: str, *, timeout_s: float = 60) -> CellResult:
        """Run one notebook cell on the machine, in a new kernel, and return what it printed and whether it succeeded.

        Raises Unreachable when Jupyter does not answer or the cell takes longer than `timeout_s` seconds, and
        MissingExtra without websocket-client.
        """
        from cloudgpu.access.jupyter.notebook import run_cell

        return run_cell(self.port, self.token, code, timeout_s=timeout_s)

    @property
    def port(self) -> int:
        """The local port."""
        return self._tunnel.port

    @property
    def url(self) -> str:
        """The address of JupyterLab with its token: for the user's own eyes, never for a log."""
        return self.notebook.url

    @property
    def token(self) -> str:
        """Jupyter's token."""
        return self.notebook.token

    def document(self) -> TunnelDocument:
        """Return the answer of `tunnel`, as of now."""
        return tunnel_value(self._machine, self.notebook, in_background=False, pid=os.getpid())

    @property
    def notebook(self) -> Notebook:
        """Where the notebook is now."""
        if self._server is None:
            raise Unreachable("Jupyter was never reached through this tunnel.", field="tunnel")
        return Notebook(self._tunnel.port, self._server.token, self._server.started)

    def wait(self, timeout: float | None = None) -> CloudgpuError | None:
        """Wait until the tunnel ends by itself and return why; None after `timeout` seconds."""
        return self._tunnel.wait(timeout)

    def _target(self) -> Target:
        """Return where the machine is; at every later connection its provider is asked, in a session of its own."""
        if not self._opened:
            return self._session.target(self._machine)
        with self._session.for_thread() as session:
            machine = session.ledger.machine(self._machine.id) or self._machine
            try:
                machine = refresh(session, machine)
            except (AuthFailed, InvalidRequest, ProviderUnavailable):  # a colleague's account may not open here
                return session.target(machine)
            check_reachable(session, machine)
            pin_confirmed(session, machine)
            return session.target(machine)

    def _ask_jupyter(self, connection: Connection) -> int:
        self._server = jupyter.ensure(connection, retry=setup_patience(self._session, self._machine))
        return self._server.port

    def _told(self, event: TunnelEvent) -> None:
        name, why = self._machine.name, event.fault.message if event.fault else ""
        if event.kind is TunnelChange.LOST:
            self._session.report(f"{name}: connection lost ({why}); the tunnel waits for it")
            self._tries = 0
        elif event.kind is TunnelChange.TRIED:
            self._tries += 1
            if self._tries == DOOR_AFTER_TRIES:
                self._tell_closed()
        elif event.kind is TunnelChange.RECONNECTED:
            self._session.report(f"{name}: connected again")

    def _tell_closed(self) -> None:
        """Say so, once in an outage, where SSH is open to another address than this client's now: a laptop moved."""
        with self._session.for_thread() as session:
            fault = access_blocked_error(session, self._machine)
        if fault:
            self._session.report(f"{fault.message} {fault.next} (the tunnel then continues)")


def setup_patience(session: Session, machine: Machine) -> Callable[[NotReadyYet], bool]:
    """Return what says whether to go on waiting for Jupyter: while a machine of a cloud is being set up.

    Its first minutes install Jupyter, and a driver where the image has none; said once. A host whose Python has no
    JupyterLab says itself that it is installing it.
    """
    until = from_iso(machine.launched_at) + SETUP_WITHIN if machine.launched_at else None
    reported: list[str] = []
    begun: list[datetime] = []

    def go_on(fault: NotReadyYet) -> bool:
        now = session.clock()
        begun.append(now)
        last = begun[0] + SETUP_WITHIN if fault.surely else until
        if last is None or now >= last or not (fault.surely or _is_set_up(session, machine)):
            return False
        if not reported:
            reported.append(fault.message)
            session.report(f"{machine.name}: still being set up ({fault.message.rstrip('.')}); waiting for Jupyter")
        session.pause(SETUP_PAUSE_S)
        return True

    return go_on


def _is_set_up(session: Session, machine: Machine) -> bool:
    """Say whether its provider's machines are set up at their first boot; a colleague's account may not open here."""
    try:
        return isinstance(session.provider_of(machine), Resolves)
    except CloudgpuError:
        return bool(machine.setup)


def tunnel_value(machine: Machine, notebook: Notebook, *, in_background: bool, pid: int) -> TunnelDocument:
    """Return the answer of `tunnel`; `pid` is the process that holds it."""
    return {
        "name": machine.name,
        "port": notebook.port,
        "url": notebook.url,
        "started": notebook.started,
        "background": in_background,
        "pid": pid,
    }


def start_background(session: Session, machine: Machine, *, first_port: int) -> tuple[Notebook, int]:
    """Return the notebook behind this machine's background tunnel, and its process; the one that runs already wins.

    Raises what kept the tunnel from coming up, in its own class.
    """
    with reached(session, machine) as connection:  # before it is left alone: what is wrong is said here
        server = jupyter.ensure(connection, retry=setup_patience(session, machine))
    running = background.find(session.home.tunnels, machine.id)
    if running is None:
        words = ["tunnel", machine.id, "--serve", "--port", str(first_port)]
        command = [sys.executable, "-P", "-m", "cloudgpu", *words]
        try:
            running = background.spawn(command, session.home.tunnels, machine.id)
        except InvalidRequest:  # somebody else was quicker
            running = background.find(session.home.tunnels, machine.id)
            if running is None:
                raise
    return Notebook(running.port, server.token, server.started), running.pid


def serve_background(session: Session, machine: Machine, *, first_port: int) -> None:
    """Be the background tunnel: serve until the machine is gone or somebody ends this process."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    try:
        with (
            JupyterTunnel(session, machine, first_port=first_port) as tunnel,
            background.registered(session.home.tunnels, machine.id, machine.name, tunnel.port),
        ):
            ended = tunnel.wait()
    except CloudgpuError as error:
        background.report(error)
        raise
    if ended is not None:
        raise ended


def agent_status(session: Session, machine: Machine) -> dict[str, Any]:
    """Return what the agent on the machine says of itself: activity and why, last active, lease.

    Raises Unreachable when the machine or its agent does not answer.
    """
    with reached(session, machine) as connection:
        done = connection.capture('"$HOME"/.cloudgpu/agent status', timeout=STATUS_WITHIN)
    try:
        status: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        stderr = done.stderr.decode(errors="replace").strip()[-200:]
        raise Unreachable(
            f"The agent on {machine.name} does not answer: {stderr or 'nothing was said'}.",
            field="name",
            value=machine.name,
            next=f"Look at ~/.cloudgpu/agent.log there: cloudgpu ssh {machine.name}",
        ) from None
    return status
