"""Reads the machines' current records and ended usages as they are stored, without folding anything."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from cloudgpu.core.model.machine import Machine, has_retained_resources
from cloudgpu.core.model.usage import Usage, usage_of_record
from cloudgpu.ledger.log.lines import LastLine, last_line

if TYPE_CHECKING:
    from cloudgpu.core.billing.rules import RateInterval
    from cloudgpu.core.budgets.exposure import Exposure
    from cloudgpu.ledger.log.sql import Connection

_MAX_CHANGED = 50  # changed machines whose records are read one by one
_MAX_NEW_LINES = 500  # that are searched for changed machines
_BATCH = 20  # records parsed at once: they fit into a processor's cache; 200 at once took 50% longer
_NO_LAST_LINE: LastLine = (0, "", "")
_SortedMachines = dict[str, Machine]  # by subject, oldest first
_SELECT_HASH = "SELECT hash FROM line WHERE seq = ?"
_SELECT_RECORDS = "SELECT id, row FROM machine"  # sorted here: SQLite would copy every record's text to sort it
_SELECT_LAUNCHED = "SELECT row FROM machine WHERE key = ? ORDER BY since, id"
_SELECT_EXPOSURES = "SELECT coalesce(exposure, row) FROM machine ORDER BY since, id"
_SELECT_BILLED = "SELECT subject, intervals FROM ended_usage WHERE ended >= ? AND intervals IS NOT NULL"
_SELECT_CHANGED = (
    "SELECT subject FROM line WHERE seq > ? ORDER BY seq LIMIT ?"  # with DISTINCT, SQLite reads a whole index
)

# By the text of a record (`lines.canonical`): no other part of it has a list `retained`, or `parked`. What is found
# in addition is dropped once it is parsed.
_SELECT_PRESENT = """
SELECT row FROM machine
WHERE is_resource = 0 AND (
    row LIKE ? OR row NOT LIKE ? OR row NOT LIKE ?
    OR id = (SELECT id FROM machine WHERE is_resource = 0 ORDER BY since, id LIMIT 1)
)
ORDER BY since, id"""
_PRESENT_PATTERNS = ('%"terminated_at":null%', '%"retained":[]%', '%"parked":false%')


class MachineCache:
    """Records that were read before, by their ids: unchanged ones are neither read nor parsed again.

    A run of the reaper reads all records a dozen times. All readers share the parsed records, which are never
    changed. A record's text is compared by its 64-bit hash.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Machine]] = {}  # by id: the hash of the record's text, and the record
        self._latest: tuple[LastLine, _SortedMachines] = (
            _NO_LAST_LINE,
            {},
        )  # all records, and the last line when they were read

    def forget(self) -> None:
        """Forget all records, after they were folded again from the lines."""
        self._known.clear()
        self._latest = _NO_LAST_LINE, {}

    def machines(self, connection: Connection) -> list[Machine]:
        """Return every machine's record, oldest first: without volumes and images that have a name of their own."""
        return [machine for machine in self._read_all(connection) if not machine.is_named_resource]

    def billable_machines(self, connection: Connection) -> list[Machine]:
        """Return the record of everything that costs or has cost: machines, and named volumes and images."""
        return self._read_all(connection)

    def machine(self, connection: Connection, subject: str) -> Machine | None:
        """Return one machine's record, or None."""
        record_row = connection.execute(
            "SELECT row FROM machine WHERE id = ? AND is_resource = 0", (subject,)
        ).fetchone()
        if record_row is None:
            return None
        if subject not in self._known or self._known[subject][0] != hash(record_row[0]):
            self._known[subject] = hash(record_row[0]), Machine.of(json.loads(record_row[0]))
        return self._known[subject][1]

    def _read_all(self, connection: Connection) -> list[Machine]:
        """Return all records, brought up to date."""
        last_line_now = last_line(
            connection
        )  # before the records: what is written in between is read again the next time
        previous_last, machines = self._latest
        if not last_line_now[1] or (
            previous_last[1] != last_line_now[1] and not self._update_changed(connection, previous_last, machines)
        ):
            machines = self._read(connection)
        self._latest = last_line_now, machines
        return list(machines.values())

    def _update_changed(self, connection: Connection, previous_last: LastLine, machines: _SortedMachines) -> bool:
        """Read the records with lines after `previous_last` into `machines`; return False if they are too many, or new.

        A sync of an account writes one line, and a run reads all records after each.
        """
        if not previous_last[1] or connection.execute(_SELECT_HASH, (previous_last[0],)).fetchone() != (
            previous_last[1],
        ):
            return False
        new_lines = connection.execute(_SELECT_CHANGED, (previous_last[0], _MAX_NEW_LINES + 1)).fetchall()
        changed = dict.fromkeys(subject for (subject,) in new_lines)
        if len(new_lines) > _MAX_NEW_LINES or len(changed) > _MAX_CHANGED:
            return False
        for subject in changed:
            record_row = connection.execute("SELECT row FROM machine WHERE id = ?", (subject,)).fetchone()
            if record_row is None:
                continue  # a line of no machine
            machine = Machine.of(json.loads(record_row[0]))
            if subject not in machines or machines[subject].intended_at != machine.intended_at:
                return False
            self._known[subject] = hash(record_row[0]), machine
            machines[subject] = machine
        return True

    def _read(self, connection: Connection) -> _SortedMachines:
        found, cached, subjects = iter(connection.execute(_SELECT_RECORDS)), self._known, list[str]()
        while batch := list(islice(found, _BATCH)):
            subjects += [subject for subject, _ in batch]
            changed_texts = [(id_, text) for id_, text in batch if id_ not in cached or cached[id_][0] != hash(text)]
            parsed = json.loads(f"[{','.join([text for _, text in changed_texts])}]")
            for (id_, text), machine in zip(changed_texts, map(Machine.of, parsed), strict=True):
                cached[id_] = hash(text), machine
        return {id_: cached[id_][1] for _, id_ in sorted((cached[id_][1].intended_at, id_) for id_ in subjects)}


