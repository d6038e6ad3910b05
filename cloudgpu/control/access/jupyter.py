"""Opens a machine's Jupyter through a tunnel, and reads the status of the agent there."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from cloudgpu.access.jupyter import client as jupyter
from cloudgpu.access.tunnel import background
from cloudgpu.access.tunnel.tunnel import FIRST_PORT, Tunnel, TunnelChange, TunnelEvent
from cloudgpu.control.access.reach import check_reachable, connected_to, refresh_address
from cloudgpu.control.inventory.sync import refresh
from cloudgpu.control.network.host_keys import pin_confirmed_key, pin_known_key
from cloudgpu.control.network.reachability import access_blocked_error
from cloudgpu.control.pricing.traffic import STATUS_COMMAND, parse_agent_status
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

STATUS_TIMEOUT_S = 20.0
SETUP_TIMEOUT = timedelta(minutes=30)  # from the launch: packages, a driver, Jupyter
SETUP_PAUSE_S = 5.0  # between two tries
FIREWALL_CHECK_AFTER_TRIES = 2  # after so many tries to reconnect, the machine's SSH rules are checked


@dataclass(frozen=True, slots=True)
class JupyterEndpoint:
    """A machine's Jupyter server, reached at a local port. Its token was read over the verified connection.

    `started`: this command started the server, it did not run before.
    """

    port: int
    token: str
    started: bool

    def __repr__(self) -> str:
        return f"JupyterEndpoint(port={self.port}, started={self.started})"

    @property
    def url(self) -> str:
        """The address with its token: for the user's terminal, never for a log or an argument list."""
        return f"http://127.0.0.1:{self.port}/lab?token={self.token}"


class JupyterTunnel:
    """A tunnel to a machine's JupyterLab, which is started there when it is not running.

    It reconnects after lost connections, also to a machine with a new address. It ends by itself when the machine has
    ended, shows a wrong host key or refuses the login. It takes the first free local port from `first_port` on.
    """

    def __init__(self, session: Session, machine: Machine, *, first_port: int = FIRST_PORT) -> None:
        self._session = session
        self._machine = machine
        self._first_port = first_port
        self._server: JupyterServer | None = None
        self._was_opened = False
        self._reconnect_tries = 0
        self._tunnel = self._new_tunnel()

    def __enter__(self) -> Self:
        return self.open()

    def open(self) -> Self:
        """Open the tunnel and start Jupyter if it is not running. Without a `with` block, call `close` in the end.

        Raises Unreachable, WrongHostKey and AuthFailed as a connection does.
        """
        check_reachable(self._session, self._machine)
        pin_known_key(self._session, self._machine)
        try:
            self._tunnel.open()
        except Unreachable as error:
            # Only the first connection may find that the ledger's address is out of date.
            self._machine = refresh_address(self._session, self._machine, error)
            self._tunnel = self._new_tunnel()
            self._tunnel.open()
        self._was_opened = True
        return self

    def _new_tunnel(self) -> Tunnel:
        return Tunnel(self._target, self._ensure_jupyter, first_port=self._first_port, on_event=self._on_tunnel_event)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the tunnel. The machine and its Jupyter continue to run."""
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
        """The address of JupyterLab with its token: for the user, never for a log."""
        return self.notebook.url

    @property
    def token(self) -> str:
        """Jupyter's token."""
        return self.notebook.token

    def document(self) -> TunnelDocument:
        """Return the document of `tunnel`, as of now."""
        return tunnel_document(self._machine, self.notebook, in_background=False, pid=os.getpid())

    @property
    def notebook(self) -> JupyterEndpoint:
        """The local port and the token of Jupyter. Raises Unreachable if it was never reached."""
        if self._server is None:
            raise Unreachable("Jupyter was never reached through this tunnel.", field="tunnel")
        return JupyterEndpoint(self._tunnel.port, self._server.token, self._server.started)

    def wait(self, timeout: float | None = None) -> CloudgpuError | None:
        """Wait until the tunnel ends by itself and return why; None after `timeout` seconds."""
        return self._tunnel.wait(timeout)

    def _target(self) -> Target:
        """Return where to connect. When the tunnel reconnects, the provider is asked, in a session of this thread."""
        if not self._was_opened:
            return self._session.target(self._machine)
        with self._session.for_thread() as session:
            machine = session.ledger.machine(self._machine.id) or self._machine
            try:
                machine = refresh(session, machine)
            except (AuthFailed, InvalidRequest, ProviderUnavailable):  # this home may have no access to the account
                return session.target(machine)
            check_reachable(session, machine)
            pin_confirmed_key(session, machine)
            return session.target(machine)

    def _ensure_jupyter(self, connection: Connection) -> int:
        """Start Jupyter if it is not running; return its port on the machine."""
        self._server = jupyter.ensure(connection, retry=retry_during_setup(self._session, self._machine))
        return self._server.port

    def _on_tunnel_event(self, event: TunnelEvent) -> None:
        name, why = self._machine.name, event.error.message if event.error else ""
        if event.kind is TunnelChange.LOST:
            self._session.report(f"{name}: connection lost ({why}); the tunnel waits for it")
            self._reconnect_tries = 0
        elif event.kind is TunnelChange.TRIED:
            self._reconnect_tries += 1
            if self._reconnect_tries == FIREWALL_CHECK_AFTER_TRIES:
                self._report_blocked()
        elif event.kind is TunnelChange.RECONNECTED:
            self._session.report(f"{name}: connected again")

    def _report_blocked(self) -> None:
        """Report if SSH is open to another address than this client's, as after a laptop moved to another network."""
        with self._session.for_thread() as session:
            blocked = access_blocked_error(session, self._machine)
        if blocked:
            self._session.report(f"{blocked.message} {blocked.next} (the tunnel then continues)")


