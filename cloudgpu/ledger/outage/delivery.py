"""Delivers waiting lines to the ledger: each is written once, and a refused line does not block other subjects.

With a refused line, later ones about the same subject (mostly a machine) are refused, too. They may depend on it, and
the order of one machine's lines is never changed. All of them are kept in a file next to the outbox, in their order. A
sync finds the machine's state again: it queries the cloud for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudgpu.errors import CloudgpuError, RoleNeeded
from cloudgpu.ledger.log.storage_errors import EntryRefused

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cloudgpu.core.events.log import Draft
    from cloudgpu.ledger.log.base import Ledger
    from cloudgpu.ledger.log.outbox import Outbox

RefusedLine = tuple["Draft", str]  # a line, and why it is not in the ledger


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """How many lines were written, and those that were refused, which are kept in `refused_file`."""

    written: int = 0
    refused: Sequence[RefusedLine] = ()
    refused_file: Path | None = None


def deliver(ledger: Ledger, outbox: Outbox, ledger_id: str, *, wait: bool = False) -> DeliveryResult | None:
    """Write the waiting lines into the ledger `ledger_id`, and empty the outbox; None if another process does so now.

    With `wait`, that one is waited for. Lines that a wrong clock of this computer has dated get the time of the
    ledger's server, where that is known. Raises LedgerUnavailable and LedgerMoved where nothing can be written now,
    and OSError for a file: then all waits on.
    """
    now = None if outbox.is_empty else ledger.server_now()
    with outbox.emptied(ledger_id, wait=wait, now=now) as waiting:
        if waiting is None:
            return None
        if not waiting:
            return DeliveryResult()
        written, refused = _write_lines(ledger, waiting)
        return DeliveryResult(written, refused, outbox.keep_refused(ledger_id, refused) if refused else None)


def _write_lines(ledger: Ledger, waiting: Sequence[Draft]) -> tuple[int, list[RefusedLine]]:
    try:
        return len(ledger.append(waiting)), []
    except Exception as error:
        if not _is_about_entry(error):
            raise
    written, refused = 0, list[RefusedLine]()
    for line in waiting:
        earlier_refused = next((draft for draft, _ in refused if draft.subject == line.subject), None)
        if earlier_refused is not None:
            refused.append((line, f"it comes after a line of the kind {earlier_refused.kind} that was refused"))
            continue
        try:
            written += len(ledger.append([line]))
        except Exception as error:
            if not _is_about_entry(error):
                raise
            why = error.message if isinstance(error, CloudgpuError) else f"{type(error).__name__}: {error}"
            refused.append((line, why))
    return written, refused


def _is_about_entry(error: Exception) -> bool:
    """Return whether the error is about one entry: the ledger refuses it, or cannot process it."""
    return isinstance(error, EntryRefused | RoleNeeded) or not isinstance(error, CloudgpuError)
