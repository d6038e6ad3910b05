"""The PostgreSQL schema as an ordered list: entry N takes it from number N to N+1; and the triggers on lines."""

from __future__ import annotations

from cloudgpu.core.team.rights import PAYER_KINDS
from cloudgpu.ledger.log.sql import Connection

# The order of texts is that of their bytes, as in SQLite: what is sorted here and there is sorted alike.
_LINES = """
CREATE TABLE line (
    seq bigint PRIMARY KEY,
    occurred_at text COLLATE "C" NOT NULL,
    clock text COLLATE "C" NOT NULL,
    recorded_at text COLLATE "C" NOT NULL,
    actor text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    dedupe text COLLATE "C" NOT NULL UNIQUE,
    prev_hash text COLLATE "C" NOT NULL,
    body text COLLATE "C" NOT NULL,
    hash text COLLATE "C" NOT NULL
)"""
_MACHINES = """
CREATE TABLE machine (
    id text COLLATE "C" PRIMARY KEY,
    since text COLLATE "C",
    is_resource integer NOT NULL,
    row text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL
)"""
_ENDED_USAGE = """
CREATE TABLE ended_usage (
    subject text COLLATE "C" NOT NULL,
    ended text COLLATE "C" NOT NULL,
    usage text COLLATE "C" NOT NULL
)"""

MIGRATIONS: list[tuple[str, ...]] = [
    (
        "CREATE TABLE ledger_schema (version integer NOT NULL)",
        "INSERT INTO ledger_schema VALUES (0)",
        _LINES,
        "CREATE INDEX line_by_subject ON line (subject, seq)",
        "CREATE INDEX line_by_recorded_at ON line (recorded_at)",
        _MACHINES,
        _ENDED_USAGE,
        "CREATE INDEX ended_usage_by_subject ON ended_usage (subject)",
        "CREATE INDEX ended_usage_by_end ON ended_usage (ended)",
    ),
    (),  # the state for the next fold no longer repeats the record: all is folded again
    (),  # records have the time of the first launch: they are folded again
    # Without a row, everybody who can write to the ledger may do everything.
    (
        """
CREATE TABLE ledger_team (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    members text COLLATE "C" NOT NULL,
    payers text COLLATE "C" NOT NULL
)""",
    ),
    (
        # What a launch reads: no `name` where nothing of a machine is there any more; null where budgets read the row,
        # or the use, itself. All is folded anew.
        'ALTER TABLE machine ADD COLUMN key text COLLATE "C"',
        'ALTER TABLE machine ADD COLUMN name text COLLATE "C"',
        'ALTER TABLE machine ADD COLUMN exposure text COLLATE "C"',
        "CREATE INDEX machine_by_key ON machine (key, name)",
        'ALTER TABLE ended_usage ADD COLUMN intervals text COLLATE "C"',
        "CREATE INDEX ended_usage_without_price ON ended_usage (subject) WHERE intervals IS NULL",
    ),
]
TABLES = ("ledger_schema", "ledger_team", "line", "machine", "ended_usage")

_REFUSE = "\nBEGIN\n    RAISE EXCEPTION '{words}' USING ERRCODE = 'integrity_constraint_violation';\nEND\n"
_CHECK_APPEND = """
DECLARE
    last record;
BEGIN
    SELECT seq, hash, kind INTO last FROM line ORDER BY seq DESC LIMIT 1;
    IF NEW.seq IS DISTINCT FROM coalesce(last.seq, 0) + 1 OR NEW.prev_hash IS DISTINCT FROM coalesce(last.hash, '') THEN
        RAISE EXCEPTION 'a line of the ledger is only appended' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    IF last.kind = 'ledger_moved' OR (last.kind = 'ledger_moving' AND NEW.kind <> 'ledger_arrived') THEN
        RAISE EXCEPTION 'the ledger is not at this place' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END
"""
WRONG_ACTOR, NOT_A_PAYER = (
    "line_names_its_writer",
    "line_is_a_payers",
)  # constraint names of `_CHECK_ACTOR`'s two errors: a wrong actor, no payer
_CHECK_ACTOR = f"""
DECLARE
    team record;
BEGIN
    SELECT members, payers INTO team FROM ledger_team;
    IF NOT FOUND THEN
        RETURN NEW;
    END IF;
    IF NEW.actor IS DISTINCT FROM session_user::text THEN
        RAISE EXCEPTION 'a line of a team names the database user who writes it'
            USING ERRCODE = 'insufficient_privilege', CONSTRAINT = '{WRONG_ACTOR}';
    END IF;
    IF NEW.kind IN ({", ".join(f"'{kind}'" for kind in sorted(PAYER_KINDS))})
        AND NOT pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE')
        AND NOT EXISTS (
            SELECT 1 FROM pg_roles WHERE rolname = team.payers AND pg_has_role(session_user, oid, 'USAGE')
        )
    THEN
        RAISE EXCEPTION 'only payers write lines of the kind %', NEW.kind
            USING ERRCODE = 'insufficient_privilege', CONSTRAINT = '{NOT_A_PAYER}';
    END IF;
    RETURN NEW;
END
"""  # noqa: S608  (kinds are words of ours)
# name: (when it fires, what it does, pg_trigger.tgtype). A function's body is compared with the database's.
_TRIGGERS = {
    "line_is_never_changed": (
        "BEFORE UPDATE ON line FOR EACH STATEMENT",
        _REFUSE.format(words="a line of the ledger is never changed"),
        18,
    ),
    "line_is_never_deleted": (
        "BEFORE DELETE ON line FOR EACH STATEMENT",
        _REFUSE.format(words="a line of the ledger is never deleted"),
        10,
    ),
    "line_is_never_emptied": (
        "BEFORE TRUNCATE ON line FOR EACH STATEMENT",
        _REFUSE.format(words="the lines of the ledger are never emptied"),
        34,
    ),
    "line_is_only_appended": ("BEFORE INSERT ON line FOR EACH ROW", _CHECK_APPEND, 7),
    "line_is_by_its_writer": ("BEFORE INSERT ON line FOR EACH ROW", _CHECK_ACTOR, 7),
}
TRIGGERS = frozenset(_TRIGGERS)

