"""Moves this home's ledger to another place, or follows it there: the answer of `ledger move`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from cloudgpu.config.edit import set_value
from cloudgpu.config.files.user_files import read_text
from cloudgpu.config.settings import read_setting, settings_from_text
from cloudgpu.control.outage.outage import report_refused
from cloudgpu.control.scheduler.jobs import REAPER_LOCK
from cloudgpu.control.setup.init import replace_config
from cloudgpu.core.team.rights import Role, check_payer
from cloudgpu.core.values.naming import lock_name
from cloudgpu.errors import InvalidRequest, LedgerUnavailable, ProviderUnavailable
from cloudgpu.ledger.log import files, head
from cloudgpu.ledger.log.head import ANOTHER_PLACE
from cloudgpu.ledger.log.storage_errors import LedgerAway, LedgerMovedAway
from cloudgpu.ledger.moving import MovePlaces, follow, move
from cloudgpu.ledger.open import open_ledger, public_url
from cloudgpu.ledger.outage.delivery import deliver

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.ledger.book import Book
    from cloudgpu.ledger.log.head import MoveMark
    from cloudgpu.views.documents.setup.ledger import LedgerMoveDocument

MOVE_LOCK = "ledger-move"  # held while a ledger is moved
WAIT_S = 60  # for a run of the reaper to end
MAX_HOPS = 20  # moves of a ledger, one after another, that are followed


@dataclass(frozen=True, slots=True)
class LedgerMove:
    """A planned `ledger move`; `follows`: the ledger has moved already, and only this home has to use the new place.

    `url` is the new place as config.toml is to name it, `to` the same without user and password.
    """

    source: Book
    target: Book
    url: str
    to: str
    follows: bool

    def close(self) -> None:
        """Close both ledgers."""
        self.source.close()
        self.target.close()


def plan(session: Session, url: str | None, *, follow: bool = False) -> LedgerMove:
    """Return what would be moved, or followed where the ledger has moved already.

    Changes nothing but this home's record of the ledger's moves.

    With `follow` nothing is moved, and the old place need not be there.
    Raises InvalidRequest for a URL that names no ledger, and without a URL where the ledger has not moved;
    LedgerUnavailable where neither the old place nor this home knows whether it has moved.
    """
    source = _open(session, session.settings.ledger_url)
    if url is not None:
        read_setting("ledger", url)
    mark = None
    try:
        mark = source.moved()
    except LedgerUnavailable as error:
        if not (follow and url is not None):
            raise _unknown_place_error(error) from error
    if mark is not None and mark.came_from:
        raise head.ledger_moved_error(mark, source.location)
    if url is None:
        if mark is None:
            raise InvalidRequest(
                f"The ledger at {source.location} has not moved.",
                field="--follow",
                value=None,
                next="To move it, name where to: cloudgpu ledger move URL",
            )
        url, target = _follow_marks(session, source, mark)
    else:
        target = _open(session, url)
    follows = follow or mark is not None
    if source.is_at(target) and mark is None:
        raise _same_place_error(target)
    return LedgerMove(source, target, url, public_url(url), follows)


def execute(session: Session, planned: LedgerMove, environ: Mapping[str, str]) -> LedgerMoveDocument:
    """Move or follow, then have config.toml name the new place; return the answer of `ledger move`.

    At no moment can both places be written to. After an interruption, the same command continues.
    """
    config_texts = _config_texts(session, planned, environ)  # raises before anything is moved
    source, target, current_url = planned.source, planned.target, session.settings.ledger_url
    places = MovePlaces(
        source, target, planned.to, public_url(current_url) if current_url else f"sqlite:///{source.location}"
    )
    locks = session.home.locks
    with files.lock(locks, MOVE_LOCK, wait=10), files.lock(locks, REAPER_LOCK, wait=WAIT_S):
        if planned.follows:  # the old place may be gone, and nobody works there any more
            follow(places)
        else:
            with source.lock(MOVE_LOCK, wait=10), source.lock(REAPER_LOCK, wait=WAIT_S):
                if target.is_locked(MOVE_LOCK):
                    raise _same_place_error(target)
                check_payer("Moving the ledger", source.role(), source.person(), source.payers)
                _check_complete(session)
                move(places, lambda: _check_no_command_at_work(session, source), session.clock())
        _deliver_outbox(session, source, target)
        if config_texts is not None:
            remedy = "Run the same again: the ledger has moved, and config.toml still names the old place."
            replace_config(session.home.config_file, *config_texts, "while the ledger moved", remedy)
    return _move_document(session, planned, environ, is_written=config_texts is not None)


def _deliver_outbox(session: Session, source: Book, target: Book) -> None:
    """Write the entries that wait in the outbox for the old place into the new one; report those that it refuses."""
    result = deliver(target, source.outbox, target.id)
    if result is not None:
        report_refused(session, target, result)
    else:  # another command is at it, and config.toml still has to name the old place, to which the outbox belongs
        raise ProviderUnavailable(
            "The ledger has moved, and another command is recording what was done while the old place was unavailable.",
            field="ledger",
            value=str(source.outbox.path),
            next="Run the same again in a moment: it moves those records, too, and changes config.toml.",
        )


def _move_document(
    session: Session, planned: LedgerMove, environ: Mapping[str, str], *, is_written: bool
) -> LedgerMoveDocument:
    from cloudgpu.control.scheduler.stale_lines import lines_with_ledger

    notes = []
    if not planned.follows and planned.source.role() is not Role.ALONE and planned.target.role() is Role.ALONE:
        notes.append("The new place has no team yet. Make it there: cloudgpu ledger init --team")
    if environ.get("CLOUDGPU_LEDGER"):
        configured_url = _url_in_config(session)
        is_named = configured_url is not None and _open(session, configured_url).is_at(planned.target)
        remedy = "unset it: config.toml names the new place" if is_named else f"set it to {planned.to}"
        notes.append(f"CLOUDGPU_LEDGER is set in this shell, names the old place and wins over config.toml: {remedy}.")
    notes += [
        f"This line of your {table} names the old place, so its runs are refused now. Change it: {line}"
        for table, line in lines_with_ledger(environ, planned.source.location)
    ]
    return {
        "from": planned.source.location,
        "to": planned.to,
        "ledger": planned.target.id,
        "lines": planned.target.head()[0],
        "followed": planned.follows,
        "config": str(session.home.config_file) if is_written else None,
        "notes": notes,
    }


def _open(session: Session, url: str | None) -> Book:
    return open_ledger(url, session.home.ledger, actor=session.settings.owner, clock=session.clock)


def _follow_marks(session: Session, source: Book, mark: MoveMark | None) -> tuple[str, Book]:
    """Return the URL of a ledger after all its moves, with this home's database user, and the ledger, opened.

    Each place that it has left has a mark that names the next one.
    """
    current_url = session.settings.ledger_url
    if mark is not None and mark.to == ANOTHER_PLACE:  # its URL was too long for this home's record
        mark = source.move_mark()
    for _ in range(MAX_HOPS):
        if mark is None or mark.to == ANOTHER_PLACE:
            break
        url = url_with_own_user(mark.to, current_url)
        target = _open(session, url)
        mark, current_url = _mark_at(target), url
        if mark is None or mark.came_from:
            return url, target
        target.close()
    raise InvalidRequest(
        "It is not known where the ledger is now.",
        field="--follow",
        value=None,
        next="Ask whoever moved it, then run: cloudgpu ledger move URL",
    )


def _mark_at(target: Book) -> MoveMark | None:
    """Return the mark of a further move; where it cannot be read, this home's record of it."""
    try:
        return target.move_mark()  # a ledger may have moved back to a place that this home's record says it has left
    except LedgerMovedAway:
        return target.moved()


