"""The copy of a job's ledger lines in its own directory."""

from __future__ import annotations

from datetime import UTC, datetime

from cloudgpu.access.jobs.journal import append_to_journal, read_journal
from cloudgpu.core.events import job_events as lines

NOW = datetime(2026, 11, 1, 9, 30, 0, 250_000, UTC)
PLACED = lines.job_placed("job-1", 1, NOW, key="job-1-1", machine=None)
ENDED = lines.job_ended("job-1", 1, "failed", NOW, status=3, why='"broken"\n', is_machine_time=True)


def test_lines_come_back_as_they_were_and_nobody_else_may_read_them(tmp_path):
    path = tmp_path / "job-1" / "ledger.jsonl"
    append_to_journal(path, "one", [PLACED])
    append_to_journal(path, "one", [ENDED])
    assert read_journal(path, "one") == [PLACED, ENDED]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_lines_of_another_ledger_and_torn_ones_are_left_out(tmp_path):
    path = tmp_path / "ledger.jsonl"
    append_to_journal(path, "one", [PLACED])
    path.write_bytes(path.read_bytes()[:-20])
    append_to_journal(path, "two", [ENDED])
    append_to_journal(path, "one", [ENDED])
    assert (read_journal(path, "one"), read_journal(path, "two")) == ([ENDED], [ENDED])


def test_a_journal_that_cannot_be_written_or_read_stops_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    append_to_journal(tmp_path / "file" / "ledger.jsonl", "one", [PLACED])
    assert read_journal(tmp_path / "file" / "ledger.jsonl", "one") == []
