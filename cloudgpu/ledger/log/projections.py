"""Appends lines to the chain, and maintains the machines' current records and ended usages.

Records and usages are projections: tables that are derived from the lines, and can be made again from them. A line is
appended and folded into them in one transaction, the caller's; `rebuild` folds all lines again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

from cloudgpu.core.billing.rates import ended_intervals
from cloudgpu.core.budgets.exposure import exposure_of
from cloudgpu.core.events.log import Draft, Event, EventSummary
from cloudgpu.core.events.projection import Projection, State, apply_event, packed, project, unpacked
from cloudgpu.core.model.machine import Machine, has_retained_resources
from cloudgpu.core.model.usage import usage_of_record
from cloudgpu.core.values.times import iso
from cloudgpu.ledger.log.lines import COLUMNS, LastLine, canonical, line_hash, lines_of, summaries_except
from cloudgpu.ledger.log.sql import Connection

_StateTexts = tuple[str | None, ...]  # the columns of a machine's record: key, name, exposure, row, state
_UsageTexts = tuple[str, str | None, str]  # the columns of an ended usage: ended, intervals, usage

_HAS_DEDUPE = "SELECT 1 FROM line WHERE dedupe = ?"
_INSERT = f"INSERT INTO line ({COLUMNS}, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608


def append_lines(
    connection: Connection, drafts: Iterable[Draft], last_line: LastLine, *, actor: str, recorded_at: str
) -> tuple[tuple[Event, ...], LastLine]:
    """Append the drafts that are not in the ledger yet after `last_line`; return the new lines and the new end."""
    written = []
    for draft in drafts:
        if connection.execute(_HAS_DEDUPE, (draft.dedupe,)).fetchone():
            continue
        body_text = canonical(draft.body)
        columns = _columns(draft, last_line, actor, recorded_at)
        line = Event(*columns, json.loads(body_text))
        last_line = line.seq, line_hash(line, body_text), recorded_at
        connection.execute(_INSERT, (*columns, body_text, last_line[1]))
        written.append(line)
    return tuple(written), last_line


def _columns(
    draft: Draft, last_line: LastLine, actor: str, recorded_at: str
) -> tuple[int, str, str, str, str, str, str, str, str]:
    """Return the line's fields in the order of `Event`, without its body."""
    occurred_at, subject = iso(draft.occurred_at), draft.subject
    return (
        last_line[0] + 1,
        occurred_at,
        draft.clock,
        recorded_at,
        actor,
        draft.kind,
        subject,
        draft.dedupe,
        last_line[1],
    )


# Lines of no machine: their subjects grow without end, and folding them would say nothing.
_KINDS_OF_NO_MACHINE = frozenset(
    "ledger_opened ledger_doubted ledger_settled ledger_moved ledger_moving ledger_arrived account_synced "
    "alert_raised alert_sent alert_cleared "
    "budget_set budget_removed budget_overridden reap_finished report_sent "
    "account_forgotten account_renamed team_set policy_published policy_withdrawn owner_claimed owner_assigned "
    "job_requested job_placed job_machine job_began job_progressed job_try_ended job_ended job_cancel_requested "
    "job_results_fetched job_resumed job_waits job_closed job_work_saved job_move_requested "
    "job_in_slurm slurm_job_recorded job_gang_refused".split()
)

# Not `INSERT OR REPLACE`: an update in place touches one page, a replacement the index too.
_UPSERT_MACHINE = """
INSERT INTO machine (id, since, is_resource, key, name, exposure, row, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET
    since = excluded.since, key = excluded.key, name = excluded.name, exposure = excluded.exposure, row = excluded.row,
    state = excluded.state"""
_SELECT_STORED = "SELECT id, key, name, exposure, row, state FROM machine"
_INSERT_USAGE = "INSERT INTO ended_usage (subject, ended, intervals, usage) VALUES (?, ?, ?, ?)"


def refresh(connection: Connection, written: Iterable[Event], states: dict[str, State]) -> None:
    """Fold these lines, already written, into the records of their subjects.

    `states` has the folded states of some subjects, which need not be read then; it is updated.
    """
    lines: dict[str, list[Event]] = {}
    for line in written:
        if line.kind not in _KINDS_OF_NO_MACHINE:
            lines.setdefault(line.subject, []).append(line)
    for subject, new_lines in lines.items():
        result = _fold_onto(states.pop(subject, None) or _stored(connection, subject), new_lines)
        if result is None:
            result = project(lines_of(connection, subject))
            connection.execute("DELETE FROM ended_usage WHERE subject = ?", (subject,))
        if result is not None:
            _store(connection, subject, result.state)
            _store_usages(connection, subject, map(_usage_texts, result.ended_usages))
            states[subject] = result.state


def rebuild(connection: Connection) -> None:
    """Empty the projections and fold them again from the lines."""
    connection.execute("DELETE FROM machine")
    connection.execute("DELETE FROM ended_usage")
    replay = Replay(connection)
    for subject, state in replay.states():
        _store(connection, subject, state)
    for subject, ended_usages in replay.ended_usages.items():
        _store_usages(connection, subject, ended_usages)


