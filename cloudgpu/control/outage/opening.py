"""Opens a session: the settings and the ledger, with what was done while the ledger was away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from cloudgpu.catalog.location import use_directory
from cloudgpu.config.files.user_files import find_home
from cloudgpu.config.settings import load_settings
from cloudgpu.control.session.base import Report, report_nothing, utc_now
from cloudgpu.control.session.session import Session
from cloudgpu.ledger.open import open_ledger


def open_session(
    environ: Mapping[str, str], *, clock: Callable[[], datetime] = utc_now, tell: Report = report_nothing
) -> Session:
    """Return the session of CLOUDGPU_HOME and its config.toml. Asks no cloud and makes no file.

    `tell` takes each line of progress. `clock` is the computer's; tests pass another one, which the ledger's database
    must not correct.

    What was done while the ledger was away is written into it first, if it is back.
    Raises InvalidRequest for faults in the settings and LedgerUnavailable for a ledger that cannot be read.
    """
    home = find_home(environ)
    use_directory(home.price_lists)
    settings = load_settings(home, environ)
    ledger = open_ledger(settings.ledger_url, home.ledger, actor=settings.owner, clock=clock)
    ledger.tell, ledger.has_own_clock = tell, clock is utc_now
    session_clock = ledger.now if ledger.has_own_clock else clock
    session = Session(home, settings, ledger, session_clock, tell, clock_ahead=ledger.clock_ahead)
    if ledger.has_outbox:
        from cloudgpu.control.outage.outage import replay

        replay(session)
    return session
