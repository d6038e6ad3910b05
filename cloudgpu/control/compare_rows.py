"""Which of the ledger's rows were rented, and which are of machines that are the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cloudgpu.control.worked import OWN

Row = dict[str, Any]
HERE = "local"  # the provider that plays on this computer: no cloud, and no machine that was bought


def clouds_of(rows: Sequence[Row]) -> tuple[list[Row], bool]:
    """Return the rows of what was rented, and whether that is only rehearsed: local ones stand for it then."""
    clouds = [row for row in rows if row["provider"] not in (OWN, HERE)]
    here = [row for row in rows if row["provider"] == HERE]
    return (clouds, False) if clouds or not here else (here, True)