def present_machines(connection: Connection) -> list[Machine]:
    """Return the records of living machines, those with retained resources, and the oldest one; oldest first.

    Others are skipped as text, neither parsed nor held in memory.
    """
    found = connection.execute(_SELECT_PRESENT, _PRESENT_PATTERNS)
    return select_present([Machine.of(json.loads(text)) for (text,) in found])


def select_present(machines: Iterable[Machine]) -> list[Machine]:
    """Return the records of living machines, those with retained resources, and the oldest one, in any order."""
    all_machines = list(machines)
    oldest = min(((machine.intended_at, machine.id) for machine in all_machines), default=None)
    return [
        machine
        for machine in all_machines
        if machine.terminated_at is None
        or has_retained_resources(machine)
        or (machine.intended_at, machine.id) == oldest
    ]


def ended_usages(connection: Connection, since: str, *, unpriced: bool = False) -> Iterator[tuple[str, Usage]]:
    """Yield usages that ended from `since` (ledger time) on, with their subjects; `unpriced`: only unpriced ones."""
    unpriced_condition = " AND intervals IS NULL" if unpriced else ""
    query = (
        f"SELECT subject, usage FROM ended_usage WHERE ended >= ?{unpriced_condition} ORDER BY subject, ended, usage"  # noqa: S608
    )
    for subject, text in connection.execute(query, (since,)):
        yield subject, usage_of_record(json.loads(text))


def launched(connection: Connection, key: str) -> list[Machine]:
    """Return the records of the machines that were launched with this launch key."""
    return [Machine.of(json.loads(text)) for (text,) in connection.execute(_SELECT_LAUNCHED, (key,))]


def names(connection: Connection) -> list[tuple[str, str]]:
    """Return name and launch key of each living machine and each with retained resources."""
    found = connection.execute("SELECT name, key FROM machine WHERE name IS NOT NULL")
    return [(name, key) for name, key in found]


def exposures(connection: Connection) -> list[Exposure | Machine]:
    """Return what budgets count (`Exposure`: cost so far and to come) of all that costs or has cost, oldest first.

    The record in its place, where budgets need that.
    """
    from cloudgpu.core.budgets.exposure import Exposure

    found = json.loads(f"[{','.join([text for (text,) in connection.execute(_SELECT_EXPOSURES)])}]")
    return [Exposure(*value) if isinstance(value, list) else Machine.of(value) for value in found]


def billed_costs(connection: Connection, since: str) -> list[tuple[str, list[RateInterval] | Usage]]:
    """Return usages that ended from `since` on, with their subjects: as rate intervals, or as usages if unpriced."""
    found = connection.execute(_SELECT_BILLED, (since,)).fetchall()
    parsed = json.loads(f"[{','.join([text for _, text in found])}]")
    return [
        *((subject, value) for (subject, _), value in zip(found, parsed, strict=True)),
        *ended_usages(connection, since, unpriced=True),
    ]
