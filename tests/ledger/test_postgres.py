"""The common suite on a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudgpu.ledger.base import Ledger
from cloudgpu.ledger.open import open_ledger
from tests.ledger.lines import Clock
from tests.ledger.suite import LedgerSuite, Store
from tests.postgres import Server


@pytest.fixture
def store(postgres: Server, tmp_path: Path) -> Iterator[Store]:
    opened: list[Ledger] = []
    urls: dict[str, str] = {}

    def make(name: str = "one", *, actor: str = "somebody", clock: Clock | None = None) -> Ledger:
        if name not in urls:
            urls[name] = postgres.schema()
        ledger = open_ledger(urls[name], tmp_path / name, actor=actor, clock=clock or Clock())
        opened.append(ledger)
        for one in opened[:-8]:  # a server takes a hundred connections; a closed ledger opens again by itself
            one.close()
        return ledger

    yield make
    for ledger in opened:
        ledger.close()


class TestPostgres(LedgerSuite):
    """Every promise of the suite holds on PostgreSQL."""