def differences(connection: Connection) -> list[str]:
    """Return a sentence for each machine whose record or usages are not what its lines fold to."""
    stored_texts: dict[str, _StateTexts] = {
        subject: tuple(texts) for subject, *texts in connection.execute(_SELECT_STORED)
    }
    ended_usages: dict[str, list[_UsageTexts]] = {}
    for subject, *texts in connection.execute("SELECT subject, ended, intervals, usage FROM ended_usage"):
        ended_usages.setdefault(subject, []).append(cast("_UsageTexts", tuple(texts)))
    replay = Replay(connection)
    expected_texts = {subject: _state_texts(state) for subject, state in replay.states()}
    return [
        f"The current state of {subject} is not what its lines say."
        for subject in sorted(stored_texts.keys() | expected_texts.keys() | ended_usages.keys())
        if stored_texts.get(subject) != expected_texts.get(subject)
        or sorted(ended_usages.get(subject, ()), key=_usage_order)
        != sorted(replay.ended_usages.get(subject, ()), key=_usage_order)
    ]


class Replay:
    """One reading of all lines, in the order of the ledger, folded as they come.

    A subject with a line that is older than an earlier one is folded once more from its own lines.
    `ended_usages` has, by subject, each usage that has ended, as it is stored.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._states: dict[str, State] = {}
        self._without_record: set[str] = set()  # subjects whose lines so far make no record
        self._out_of_order: set[str] = set()  # subjects with a line that is older than an earlier one
        self.ended_usages: dict[str, list[_UsageTexts]] = {}
        self._read()

    def states(self) -> Iterator[tuple[str, State]]:
        """Yield the folded state of each subject."""
        for subject in sorted(self._out_of_order):
            projected = project(lines_of(self._connection, subject))
            if projected is not None:
                self._states[subject] = projected.state
                self._add_usages(subject, projected.ended_usages)
        yield from sorted(self._states.items())

    def _read(self) -> None:
        states = self._states
        for line in summaries_except(self._connection, _KINDS_OF_NO_MACHINE):
            state = states.get(line.subject)
            if state is None:
                self._start_subject(line)
                continue
            closed_usages = apply_event(state, line)
            if closed_usages is None:
                self._out_of_order.add(line.subject)
                del states[line.subject]
                self.ended_usages.pop(line.subject, None)
            elif closed_usages:
                self._add_usages(line.subject, closed_usages)

    def _start_subject(self, line: EventSummary) -> None:
        if line.subject in self._out_of_order:
            return
        projected = project((line,))
        if projected is None:
            self._without_record.add(line.subject)
        elif line.subject in self._without_record:
            self._out_of_order.add(line.subject)  # earlier lines may belong after this one
        else:
            self._states[line.subject] = projected.state
            self._add_usages(line.subject, projected.ended_usages)

    def _add_usages(self, subject: str, closed_usages: Iterable[dict[str, Any]]) -> None:
        self.ended_usages.setdefault(subject, []).extend(map(_usage_texts, closed_usages))


def _state_texts(state: State) -> _StateTexts:
    """Return a state as it is stored.

    That is launch key and name, what budgets count, the record, and what only the next fold needs.
    """
    row = state["row"]
    machine = Machine.of(row)
    exposure, is_named = exposure_of(machine), machine.is_named_resource
    is_name_in_use = not is_named and (machine.terminated_at is None or has_retained_resources(machine))
    texts = None if exposure is None else canonical(exposure), canonical(row), canonical(packed(state))
    return None if is_named else machine.key, machine.name if is_name_in_use else None, *texts


def _usage_texts(usage_record: dict[str, Any]) -> _UsageTexts:
    """Return until when a usage may be billed (with its minimum or started hour), its rate intervals, and its record.

    A usage without a price has no rate intervals: a check of budgets finds what to count instead.
    """
    billed_until, intervals = ended_intervals(usage_of_record(usage_record))
    intervals_text = (
        None
        if intervals is None
        else ",".join([f"[{begins_at},{ends_at},{rate}]" for begins_at, ends_at, rate in intervals])
    )
    return (
        billed_until,
        None if intervals_text is None else f"[{intervals_text}]",
        canonical(usage_record),
    )  # as JSON, in a quarter of an encoder's time


def _usage_order(texts: _UsageTexts) -> tuple[str, str]:
    return texts[2], texts[0]


def _fold_onto(state: State | None, new_lines: list[Event]) -> Projection | None:
    """Fold new lines into a state; None without a state, or if a line is older than an earlier one."""
    if state is None:
        return None
    closed_usages: list[dict[str, Any]] = []
    for line in new_lines:
        ended = apply_event(state, line)
        if ended is None:
            return None
        closed_usages += ended
    return Projection(state, tuple(closed_usages))


def _stored(connection: Connection, subject: str) -> State | None:
    found = connection.execute("SELECT row, state FROM machine WHERE id = ?", (subject,)).fetchone()
    return None if found is None else unpacked(json.loads(found[0]), json.loads(found[1]))


def _store(connection: Connection, subject: str, state: State) -> None:
    row = state["row"]
    connection.execute(
        _UPSERT_MACHINE, (subject, row["intended_at"], int(row["is_named_resource"]), *_state_texts(state))
    )


def _store_usages(connection: Connection, subject: str, ended_usages: Iterable[_UsageTexts]) -> None:
    rows = [(subject, *texts) for texts in ended_usages]
    if rows:
        connection.executemany(_INSERT_USAGE, rows)
