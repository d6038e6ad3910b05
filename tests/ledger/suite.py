"""What every ledger store does. A store's test class inherits `LedgerSuite` and gives the fixture `store`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from cloudgpu.core.events.log import Draft
from cloudgpu.core.events.projection import machine_of
from cloudgpu.errors import CloudgpuError
from cloudgpu.ledger.log.base import Ledger, View
from tests.core.machines import machine
from tests.examples import some
from tests.ledger.lines import DISK, NOON, Clock, asked, at, intended, note, priced, seen, vanished

Store = Callable[..., Ledger]  # (name="one", *, actor="somebody", clock=None) -> the ledger of that name, opened anew

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
# Each store has a class of its own that inherits these tests; its examples are its own, too.
_MEANT = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
KEPT = DISK | {
    "id": "vol-1", "kind": "disk", "name": "data", "size_gb": 100, "made_at": "2026-11-20T12:00:00.000000Z",
    "region": "here", "zone": "here-a", "provider": "fake", "account": "main", "nanos_per_month": None,
    "by_size": True, "ready": True, "attached_to": None,
}  # fmt: skip
QUICK = settings(max_examples=some(25), deadline=None, suppress_health_check=_MEANT)
LIFE = (
    intended(),
    seen(seconds=5),
    priced(700_000_000, seconds=60),
    asked("stop", seconds=120),
    seen(state="stopped", seconds=130),
    asked("start", seconds=200),
    seen(state="running", seconds=210),
    asked("terminate", seconds=300),
    vanished(seconds=310),
)


class LedgerSuite:
    """The behaviour behind `cloudgpu.ledger.log.base.Ledger`."""

    def test_what_is_written_is_read_back_whole(self, store: Store) -> None:
        draft = Draft(
            "account_synced", "scope:ä/“q”", {"b": [1, 2.5, None], "a": {"é": "✓"}}, NOON, "d\n1", clock="provider"
        )
        clock = Clock()
        clock.turn(seconds=7)
        (written,) = store(actor="ada@example.org", clock=clock).append([draft])
        (line,) = store().events("scope:ä/“q”")
        assert line == written
        assert (line.kind, line.subject, line.body, line.dedupe) == (draft.kind, draft.subject, draft.body, "d\n1")
        assert (line.clock, line.actor) == ("provider", "ada@example.org")
        assert (line.occurred_at, line.recorded_at) == ("2026-11-20T12:00:00.000000Z", "2026-11-20T12:00:07.000000Z")

    def test_times_are_written_in_utc(self, store: Store) -> None:
        east = datetime(2026, 11, 20, 21, tzinfo=timezone(timedelta(hours=9)))
        (line,) = store().append([Draft("account_synced", "s", {}, east, "d")])
        assert line.occurred_at == "2026-11-20T12:00:00.000000Z"

    def test_a_time_without_a_zone_is_refused_and_nothing_is_written(self, store: Store) -> None:
        ledger = store()
        with pytest.raises(ValueError, match="time zone"):
            ledger.append([note(1), Draft("account_synced", "s", {}, NOON.replace(tzinfo=None), "d")])
        assert list(ledger.events("scope:fake/main")) == []

    @pytest.mark.parametrize("body", [{"a": float("nan")}, {"a": {1, 2}}, {"a": NOON}])
    def test_what_is_no_json_is_refused_and_nothing_is_written(self, store: Store, body: dict[str, Any]) -> None:
        ledger = store()
        ledger.append([note(0)])
        with pytest.raises((TypeError, ValueError)):
            ledger.append([note(1), Draft("account_synced", "s", body, NOON, "d")])
        assert [line.dedupe for line in ledger.events("scope:fake/main")] == ["note:scope:fake/main:0"]

    def test_an_empty_ledger_has_no_machine_no_line_and_no_doubt(self, store: Store) -> None:
        ledger = store()
        assert ledger.machines() == []
        assert ledger.machine("cg-1") is None
        assert ledger.last("scope:fake/main") is None
        assert list(ledger.events()) == []
        assert ledger.head() == (0, "", "")
        assert ledger.integrity_problem() is None
        assert ledger.verify().faults == ()

    def test_line_one_opens_the_ledger_and_names_it(self, store: Store) -> None:
        ledger = store()
        ledger.append([note(1)])
        first = next(iter(ledger.events()))
        assert (first.seq, first.kind, first.subject) == (1, "ledger_opened", "ledger")
        assert first.body == {"ledger": ledger.id, "format": 2}
        assert ledger.id

    def test_whose_clock_disagrees_is_named(self, store: Store) -> None:
        fast = Clock()
        fast.turn(hours=1)
        store(actor="ben", clock=fast).append([note(1)])
        assert store(actor="ada", clock=Clock()).integrity_problem() == (
            "This machine's clock says 2026-11-20T12:00:00.000000Z, and the ledger has a line that ben recorded at "
            "2026-11-20T13:00:00.000000Z. One of the two clocks is, or was, wrong."
        )

    def test_two_ledgers_have_two_ids(self, store: Store) -> None:
        one, two = store("one"), store("two")
        one.append([note(1)])
        two.append([note(1)])
        assert one.id != two.id

    def test_the_id_fits_a_tag(self, store: Store) -> None:
        from cloudgpu.core.values.naming import TAG_VALUE

        ledger = store()
        ledger.append([])
        assert TAG_VALUE.fullmatch(ledger.id)

    def test_seq_has_no_holes_and_each_line_names_the_one_before(self, store: Store) -> None:
        ledger = store()
        ledger.append([note(1), note(2)])
        ledger.append([note(3)])
        lines = list(ledger.events())
        assert [line.seq for line in lines] == [1, 2, 3, 4]
        assert lines[0].prev_hash == ""
        assert len({line.prev_hash for line in lines}) == 4
        assert ledger.head()[0] == 4

    def test_the_same_dedupe_is_written_once(self, store: Store) -> None:
        ledger = store()
        first = ledger.append([note(1), note(1)])
        second = ledger.append([note(1), note(2)])
        assert [line.dedupe for line in first] == ["note:scope:fake/main:1"]
        assert [line.dedupe for line in second] == ["note:scope:fake/main:2"]
        assert ledger.head()[0] == 3

    def test_last_is_the_latest_line_of_that_subject_alone(self, store: Store) -> None:
        ledger = store()
        ledger.append([note(1, "scope:a"), note(2, "scope:a"), note(3, "scope:b")])
        last = ledger.last("scope:a")
        assert last is not None
        assert last.body["machines"] == 2

    def test_lines_of_some_kinds_come_in_order_and_say_what_they_say(self, store: Store) -> None:
        ledger = store()
        assert ledger.summaries(["account_synced"]) == []
        ledger.append([note(1, "scope:a"), note(2, "scope:b")])
        found = ledger.summaries(["account_synced", "no_such_kind"])
        assert [(line.kind, line.subject, line.body["machines"]) for line in found] == [
            ("account_synced", "scope:a", 1),
            ("account_synced", "scope:b", 2),
        ]
        assert [line.seq for line in found] == [2, 3]
        assert ledger.read(lambda view: view.summaries(["ledger_opened"]))[0].seq == 1

    def test_more_lines_than_a_page_come_in_order(self, store: Store) -> None:
        ledger = store()
        ledger.append([note(number, f"scope:{number % 2}") for number in range(1200)])
        assert [line.seq for line in ledger.events()] == list(range(1, 1202))
        assert [line.body["machines"] for line in ledger.events("scope:1")] == list(range(1, 1200, 2))

    def test_lines_appended_while_reading_are_read_too(self, store: Store) -> None:
        ledger = store()
        ledger.append([note(1)])
        reading = ledger.events()
        next(reading)
        ledger.append([note(2)])
        assert [line.seq for line in reading][:1] == [2]

    def test_the_machines_row_is_the_fold_of_its_lines(self, store: Store) -> None:
        ledger = store()
        for draft in LIFE:
            ledger.append([draft])
            assert ledger.machine("cg-1") == machine_of(ledger.events("cg-1"))
        assert ledger.machines() == [ledger.machine("cg-1")]

    def test_an_append_to_a_machine_returns_its_row_whoever_the_lines_are_about(self, store: Store) -> None:
        ledger, given = store(), machine(id="cg-1", name="as it was given")
        assert ledger.append_to(given, [note(1)]) is given, "no machine yet"
        both = [intended(), intended("cg-2", "blue-hare"), seen(seconds=5)]
        row = ledger.append_to(given, both)
        assert row == machine_of(ledger.events("cg-1")) == ledger.machine("cg-1")
        assert row.state == "running"
        other = store(actor="another")
        other.append([asked("stop", seconds=120)])
        for again in (both, [], [note(2)]):
            assert ledger.append_to(row, again) == other.machine("cg-1"), "as it stands, news or none"
        row = row._replace(state="its reader's own")
        assert ledger.append_to(row, both).state == "running"

    def test_two_writers_in_turn_keep_the_row_as_one_would_after_a_stop_and_a_start(self, store: Store) -> None:
        writers, body = (
            (store(), store()),
            intended().body | {"attached_costs": [DISK | {"kept": kept} for kept in (True, False)]},
        )
        writers[0].append([replace(intended(), body=body)])
        states = ("running", "stopped", "running", "running", "stopped", "running")
        life = [seen(state=state, seconds=second) for second, state in enumerate(states, 1)]
        for number, draft in enumerate(
            [*life, priced(5, seconds=10), asked("stop", seconds=11), priced(6, seconds=12)]
        ):
            writers[number // 2 % 2].append([draft])
            assert writers[0].machine("cg-1") == machine_of(writers[0].events("cg-1"))
            assert writers[0].verify().faults == ()

    def test_what_was_not_written_is_not_remembered(self, store: Store) -> None:
        ledger = store()
        ledger.append([intended()])
        with pytest.raises(KeyError):  # the first line is folded by then; the second says too little
            ledger.append([seen(seconds=5), Draft("launch_intended", "cg-2", {}, NOON, "d")])
        ledger.append([priced(7, seconds=6)])
        assert ledger.machine("cg-1") == machine_of(ledger.events("cg-1"))
        assert ledger.verify().faults == ()

    def test_machines_come_oldest_first_whatever_was_written_first(self, store: Store) -> None:
        ledger = store()
        ledger.append([intended("cg-b", seconds=20), intended("cg-c", seconds=10), intended("cg-a", seconds=30)])
        assert [row.id for row in ledger.machines()] == ["cg-c", "cg-b", "cg-a"]

    def test_a_line_of_a_scope_makes_no_machine(self, store: Store) -> None:
        ledger = store()
        ledger.append([note(1)])
        assert ledger.machines() == []

    def test_another_reader_sees_a_line_at_once(self, store: Store) -> None:
        writer, reader = store(), store()
        assert reader.machines() == []
        writer.append([intended()])
        assert [row.name for row in reader.machines()] == ["amber-otter"]
        writer.append([seen()])
        assert reader.machines()[0].state == "running"
        assert reader.id == writer.id

    def test_those_that_are_there_are_read_without_those_that_are_gone(self, store: Store) -> None:
        """Of the gone, only the oldest machine: since when machines are launched is asked of it."""
        ledger = store()
        lives = [[intended(one, seconds=n)] for n, one in enumerate(("cg-old", "cg-gone", "cg-kept", "cg-parked"))]
        ledger.append([line for life in lives for line in life])
        gone = [line for one in ("cg-old", "cg-gone", "cg-kept") for line in (seen(one, seconds=9), vanished(one, 20))]
        ledger.append([*gone, asked("park", "cg-parked", seconds=10), vanished("cg-parked", 20)])
        ledger.append(
            [
                Draft(
                    "resources_retained",
                    "cg-kept",
                    {"retained": [KEPT]},
                    at(30),
                    "kept:cg-kept",
                )
            ]
        )
        rows = ledger.machines()
        there = [row for row in rows if row.terminated_at is None or row.retained or row.parked or row.id == "cg-old"]
        assert ledger.present_machines() == there
        assert {row.id for row in there} == {"cg-old", "cg-kept", "cg-parked"}
        ledger.append([intended("cg-new", seconds=40)])
        assert [row.id for row in ledger.present_machines()] == [*(row.id for row in there), "cg-new"]

    def test_a_row_is_no_readers_to_change_and_a_new_one_when_it_has_changed(self, store: Store) -> None:
        ledger, other = store(), store()
        ledger.append([intended("cg-a"), intended("cg-b")])
        before = ledger.machines()
        for row in before:
            with pytest.raises(AttributeError):
                row.name = "mine"  # type: ignore[misc]
            assert row._replace(name="mine").name == "mine", "that is its reader's own"
        assert [row.name for row in ledger.machines()] == ["amber-otter"] * 2
        assert ledger.billable_machines() == ledger.machines()
        other.append([seen("cg-a")])
        assert [row.state for row in ledger.machines()] == ["running", "unknown"]
        assert [row.state for row in before] == ["unknown", "unknown"], "what was read before stays as it was"

    def test_a_decision_sees_the_ledger_as_it_stands_and_its_lines_are_written(self, store: Store) -> None:
        ledger = store()
        ledger.append([intended()])
        looks: list[tuple[Any, ...]] = []

        def decision(view: View) -> Sequence[Draft]:
            looks.append((view.id, view.head()[0], len(view.machines()), view.machine("cg-1")))
            return [seen()]

        (line,) = ledger.decide(decision)
        assert looks == [(ledger.id, 2, 1, machine_of(list(ledger.events("cg-1"))[:1]))]
        assert line.kind == "instance_observed"

    def test_the_first_decision_of_all_has_an_id_to_go_by(self, store: Store) -> None:
        ids: list[str] = []
        ledger = store()
        ledger.decide(lambda view: ids.append(view.id) or [])
        assert ids == [ledger.id] != [""]

    @pytest.mark.parametrize("fault", [ZeroDivisionError("no"), OSError(28, "mine"), KeyboardInterrupt()])
    def test_what_a_decision_raises_passes_through_and_nothing_is_written(
        self, store: Store, fault: BaseException
    ) -> None:
        ledger = store()
        ledger.append([note(1)])

        def decision(_view: View) -> Sequence[Draft]:
            raise fault

        with pytest.raises(type(fault)) as caught:
            ledger.decide(decision)
        assert caught.value is fault
        assert ledger.head()[0] == 2
        assert len(ledger.append([note(2)])) == 1

    def test_a_decision_cannot_append_by_itself(self, store: Store) -> None:
        ledger = store()
        with pytest.raises(CloudgpuError, match="returns its lines"):
            ledger.decide(lambda _view: ledger.append([note(1)]) and [])
        assert list(ledger.events("scope:fake/main")) == []
        assert len(ledger.append([note(1)])) == 1

    def test_two_decisions_never_see_the_same_end(self, store: Store) -> None:
        def decide(number: int) -> int:
            ends: list[int] = []
            store().decide(lambda view: ends.append(view.head()[0]) or [note(number)])
            return ends[0]

        store().append([])
        with ThreadPoolExecutor(6) as pool:
            ends = list(pool.map(decide, range(24)))
        assert sorted(ends) == list(range(1, 25))

    def test_threads_may_share_one_ledger(self, store: Store) -> None:
        ledger = store()
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda number: ledger.append([note(number)]) and ledger.machines(), range(40)))
        assert ledger.head()[0] == 41
        assert ledger.verify().faults == ()

    def test_what_is_read_together_is_of_one_moment(self, store: Store) -> None:
        ledger, other = store(), store()
        ledger.append([intended()])

        def look(view: View) -> tuple[int, int, int]:
            before = view.head()[0]
            other.append([note(1), intended("cg-2", "brave-fox")])
            return before, view.head()[0], len(view.billable_machines())

        assert ledger.read(look) == (2, 2, 1)
        assert (ledger.head()[0], len(ledger.billable_machines())) == (4, 2)
        with pytest.raises(CloudgpuError, match="returns its lines"):
            ledger.read(lambda _view: ledger.append([note(2)]))
        assert ledger.append([note(2)])

    def test_an_empty_ledger_is_read_together_too(self, store: Store) -> None:
        assert store().read(lambda view: (view.billable_machines(), list(view.ended_usages()))) == ([], [])

    def test_verify_counts_the_lines_and_names_the_end(self, store: Store) -> None:
        ledger = store()
        ledger.append(LIFE)
        found = ledger.verify()
        assert (found.line_count, found.faults) == (len(LIFE) + 1, ())
        assert found.head_hash == ledger.head()[1]

    def test_a_rebuilt_projection_is_the_same(self, store: Store) -> None:
        ledger = store()
        ledger.append([*LIFE, intended("cg-2", "brave-fox", seconds=3), note(1)])
        before = ledger.machines()
        ledger.rebuild()
        assert ledger.machines() == before
        assert ledger.verify().faults == ()

    def test_a_clock_that_went_back_is_doubted_until_it_is_settled(self, store: Store) -> None:
        clock = Clock()
        ledger = store(clock=clock)
        ledger.append([note(1)])
        clock.turn(minutes=-4)
        assert ledger.integrity_problem() is None
        clock.turn(minutes=-2)
        assert "clock" in (ledger.integrity_problem() or "")
        ledger.append([note(2)])
        assert "clock" in (ledger.integrity_problem() or ""), "a line of the wrong time does not make it right"
        ledger.settle("the clock was wrong")
        assert ledger.integrity_problem() is None
        ledger.append([note(3)])
        assert ledger.integrity_problem() is None

    def test_a_settled_ledger_says_so_in_a_line(self, store: Store) -> None:
        ledger = store()
        ledger.append([note(1)])
        line = ledger.settle("looked everywhere")
        assert (line.kind, line.subject, line.body["why"]) == ("ledger_settled", "ledger", "looked everywhere")
        assert ledger.settle("again").seq == line.seq + 1
        assert ledger.verify().faults == ()

    def test_a_closed_ledger_opens_again_by_itself(self, store: Store) -> None:
        ledger = store()
        ledger.append([note(1)])
        ledger.close()
        ledger.close()
        assert ledger.head()[0] == 2
        assert len(ledger.append([note(2)])) == 1

    @QUICK
    @given(body=st.dictionaries(st.text(max_size=8), JSON, max_size=5), number=st.integers(0, 10**12))
    def test_every_json_body_is_read_back_and_verified(self, store: Store, body: dict[str, Any], number: int) -> None:
        ledger = store("bodies")
        lines = ledger.append([Draft("account_synced", "s", body, at(0), f"{number}:{body!r}")])
        for line in lines:
            assert line.body == body
            assert ledger.last("s") == line
        assert ledger.verify().faults == ()

    @QUICK
    @given(order=st.permutations(LIFE), cuts=st.sets(st.integers(0, len(LIFE)), max_size=3), run=st.uuids())
    def test_order_of_arrival_does_not_matter(self, store: Store, order: list[Draft], cuts: set[int], run: Any) -> None:
        straight, mixed = store(f"straight-{run}"), store(f"mixed-{run}")
        straight.append(LIFE)
        edges = [0, *sorted(cuts), len(order)]
        for start, end in pairwise(edges):
            mixed.append(order[start:end])
        assert mixed.machines() == straight.machines()

    @QUICK
    @given(again=st.lists(st.sampled_from(LIFE), max_size=12), run=st.uuids())
    def test_a_replay_changes_nothing(self, store: Store, again: list[Draft], run: Any) -> None:
        ledger = store(f"replay-{run}")
        ledger.append(LIFE)
        before, end = ledger.machines(), ledger.head()
        assert ledger.append(again) == ()
        ledger.rebuild()
        assert (ledger.machines(), ledger.head()) == (before, end)
