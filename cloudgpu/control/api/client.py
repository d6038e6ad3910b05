"""The library's client: what `cloudgpu.connect()` returns, with its five namespaces."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from cloudgpu.control.api.advice import Advice
from cloudgpu.control.api.automation import Automation
from cloudgpu.control.api.jobs import Jobs
from cloudgpu.control.api.machines import Machines
from cloudgpu.control.api.money import Money
from cloudgpu.control.api.namespace import ClientSession
from cloudgpu.control.session.base import report_nothing, utc_now
from cloudgpu.control.session.session import Session


class Cloudgpu:
    """One user's machines, jobs, money, automation and advice: what `cloudgpu.connect()` returns.

    `machines` launches machines, connects to them, stops and ends them. `jobs` runs commands to their end. `money` has
    what was spent, budgets, reports and the ledger. `automation` has runs of the reaper and policies. `advice` has what
    can be bought and what is cheaper.

    Every method returns the document that its verb prints with `-o json` (docs/reference/json.md) and raises the
    errors of `cloudgpu.errors`, whose `field` names the option of the command line. No method asks for confirmation:
    calling it is consent to what it spends or destroys. An error means that the request is not done, or not confirmed.

    Use one object per thread: they share the ledger safely. It is a context manager, which closes the ledger and ends
    no machine.
    """

    machines: Machines
    """Launch, list, connect to, stop and end machines; their disks and images that are kept."""
    jobs: Jobs
    """Run commands to their end, with their results brought back and their machines ended."""
    money: Money
    """What was spent, budgets, reports, exports, and the ledger behind them."""
    automation: Automation
    """Runs of the reaper, policies, orphaned resources, and the check of this computer and the accounts."""
    advice: Advice
    """What can be bought, at which price, and what would be cheaper."""

    def __init__(self, environ: Mapping[str, str], tell: Callable[[str], None], clock: Callable[[], datetime]) -> None:
        self._client_session = ClientSession(environ, clock=clock, tell=tell)
        self.machines = Machines(self._client_session)
        self.jobs = Jobs(self._client_session)
        self.money = Money(self._client_session)
        self.automation = Automation(self._client_session)
        self.advice = Advice(self._client_session)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Cloudgpu at {self.home}>"

    @property
    def _session(self) -> Session:
        return self._client_session.current

    @property
    def home(self) -> Path:
        """The directory with settings, ledger and keys."""
        return self._client_session.root

    def close(self) -> None:
        """Close the ledger. Machines and background tunnels continue to run."""
        self._session.ledger.close()


def open_client(
    *,
    home: Path | str | None,
    environ: Mapping[str, str] | None,
    tell: Callable[[str], None] | None,
    clock: Callable[[], datetime] | None,
) -> Cloudgpu:
    """Return the client of a home: what `cloudgpu.connect` does. `tell` is called with each notice for the user."""
    client_environ = dict(os.environ if environ is None else environ)
    if home is not None:
        client_environ["CLOUDGPU_HOME"] = str(Path(home))  # "" becomes ".", which is refused, not the default home
    return Cloudgpu(client_environ, tell or report_nothing, clock or utc_now)
