"""The ledger in one SQLite file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from cloudgpu.ledger.book import Book
from cloudgpu.ledger.connection import SqliteFile


class SqliteLedger(Book):
    """`cloudgpu.ledger.base.Ledger` in the SQLite file `path`; everything else as `Book` says."""

    def __init__(
        self, path: Path, head_path: Path, *, actor: str, clock: Callable[[], datetime], patience: float = 30.0
    ) -> None:
        super().__init__(SqliteFile(path, patience), head_path, actor=actor, clock=clock, patience=patience)
