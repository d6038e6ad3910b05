"""Opens the ledger that a URL names; makes no file and no connection."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cloudgpu.errors import InvalidRequest
from cloudgpu.ledger.sqlite import SqliteLedger

if TYPE_CHECKING:
    from cloudgpu.ledger.base import Ledger

_LOCAL = "Leave CLOUDGPU_LEDGER unset, or name a local file: CLOUDGPU_LEDGER=sqlite:///a/local/path/ledger.db"


def open_ledger(url: str | None, directory: Path, *, actor: str, clock: Callable[[], datetime]) -> Ledger:
    """Return the ledger at `url`; None means `ledger.db` in `directory`, where every head record is kept.

    Raises InvalidRequest for a URL that names no ledger.
    """
    if url is None:
        return SqliteLedger(directory / "ledger.db", directory / "ledger.head", actor=actor, clock=clock)
    scheme = url.partition("://")[0].lower()
    if scheme.partition("+")[0] in {"postgresql", "postgres"}:
        # The URL may hold a password: only its scheme is repeated.
        raise _refused("A PostgreSQL ledger comes with a later issue.", f"{scheme}://...")
    if scheme != "sqlite" or "://" not in url:
        raise _refused("The ledger's URL starts with sqlite:///.", f"{scheme}://..." if "://" in url else url)
    path = _path_of(url)
    return SqliteLedger(path, directory / _head_name(path), actor=actor, clock=clock)


def _path_of(url: str) -> Path:
    text = url.partition("://")[2]
    if not text.startswith("/") or text.endswith("/") or "?" in text or "\0" in text:
        raise _refused(f"{url!r} names no absolute path of a file.", url)
    if text.endswith("/:memory:"):
        raise _refused("A ledger in memory would be forgotten at the end of every command.", url)
    path = Path("/" + text.lstrip("/"))
    if path.is_dir():
        raise _refused(f"{path} is a directory, and a ledger is a file.", url)
    return path


def _head_name(path: Path) -> str:
    """Return a head record's name of its own for a ledger that stands elsewhere."""
    import hashlib

    return f"ledger-{hashlib.sha256(str(path).encode()).hexdigest()[:16]}.head"


def _refused(message: str, value: str) -> InvalidRequest:
    return InvalidRequest(message, field="CLOUDGPU_LEDGER", value=value, next=_LOCAL)
