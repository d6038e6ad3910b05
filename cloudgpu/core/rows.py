"""What a row of the ledger says of its machine beside its facts. Apart from `keeping`: `ls` pays for every import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]


def stays(row: Row) -> bool:
    """Say whether something of this machine is kept, though it is gone."""
    return row["ended"] is not None and bool(row["kept"] or row["parked"])


def comes_back(row: Row) -> bool:
    """Say whether this machine is gone and can be started from what is kept of it."""
    return stays(row) and not row["discard"]
