"""Finds out why the database refused a statement, over a separate connection."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import psycopg

from cloudgpu.core.team.rights import payer_needed
from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger.postgresql import schema
from cloudgpu.ledger.postgresql.connection import Adapter, connect_to_ledger
from cloudgpu.ledger.postgresql.denied import denied_error, missing_rights_error

if TYPE_CHECKING:
    from cloudgpu.ledger.log.sql import Connection
    from cloudgpu.ledger.postgresql.address import Address


def explain_refusal(error: psycopg.Error, address: Address) -> CloudgpuError:
    """Return the error for a refused statement; a separate connection finds out why."""
    try:
        raw, schema_name, _ = connect_to_ledger(address)
        with closing(raw):
            return _payer_needed(error, Adapter(raw)) or missing_rights_error(Adapter(raw), address, schema_name)
    except CloudgpuError as cause:
        return cause
    except psycopg.Error:
        return denied_error(address, f"The ledger {address.location} refuses this user.", "Ask whoever owns it.")


def _payer_needed(error: psycopg.Error, connection: Connection) -> CloudgpuError | None:
    from cloudgpu.ledger.postgresql import team

    if error.diag.constraint_name != schema.NOT_A_PAYER:
        return None
    action = f"Writing a line of the kind {(error.diag.message_primary or '').rpartition(' ')[2]}"
    return payer_needed(action, team.current_role(connection)[1], team.payers(connection))
