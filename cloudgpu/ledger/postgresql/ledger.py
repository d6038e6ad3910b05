"""The ledger in one PostgreSQL database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from cloudgpu.ledger.book import Book
from cloudgpu.ledger.postgresql.address import Address
from cloudgpu.ledger.postgresql.store import PostgresStore


class PostgresLedger(Book):
    """`cloudgpu.ledger.base.Ledger` in the database at `address`; everything else as `Book` says."""

    def __init__(
        self, address: Address, head_path: Path, *, actor: str, clock: Callable[[], datetime], patience: float = 30.0
    ) -> None:
        super().__init__(PostgresStore(address, patience), head_path, actor=actor, clock=clock, patience=patience)