_PRESENT_TRIGGERS = """
SELECT tgname, prosrc, tgtype FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid
WHERE tgrelid = 'line'::regclass AND NOT tgisinternal AND tgenabled = 'A' AND tgqual IS NULL"""
_ADDED_RULES = "SELECT rulename FROM pg_rewrite WHERE ev_class = 'line'::regclass ORDER BY rulename"
_RULE_PREFIX = "line has no rule "
# Not to_regclass(): it answers from a cache that may be older than the lock which its transaction just got.
_HAS_LEDGER = """
SELECT 1 FROM pg_class WHERE relname = 'ledger_schema'
AND relnamespace = quote_ident(current_schema())::regnamespace"""
_HAS_TABLES = """
SELECT 1 FROM pg_class WHERE relnamespace = quote_ident(current_schema())::regnamespace
AND relkind IN ('r', 'p') LIMIT 1"""


def version_of(connection: Connection) -> int:
    """Return the schema's number; 0 where there is no ledger yet."""
    if connection.execute(_HAS_LEDGER).fetchone() is None:
        return 0
    return int(connection.execute("SELECT version FROM ledger_schema").fetchone()[0])


def is_foreign(connection: Connection) -> bool:
    """Return whether a schema without a ledger holds another program's tables."""
    return connection.execute(_HAS_TABLES).fetchone() is not None


def migrate(connection: Connection) -> None:
    """Bring the schema to the present number, inside the caller's transaction."""
    for step in MIGRATIONS[version_of(connection) :]:
        for statement in step:
            connection.execute(statement)
    connection.execute("UPDATE ledger_schema SET version = ?", (len(MIGRATIONS),))
    restore_triggers(connection)


def archive_tables(connection: Connection, name: str) -> str:
    """Move the ledger's tables into the new schema `name`, inside the caller's transaction; return its name."""
    name = name[:63]  # what PostgreSQL keeps of a name
    connection.execute(f'CREATE SCHEMA "{name}"')
    for table in TABLES:
        connection.execute(f'ALTER TABLE {table} SET SCHEMA "{name}"')
    return name


def delete_move_mark(connection: Connection) -> None:
    """Delete the last line, which has to be a mark of a move, inside the caller's transaction."""
    connection.execute("DROP TRIGGER IF EXISTS line_is_never_deleted ON line")
    connection.execute("DELETE FROM line WHERE seq = (SELECT max(seq) FROM line)")
    restore_triggers(connection)


def missing_triggers(connection: Connection) -> list[str]:
    """Return the names of triggers that were dropped, disabled or changed, and of rules that were added."""
    found = {name: (body, trigger_type) for name, body, trigger_type in connection.execute(_PRESENT_TRIGGERS)}
    missing = [name for name, (_, *expected) in _TRIGGERS.items() if found.get(name) != tuple(expected)]
    return sorted(missing) + [f"{_RULE_PREFIX}{name}" for (name,) in connection.execute(_ADDED_RULES)]


def restore_triggers(connection: Connection) -> None:
    """Put back the triggers that are missing, inside the caller's transaction."""
    for name in missing_triggers(connection):
        if name.startswith(_RULE_PREFIX):
            connection.execute(f'DROP RULE "{name.removeprefix(_RULE_PREFIX)}" ON line')
        else:
            _restore_trigger(connection, name)


def _restore_trigger(connection: Connection, name: str) -> None:
    """Create a trigger that also fires for replicas, and uses this schema whoever inserts."""
    fires_when, body, _ = _TRIGGERS[name]
    connection.execute(f"DROP TRIGGER IF EXISTS {name} ON line")
    function_options = "RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT"
    connection.execute(f"CREATE OR REPLACE FUNCTION {name}() {function_options} AS $guard${body}$guard$")
    connection.execute(f"CREATE TRIGGER {name} {fires_when} EXECUTE FUNCTION {name}()")
    connection.execute(f"ALTER TABLE line ENABLE ALWAYS TRIGGER {name}")
