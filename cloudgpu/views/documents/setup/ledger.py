"""Documents of `ledger` and `cost --verify`."""

from typing import Annotated, NotRequired, TypedDict

from cloudgpu.views.documents.parts import AccountCoverage, Time, UnansweredScope


class VerifyDocument(AccountCoverage):
    """What a check of the ledger has found; accounts are queried to resolve an integrity problem."""

    lines: int
    """Lines of the ledger."""
    head_hash: str
    """The hash of the last one."""
    errors: list[str]
    """One sentence for each error; empty if there is none. Wrong sums were computed again from the lines."""
    settled: bool
    """This call resolved an integrity problem; `integrity_problem` then says which."""
    integrity_problem: NotRequired[str]
    """Why the ledger could not be trusted, with `settled`."""
    unanswered: list[UnansweredScope]
    """Accounts that this home knows and that were not queried: what runs there is unknown, and the exit code is 8."""


class LedgerCopy(TypedDict):
    """A copy of the ledger that was checked; a part of documents, not one of its own."""

    file: str
    """The copy's absolute path."""
    ledger: str
    """The ledger's id."""
    lines: int
    """How many lines it holds, each with the right hash."""
    recorded_at: Time
    """When the last of them was written."""


class BackupDocument(LedgerCopy):
    """A copy of the ledger."""

    bytes: int
    """Its size."""


class MissingRight(TypedDict):
    """A right that somebody else has to grant first."""

    message: str
    """What is missing, in a sentence."""
    statement: str
    """The SQL that grants it."""
    by: str
    """Who may run it: a database user, or the administrator of the server."""


class TeamLedgerDocument(TypedDict):
    """How a team shares the ledger."""

    ledger: str
    """The database, without its password."""
    owner: str
    """The database user to whom the tables belong."""
    user: str
    """The database user of this home."""
    members_role: str | None
    """The role of those who may write."""
    payers_role: str | None
    """The role of payers, who may also set budgets and publish policies and limits."""
    ready: bool
    """Whether the ledger is shared by now."""
    members: list[str]
    """Who may write, payers included."""
    payers: list[str]
    """The payers."""
    missing: list[MissingRight]
    """Rights that others have to grant first; exit code 6 unless it is empty."""
    notes: list[str]
    """What else has to be known, in sentences."""


class RestoreDocument(LedgerCopy):
    """A copy that is the ledger now."""

    missing_lines: int
    """How many lines of the previous ledger are not in it."""
    previous_ledger: str | None
    """Where that ledger is now; null when there was none."""
    integrity_problem: str | None
    """Why nothing is launched until `cost --verify --yes`; null when nothing is missing."""


# A key that is a keyword of Python, which no class can declare.
_LedgerMoveDocumentKeywords = TypedDict(
    "_LedgerMoveDocumentKeywords",
    {
        "from": Annotated[str, "Where the ledger stood; it can only be read there now."],
    },
)


class LedgerMoveDocument(_LedgerMoveDocumentKeywords):
    """A ledger in its new place."""

    to: str
    """The URL of the new place, without user and password."""
    ledger: str
    """The ledger's id, which stays."""
    lines: int
    """How many lines the new place holds."""
    followed: bool
    """The ledger had been moved before: only this home changed."""
    config: str | None
    """The `config.toml` that names the new place now; null: it was left as it is."""
    notes: list[str]
    """What else still names the old place, and what to do about it."""


class OwnerUser(TypedDict):
    """The database user to whom an owner's name belongs."""

    owner: str
    """An owner's name, as machines have it."""
    user: str
    """The user of the database."""


class OwnersDocument(TypedDict):
    """Which database users owners' names belong to."""

    owners: list[OwnerUser]
    """Each `owner` (a name that machines have) with the database `user` to whom it belongs."""
