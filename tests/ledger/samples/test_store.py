from __future__ import annotations

import json
import lzma
import multiprocessing
import os
import stat
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.ledger.samples.packing import pack, unpack
from cloudgpu.ledger.samples.store import MAX_DAY_BYTES, SampleStore, sweep, sweep_daily
from tests.examples import some

DAY_S = timedelta(days=1)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
T = NOON.timestamp()


@pytest.fixture
def shelf(tmp_path):
    return SampleStore(tmp_path / "samples", "cg-1")


def buckets(*minutes, **more):
    return [{"t": T + 60 * minute, "s": 60, "cpu": 0.01, **more} for minute in minutes]


def keep(shelf, samples, at=None):
    now = samples[-1]["t"] + 60
    return shelf.keep(samples, now, at or datetime.fromtimestamp(now, UTC))


def times(shelf, since=0.0, until=T + 1e9):
    return [(one["t"] - T) / 60 for one in shelf.read(since, until)]


def test_what_is_kept_is_read_back_as_it_was(shelf):
    samples = [*buckets(0), *buckets(1, gpu=None, busy=["kernel 1"], fault="nvidia-smi")]
    assert keep(shelf, samples) == 2
    assert shelf.read(0, T + 60) == samples
    assert shelf.last() == T + 60


def test_only_new_buckets_are_appended(shelf):
    keep(shelf, buckets(0, 1))
    assert keep(shelf, buckets(0, 1, 2, 3)) == 2
    assert keep(shelf, buckets(2, 3)) == 0
    assert times(shelf) == [0, 1, 2, 3]


def test_a_period_is_open_at_its_begin_and_closed_at_its_end(shelf):
    keep(shelf, buckets(0, 1, 2, 3))
    assert times(shelf, T, T + 120) == [1, 2]


def test_the_bucket_that_an_agent_is_still_at_work_on_is_left_for_the_next_time(shelf):
    unfinished = {**buckets(2.5)[0], "s": 30}
    assert shelf.keep([*buckets(0, 1, 2), unfinished], T + 165, NOON) == 2
    assert keep(shelf, buckets(1, 2, 3)) == 2
    assert times(shelf) == [0, 1, 2, 3]


def test_stamps_that_move_by_moments_make_no_bucket_new(shelf):
    keep(shelf, buckets(0, 1, 2))
    moved = [{**one, "t": one["t"] + 0.8} for one in buckets(0, 1, 2, 3)]
    assert keep(shelf, moved) == 1


def test_nothing_kept_is_nothing_read(shelf):
    assert (shelf.last(), shelf.read(0, T)) == (0.0, [])


