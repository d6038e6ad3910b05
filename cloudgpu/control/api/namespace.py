"""The base of the library's five namespaces: they share one session, whose ledger is up to date at each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.session.base import Report
from cloudgpu.control.session.session import Session


class ClientSession:
    """The session of a client. Before each call, entries saved while the ledger was unavailable are appended to it.

    `tell` is called with each notice for the user.
    """

    def __init__(self, environ: Mapping[str, str], *, clock: Callable[[], datetime], tell: Report) -> None:
        self.environ = environ
        self._session = open_session(environ, clock=clock, tell=tell)

    @property
    def current(self) -> Session:
        """The session, its ledger up to date, unless it is away: then saved entries wait, and nothing is raised."""
        if self._session.ledger.has_outbox:
            from cloudgpu.control.outage.outage import replay

            replay(self._session)
        return self._session

    @property
    def root(self) -> Path:
        """The home: the directory with settings, ledger and keys."""
        return self._session.home.root


class Namespace:
    """The methods of `connect()` about one subject; all namespaces share one session.

    Methods return the documents that the verbs print with `-o json` and raise the errors of `cloudgpu.errors`.
    """

    def __init__(self, client_session: ClientSession) -> None:
        self._client_session = client_session

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._client_session.root}>"

    @property
    def _session(self) -> Session:
        return self._client_session.current
