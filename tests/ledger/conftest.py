"""Ledgers by name, on each database: what the suites call a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cloudgpu.ledger.log.base import Ledger
from cloudgpu.ledger.open import open_ledger
from tests.ledger.lines import Clock
from tests.ledger.suite import Store
from tests.postgres import Server


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Store]:
    opened = []

    def make(name: str = "one", *, actor: str = "somebody", clock: Clock | None = None) -> Ledger:
        ledger = open_ledger(None, tmp_path / name, actor=actor, clock=clock or Clock())
        opened.append(ledger)
        return ledger

    yield make
    for ledger in opened:
        ledger.close()


@pytest.fixture
def postgres_store(postgres: Server, tmp_path: Path) -> Iterator[Store]:
    opened: list[Ledger] = []
    urls: dict[str, str] = {}

    def make(name: str = "one", *, actor: str = "somebody", clock: Clock | None = None) -> Ledger:
        if name not in urls:
            urls[name] = postgres.schema()
        ledger = open_ledger(urls[name], tmp_path / f"pg-{name}", actor=actor, clock=clock or Clock())
        opened.append(ledger)
        for one in opened[:-8]:  # a server takes some hundred connections; a closed ledger opens again by itself
            one.close()
        return ledger

    yield make
    for ledger in opened:
        ledger.close()
