"""The common suite on a real PostgreSQL server."""

from __future__ import annotations

import pytest

from tests.ledger.suite import LedgerSuite, Store


@pytest.fixture
def store(postgres_store: Store) -> Store:
    return postgres_store


class TestPostgres(LedgerSuite):
    """Every promise of the suite holds on PostgreSQL."""
