"""Turns errors of PostgreSQL and of the connection to it into LedgerUnavailable, never with a password in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

from cloudgpu.errors import InvalidRequest, LedgerDenied, LedgerUnavailable
from cloudgpu.ledger.log import storage_errors

if TYPE_CHECKING:
    import psycopg

    from cloudgpu.ledger.postgresql.address import Address

_FULL = (
    "cannot be written: the server's disk is full",
    "Free some space there, then try again; what is in it is safe.",
)
_LOCKED = ("is locked by another client", "Wait for the other cloudgpu commands to end, then try again.")
_READ_ONLY = (storage_errors.READ_ONLY, "Name the server that takes writes, not its standby, in CLOUDGPU_LEDGER.")
_UNREACHABLE = (
    "cannot be reached",
    "What it holds is not known now. Check the server, and its address in CLOUDGPU_LEDGER; stop and down still work.",
)
_LOGIN_REFUSED = (
    "does not let this user in",
    "Check the name and password in CLOUDGPU_LEDGER, PGPASSWORD or ~/.pgpass.",
)
_NO_DATABASE = ("does not exist on that server", "Check the database's name in CLOUDGPU_LEDGER.")
_SERVER_LACKS = (
    "cannot be used: its server lacks memory or another resource",
    "Look into the server's log, then try again; stop and down still work.",
)
_SERVER_FAULT = (
    "cannot be used: its server reports a fault of its system or disk",
    "Look into the server's log, then try again; stop and down still work.",
)
_BROKEN = ("cannot be read or written", "Look into the server's log, then try again.")
_ALTERED = ("is not as cloudgpu made it", f"{storage_errors.REPAIR_REMEDY}.")

# The ledger cannot be written now: the LedgerAway of `away_error`, for which stops and terminations do not wait.
_NOT_WRITABLE_NOW = (_FULL, _LOCKED, _READ_ONLY, _UNREACHABLE, _SERVER_LACKS, _SERVER_FAULT)
_LOGIN_MESSAGE_WORDS = (
    "password",
    "authentication",
    "pg_hba.conf",
    "certificate",
)  # in the message of a login that was refused without a code
# https://www.postgresql.org/docs/current/errcodes-appendix.html: the code, or its class.
_PROBLEM_BY_CODE = {
    "53100": _FULL,
    "55P03": _LOCKED,
    "40P01": _LOCKED,
    "25006": _READ_ONLY,
    "57P01": _UNREACHABLE,
    "57P02": _UNREACHABLE,
    "57P03": _UNREACHABLE,
    "53300": _UNREACHABLE,
    "XX001": storage_errors.DAMAGED,
    "XX002": storage_errors.DAMAGED,
    "08": _UNREACHABLE,
    "53": _SERVER_LACKS,
    "58": _SERVER_FAULT,
    "28": _LOGIN_REFUSED,
    "3D": _NO_DATABASE,
    "23": _ALTERED,
    "42": _ALTERED,
}


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Raise LedgerUnavailable about the ledger at `address` for every psycopg.Error and OSError of this block.

    A statement that the database refuses this user is LedgerDenied, or RoleNeeded if only payers may do it:
    the members of the database role that may change budgets.
    """
    import psycopg

    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        from cloudgpu.ledger.postgresql.refusal import explain_refusal

        raise explain_refusal(error, address) from None
    except psycopg.Error as error:
        # Its traceback would hold the connection's parameters.
        raise _no_connect_right_error(error, address) or database_error(error, address) from None
    except OSError as error:
        raise storage_errors.system_error(error, address.location) from error


def _no_connect_right_error(error: psycopg.Error, address: Address) -> LedgerUnavailable | None:
    """Return the error for a user who may not connect to the database; libpq gives no code for that."""
    if error.sqlstate or "permission denied for database" not in str(error):
        return None
    from cloudgpu.ledger.postgresql.denied import not_connected_error

    return not_connected_error(address)


def database_error(error: psycopg.Error, address: Address) -> LedgerUnavailable:
    """Return the error for one of the database or its client library; without a code, the server was not reached."""
    import psycopg

    is_about_entry = isinstance(error, psycopg.DataError | psycopg.IntegrityError)
    code = error.sqlstate or ""
    message = without_secrets(str(error), address)
    connect_problem = _connect_problem(message) if isinstance(error, psycopg.OperationalError) else _BROKEN
    problem = _PROBLEM_BY_CODE.get(code) or _PROBLEM_BY_CODE.get(code[:2]) or (_BROKEN if code else connect_problem)
    if problem is _LOGIN_REFUSED:
        sentence = f"The ledger {address.location} {problem[0]} ({message})."
        return LedgerDenied(sentence, field="ledger", value=address.location, next=problem[1])
    if problem in _NOT_WRITABLE_NOW:
        return storage_errors.away_error(address.location, problem[0], message, problem[1])
    kind = storage_errors.EntryRefused if is_about_entry else LedgerUnavailable
    return storage_errors.unavailable_error(kind, address.location, problem[0], message, problem[1])


def _connect_problem(message: str) -> tuple[str, str]:
    """Return why a client without an error code could not connect: libpq gives none for a failed login."""
    if "does not exist" in message and "database" in message:
        return _NO_DATABASE
    return _LOGIN_REFUSED if any(word in message for word in _LOGIN_MESSAGE_WORDS) else _UNREACHABLE


def without_secrets(text: str, address: Address) -> str:
    """Return a message on one line, without the secrets of the address."""
    for secret in address.secrets:
        for spelling in (secret, quote(secret, safe="")):
            text = text.replace(spelling, "***")
    return " ".join(text.split()).rstrip(".")


def unknown_commit_error(address: Address, database_message: str) -> LedgerUnavailable:
    """Return the error for entries whose commit is not known."""
    return storage_errors.away_error(
        address.location,
        "was lost during a write, so whether the entries were recorded is not known",
        database_message,
        "Run the same again when it can be reached: no entry is written twice.",
    )


def unwritten_error(address: Address, database_message: str) -> LedgerUnavailable:
    """Return the error for entries that were not committed."""
    return storage_errors.away_error(
        address.location, "was lost while it wrote, and nothing was written", database_message, "Run the same again."
    )


def foreign_schema_error(address: Address, schema: str) -> InvalidRequest:
    """Return the error for a schema that holds another program's tables."""
    return InvalidRequest(
        f"The schema {schema} of {address.location} holds another program's tables, and no ledger.",
        field="CLOUDGPU_LEDGER",
        value=address.location,
        next="Give the ledger a database of its own, or a schema: CREATE SCHEMA cloudgpu; and at the end of "
        "CLOUDGPU_LEDGER: ?options=-csearch_path%3Dcloudgpu",
    )