def test_files_are_for_their_owner_alone(shelf):
    keep(shelf, buckets(0))
    keep(shelf, buckets(1440))
    modes = {stat.S_IMODE(path.stat().st_mode) for path in shelf.directory.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(shelf.directory.stat().st_mode) == stat.S_IMODE(shelf.root.stat().st_mode) == 0o700


def test_a_torn_line_is_left_out_and_the_next_one_is_whole(shelf):
    keep(shelf, buckets(0, 1))
    (path,) = shelf.directory.iterdir()
    os.truncate(path, path.stat().st_size - 7)
    assert times(shelf) == [0]
    assert shelf.last() == T
    assert keep(shelf, buckets(1, 2)) == 2
    assert times(shelf) == [0, 1, 2]


@pytest.mark.parametrize("rubbish", [b"\x00" * 9000, b'{"t": "now"}\n', b"[]\n", b"\xff\n"])
def test_rubbish_in_a_file_hides_no_other_sample(shelf, rubbish):
    keep(shelf, buckets(0))
    (path,) = shelf.directory.iterdir()
    with path.open("ab") as file:
        file.write(rubbish)
    keep(shelf, buckets(1))
    assert times(shelf) == [0, 1]


def test_days_that_are_over_are_packed_and_read_as_before(shelf):
    keep(shelf, buckets(*range(-100, 0)))
    plain = sum(path.stat().st_size for path in shelf.directory.iterdir())
    keep(shelf, buckets(720))
    names = sorted(path.name for path in shelf.directory.iterdir())
    assert names == ["2026-11-21.columns.xz", "2026-11-22.jsonl", "workdays.jsonl"]
    assert (shelf.directory / names[0]).stat().st_size < plain / 5
    assert times(shelf) == [*range(-100, 0), 720]


readings = st.none() | st.integers(0, 10**9) | st.floats(0, 1e6).map(lambda value: round(value, 3))
samples_of_a_day = st.lists(
    st.fixed_dictionaries(
        {"t": st.floats(T, T + 1e5).map(lambda value: round(value, 3)), "s": st.just(60)},
        optional=dict.fromkeys(("gpu", "cpu", "in", "out", "jup"), readings) | {"busy": st.lists(st.text())},
    ),
    max_size=10,
)


@settings(max_examples=some(30))
@given(samples_of_a_day)
def test_packing_changes_nothing(samples):
    assert unpack(pack(samples)) == samples


@pytest.mark.parametrize("data", [b"", b"xz", lzma.compress(b"[1]"), lzma.compress(b'{"t": 3}'), pack([])[:-4]])
def test_what_is_no_packed_day_is_refused(data):
    with pytest.raises(ValueError, match="not a packed day"):
        unpack(data)


def test_a_packing_that_was_cut_short_loses_nothing_and_doubles_nothing(shelf):
    keep(shelf, buckets(0, 1))
    text = (shelf.directory / "2026-11-21.jsonl").read_bytes()
    keep(shelf, buckets(720))
    (shelf.directory / "2026-11-21.jsonl").write_bytes(text)  # killed between the new file and the end of the old one
    (shelf.directory / "2026-11-21.fresh").write_bytes(b"half")
    assert times(shelf) == [0, 1, 720]
    keep(shelf, buckets(721))
    assert times(shelf) == [0, 1, 720, 721]
    assert not (shelf.directory / "2026-11-21.jsonl").exists()


def test_a_packed_day_that_is_damaged_is_a_day_without_samples(shelf):
    keep(shelf, buckets(0))
    keep(shelf, buckets(720))
    packed = shelf.directory / "2026-11-21.columns.xz"
    packed.write_bytes(packed.read_bytes()[:-20])
    assert times(shelf) == [720]


def test_samples_older_than_ninety_days_go_with_the_next_one(shelf):
    keep(shelf, buckets(0))
    later = NOON + 91 * DAY_S
    shelf.keep([{"t": later.timestamp(), "s": 60}], later.timestamp() + 60, later)
    assert {path.name for path in shelf.directory.iterdir()} == {"workdays.jsonl", f"{later:%Y-%m-%d}.jsonl"}
    assert shelf.read(0, later.timestamp()) == [{"t": later.timestamp(), "s": 60}]


def test_a_sweep_drops_what_is_old_of_machines_that_are_gone(tmp_path, shelf):
    keep(shelf, buckets(0))
    other = SampleStore(tmp_path / "samples", "cg-2")
    keep(other, buckets(1440 * 60))
    assert sweep(shelf.root, NOON + 89 * DAY_S) == 0
    assert sweep(shelf.root, NOON + 92 * DAY_S) == 1
    assert [path.name for path in shelf.directory.iterdir()] == ["workdays.jsonl"]
    assert [path.name for path in other.directory.iterdir()] == ["2027-01-20.jsonl"]
    assert sweep(tmp_path / "nowhere", NOON) == 0


def test_a_sweep_is_made_once_a_day(shelf):
    assert sweep_daily(shelf.root, NOON) == 0
    assert not shelf.root.exists()
    keep(shelf, buckets(0))
    assert sweep_daily(shelf.root, NOON) == 0
    assert (shelf.root / "swept").stat().st_mode & 0o777 == 0o600
    (shelf.root / "swept").write_text("2027-03-01")
    assert sweep_daily(shelf.root, NOON + 100 * DAY_S) == 0  # 2027-03-01: that day has had its own
    assert sweep_daily(shelf.root, NOON + 101 * DAY_S) == 1


def test_a_clock_that_is_off_by_an_hour_is_moved_to_ours_and_nothing_is_new_twice(shelf):
    off = buckets(-63, -62, -61)
    shelf.keep(off, T - 3600, NOON)
    assert times(shelf) == [-3, -2, -1]
    assert shelf.keep(off, T - 3600 + 0.4, NOON) == 0  # the same question again, its answer a moment later


def test_a_clock_that_was_far_ahead_for_a_moment_stops_no_later_sample(shelf):
    shelf.keep(buckets(600_000), T + 600_001 * 60, NOON)
    assert shelf.last() == T - 60
    assert keep(shelf, buckets(1)) == 1


@pytest.mark.soak
def test_a_day_has_a_size_that_it_does_not_pass(shelf):
    big = [{**one, "s": 0.6, "fault": "x" * 300} for one in buckets(*(n / 100 for n in range(5000)))]
    keep(shelf, big)
    keep(shelf, [{**one, "t": one["t"] + 3001} for one in big])
    assert sum(path.stat().st_size for path in shelf.directory.iterdir()) <= MAX_DAY_BYTES


@pytest.mark.parametrize("name", ["../../elsewhere", "a/b", "", "A" * 300, "..", "\udc80"])
def test_a_name_that_is_no_plain_one_stays_inside(tmp_path, name):
    shelf = SampleStore(tmp_path / "samples", name)
    keep(shelf, buckets(0))
    assert shelf.directory.parent == tmp_path / "samples"
    assert times(shelf) == [0]


def _write(root, first):
    shelf = SampleStore(root, "cg-1")
    for minute in range(first, first + 40):
        keep(shelf, buckets(*range(minute)))


def test_two_who_ask_at_once_write_each_bucket_once(shelf):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(shelf.root, 1 + n)) for n in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    (path,) = shelf.directory.iterdir()
    lines = [json.loads(line)["t"] for line in path.read_bytes().splitlines()]
    assert lines == [T + 60 * minute for minute in range(40 + 1)]
