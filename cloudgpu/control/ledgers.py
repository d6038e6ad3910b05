"""Backups of the ledger, and their return: the answers of `ledger backup` and `ledger restore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudgpu.ledger.sqlite import backup

if TYPE_CHECKING:
    from cloudgpu.control.session import Session
    from cloudgpu.ledger.log.base import Copy

Document = dict[str, Any]


def backed_up(session: Session, file: str) -> Document:
    """Write a copy of the ledger to a new file, check it, and return what it holds.

    Raises InvalidRequest for a file that exists, LedgerUnavailable for a ledger that is not whole.
    """
    copy = backup.back_up(session.ledger, _path(file))
    return {"file": str(copy.path), "bytes": copy.path.stat().st_size, **_held(copy)}


def restored(session: Session, file: str, *, even_if_older: bool = False) -> Document:
    """Put a backup in the ledger's place, and return what it holds, where the old ledger is, and what is in doubt now.

    Raises InvalidRequest, with nothing changed, for a file that is no whole backup, and for a ledger that has lines
    which the backup lacks, unless `even_if_older`.
    """
    done = backup.restore(session.ledger, _path(file), even_if_older=even_if_older)
    return {
        "file": str(done.copy.path),
        **_held(done.copy),
        "lacks": done.lacks,
        "aside": done.aside,
        "doubt": session.doubt(),
    }


def _path(file: str) -> Path:
    return Path(file).expanduser().absolute()


def _held(copy: Copy) -> Document:
    return {"ledger": copy.ledger, "lines": copy.lines, "recorded_at": copy.recorded_at}
