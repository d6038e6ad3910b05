"""Opens the ledger that a URL names, in one SQLite file or in a database.

Opening makes no file and no connection.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.errors import InvalidRequest
from cloudgpu.ledger.book import Book
from cloudgpu.ledger.sqlite.connection import SqliteFile

if TYPE_CHECKING:
    from cloudgpu.ledger.postgresql.store import PostgresLedger


class SqliteLedger(Book):
    """`cloudgpu.ledger.log.base.Ledger` in the SQLite file `path`; everything else as `Book` says."""

    def __init__(
        self, path: Path, head_path: Path, *, actor: str, clock: Callable[[], datetime], lock_timeout_s: float = 30.0
    ) -> None:
        super().__init__(
            SqliteFile(path, lock_timeout_s), head_path, actor=actor, clock=clock, lock_timeout_s=lock_timeout_s
        )


_URL_REMEDY = (
    "Name a local file, sqlite:///a/local/path/ledger.db, or a database, postgresql://USER@HOST/DATABASE. "
    "CLOUDGPU_LEDGER names it, else `ledger` in config.toml; without either it is in CLOUDGPU_HOME."
)


def open_ledger(url: str | None, directory: Path, *, actor: str, clock: Callable[[], datetime]) -> Book:
    """Return the ledger at `url`; None means `ledger.db` in `directory`, where every head record is kept.

    Raises InvalidRequest for a URL that names no ledger, MissingExtra for a database whose library is not installed.
    """
    if url is None:
        return SqliteLedger(directory / "ledger.db", directory / "ledger.head", actor=actor, clock=clock)
    scheme = url.partition("://")[0].lower()
    if scheme.startswith("postgres") and "://" in url:
        return _postgres_ledger(url, scheme, directory, actor=actor, clock=clock)
    if scheme != "sqlite" or "://" not in url:
        # The URL may hold a password: only its scheme is repeated.
        shown_url = f"{scheme}://..." if "://" in url else url
        raise _ledger_url_error("The ledger's URL starts with sqlite:/// or postgresql://.", shown_url)
    path = _sqlite_path(url)
    return SqliteLedger(path, directory / _head_file_name(str(path)), actor=actor, clock=clock)


def public_url(url: str) -> str:
    """Return the URL of a ledger without user and password. Raises the same errors as `open_ledger`."""
    if url.partition("://")[0].lower() == "sqlite":
        return f"sqlite:///{_sqlite_path(url)}"
    from cloudgpu.ledger.postgresql.address import address_of

    return address_of(url).public_url


def _postgres_ledger(
    url: str, scheme: str, directory: Path, *, actor: str, clock: Callable[[], datetime]
) -> PostgresLedger:
    from cloudgpu.ledger.postgresql.address import SCHEMES, address_of

    if scheme not in SCHEMES:
        raise _ledger_url_error("The ledger's URL starts with sqlite:/// or postgresql://.", f"{scheme}://...")
    address = address_of(url)
    from cloudgpu.ledger.postgresql.store import PostgresLedger  # only now it is known that its library is there

    return PostgresLedger(address, directory / _head_file_name(address.identity), actor=actor, clock=clock)


def _sqlite_path(url: str) -> Path:
    path_text = url.partition("://")[2]
    if not path_text.startswith("/") or path_text.endswith("/") or "?" in path_text or "\0" in path_text:
        raise _ledger_url_error(f"{url!r} names no absolute path of a file.", url)
    if path_text.endswith("/:memory:"):
        raise _ledger_url_error("A ledger in memory would be lost at the end of every command.", url)
    path = Path("/" + path_text.lstrip("/"))
    if path.is_dir():
        raise _ledger_url_error(f"{path} is a directory, and a ledger is a file.", url)
    return path


def _head_file_name(location: str) -> str:
    """Return the file name of the head record of a ledger that is in another place."""
    import hashlib

    return f"ledger-{hashlib.sha256(location.encode()).hexdigest()[:16]}.head"


def _ledger_url_error(message: str, shown_url: str) -> InvalidRequest:
    return InvalidRequest(message, field="CLOUDGPU_LEDGER", value=shown_url, next=_URL_REMEDY)