def url_with_own_user(new_url: str, current_url: str | None) -> str:
    """Return a database's URL with the user of the current one; with the password only on the same server."""
    new, old = urlsplit(new_url), urlsplit(current_url or "")
    if not (new.scheme.startswith("postgres") and old.scheme.startswith("postgres")) or "@" not in old.netloc:
        return new_url
    login, _, server = old.netloc.rpartition("@")
    login = login if server == new.netloc else login.partition(":")[0]
    return urlunsplit(new._replace(netloc=f"{login}@{new.netloc}"))


def _check_complete(session: Session) -> None:
    """Raise LedgerUnavailable where the ledger may be incomplete."""
    problem = session.integrity_problem()
    if problem is not None:
        raise LedgerUnavailable(
            f"The ledger may be incomplete, so it was not moved: {problem}",
            field="ledger",
            value=session.ledger.location,
            next="Run: cloudgpu cost --verify --yes",
        )


def _check_no_command_at_work(session: Session, ledger: Book) -> None:
    """Raise ProviderUnavailable while a command works on a machine: it could not record the outcome."""
    for machine in ledger.machines():
        name = lock_name(machine.key or machine.id)
        if machine.terminated_at is None and (files.is_locked(session.home.locks, name) or ledger.is_locked(name)):
            raise ProviderUnavailable(
                f"The ledger was not moved: a command is at work on {machine.name}.",
                field="name",
                value=machine.name,
                next="Wait until it has ended, then run the same again.",
            )


def _config_texts(session: Session, planned: LedgerMove, environ: Mapping[str, str]) -> tuple[str | None, str] | None:
    """Return config.toml's text before and after; None where only CLOUDGPU_LEDGER names the ledger, not the file."""
    text = read_text(session.home.config_file, "config.toml")
    if environ.get("CLOUDGPU_LEDGER"):
        configured_url = _url_in_config(session)
        if configured_url is None or not _open(session, configured_url).is_at(planned.source):
            return None
    return text, set_value(text or "", ("ledger",), planned.url)


def _url_in_config(session: Session) -> str | None:
    """Return the URL that config.toml names, whatever CLOUDGPU_LEDGER says."""
    text = read_text(session.home.config_file, "config.toml")
    return settings_from_text(text or "", login=session.settings.owner).ledger_url


def _unknown_place_error(error: LedgerUnavailable) -> LedgerUnavailable:
    otherwise = "wait until it is back." if isinstance(error, LedgerAway) else f"here is the way: {error.next}"
    return LedgerUnavailable(
        f"{error.message} Whether the ledger has moved is not known here.",
        field="ledger",
        value=error.value,
        next=f"If it has moved, name where it is now: cloudgpu ledger move URL --follow. If not, {otherwise}",
    )


def _same_place_error(target: Book) -> InvalidRequest:
    return InvalidRequest(
        f"The ledger is at {target.location} already, or is being moved from there.",
        field="URL",
        value=target.location,
        next="Name another place: sqlite:///a/local/path/ledger.db or postgresql://USER@HOST/DATABASE",
    )