def retry_during_setup(session: Session, machine: Machine) -> Callable[[NotReadyYet], bool]:
    """Return a function that says whether to try Jupyter again, and pauses before: while the machine is being set up.

    The first boot of a cloud machine installs Jupyter, and a driver if the image has none: until SETUP_TIMEOUT after
    the launch. Any other machine is waited for only if it says that it is installing JupyterLab. Reports once.
    """
    setup_deadline = from_iso(machine.launched_at) + SETUP_TIMEOUT if machine.launched_at else None
    tried_at: list[datetime] = []

    def should_retry(error: NotReadyYet) -> bool:
        now = session.clock()
        tried_at.append(now)
        deadline = tried_at[0] + SETUP_TIMEOUT if error.is_installing else setup_deadline
        if deadline is None or now >= deadline or not (error.is_installing or _has_first_boot_setup(session, machine)):
            return False
        if len(tried_at) == 1:
            session.report(f"{machine.name}: still being set up ({error.message.rstrip('.')}); waiting for Jupyter")
        session.pause(SETUP_PAUSE_S)
        return True

    return should_retry


def _has_first_boot_setup(session: Session, machine: Machine) -> bool:
    """Return whether its first boot sets the machine up. This home may have no access to a colleague's account."""
    try:
        return isinstance(session.provider_of(machine), Resolves)
    except CloudgpuError:
        return bool(machine.setup)


def tunnel_document(machine: Machine, notebook: JupyterEndpoint, *, in_background: bool, pid: int) -> TunnelDocument:
    """Return the document of `tunnel`; `pid` is the process that serves it."""
    return {
        "name": machine.name,
        "port": notebook.port,
        "url": notebook.url,
        "started": notebook.started,
        "background": in_background,
        "pid": pid,
    }


def start_background(session: Session, machine: Machine, *, first_port: int) -> tuple[JupyterEndpoint, int]:
    """Start the machine's background tunnel unless one runs; return its notebook and process id.

    Raises the error that the tunnel ended with, if it could not be opened.
    """
    with connected_to(session, machine) as connection:  # first in this process, which can show an error
        server = jupyter.ensure(connection, retry=retry_during_setup(session, machine))
    running = background.find(session.home.tunnels, machine.id)
    if running is None:
        arguments = ["tunnel", machine.id, "--serve", "--port", str(first_port)]
        command = [sys.executable, "-P", "-m", "cloudgpu", *arguments]
        try:
            running = background.spawn(command, session.home.tunnels, machine.id)
        except InvalidRequest:  # another process has started it meanwhile
            running = background.find(session.home.tunnels, machine.id)
            if running is None:
                raise
    return JupyterEndpoint(running.port, server.token, server.started), running.pid


def serve_background(session: Session, machine: Machine, *, first_port: int) -> None:
    """Serve the background tunnel in this process, until the machine has ended or the process is terminated."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    try:
        with (
            JupyterTunnel(session, machine, first_port=first_port) as tunnel,
            background.registered(session.home.tunnels, machine.id, machine.name, tunnel.port),
        ):
            end_reason = tunnel.wait()
    except CloudgpuError as error:
        background.report(error)
        raise
    if end_reason is not None:
        raise end_reason


def agent_status(session: Session, machine: Machine) -> dict[str, Any]:
    """Return the status of the agent on the machine: activity and why, last active, lease.

    Raises Unreachable when the machine or its agent does not answer.
    """
    with connected_to(session, machine) as connection:
        result = connection.capture(STATUS_COMMAND, timeout=STATUS_TIMEOUT_S)
    try:
        return parse_agent_status(result.stdout)
    except ValueError:
        stderr = result.stderr.decode(errors="replace").strip()[-200:]
        raise Unreachable(
            f"The agent on {machine.name} does not answer: {stderr or 'nothing was said'}.",
            field="name",
            value=machine.name,
            next=f"Look at ~/.cloudgpu/agent.log there: cloudgpu ssh {machine.name}",
        ) from None
