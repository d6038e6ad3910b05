from __future__ import annotations

import json
import multiprocessing
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.core.activity.utilization import GPU, IDLE, UsageSpan, hours, usage_intervals
from cloudgpu.ledger.samples.packing import FILE_NAME, Workdays
from cloudgpu.ledger.samples.store import SampleStore, sweep
from tests.examples import some

DAY_S = timedelta(days=1)
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
T = int(NOON.timestamp())
EVER = (0.0, T + 400 * DAY_S.total_seconds())


@pytest.fixture
def shelf(tmp_path):
    return SampleStore(tmp_path / "samples", "cg-1")


def minutes(begin, end, **more):
    """Return the samples of quiet minutes, counted from noon."""
    return [{"t": T + 60 * minute, "s": 60, "cpu": 0.01, **more} for minute in range(begin + 1, end + 1)]


def keep(shelf, samples):
    now = samples[-1]["t"] + 60
    return shelf.keep(samples, now, datetime.fromtimestamp(now, UTC))


def worked(shelf):
    return shelf.utilization(*EVER)


def lines(shelf):
    return (shelf.directory / FILE_NAME).read_bytes().splitlines()


@pytest.fixture
def past(shelf):
    """An hour of work, one of none, and a day later a minute: the first day is packed."""
    keep(shelf, minutes(0, 60, gpu=90, power=250.0))
    keep(shelf, minutes(60, 120, gpu=0, power=0.0))
    keep(shelf, minutes(1440, 1441))
    return shelf


SHOWN = [
    UsageSpan(T, T + 3600, GPU, 900_000.0),
    UsageSpan(T + 3600, T + 7200, IDLE, 0.0),
    UsageSpan(T + 86400, T + 86460, IDLE),
]


def test_a_day_is_summed_up_when_it_is_packed(past):
    assert worked(past) == SHOWN
    assert [json.loads(line) for line in lines(past)] == [
        {"v": 1, "day": "2026-11-21", "steps": [43200, 3600, 0, 3600], "kinds": "pd", "joules": [900000.0, 0.0]}
    ]
    path = past.directory / FILE_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_summary_can_be_made_again_and_says_the_same(past):
    (past.directory / FILE_NAME).unlink()
    assert worked(past) == SHOWN


def test_it_stays_when_the_samples_go_and_those_of_a_machine_that_ended_have_one_too(past):
    assert sweep(past.root, NOON + 100 * DAY_S) == 2
    assert [path.name for path in past.directory.iterdir()] == [FILE_NAME]
    assert worked(past) == SHOWN
    assert past.read(*EVER) == []
    assert sweep(past.root, NOON + 101 * DAY_S) == 0


def test_a_home_of_an_earlier_version_gets_its_summaries_before_samples_go(past):
    (past.directory / FILE_NAME).unlink()
    later = NOON + 200 * DAY_S
    past.keep([{"t": later.timestamp(), "s": 60, "cpu": 0.01}], later.timestamp() + 60, later)
    assert [json.loads(line)["day"] for line in lines(past)] == ["2026-11-21", "2026-11-22"]
    assert worked(past)[:3] == SHOWN


def test_how_many_gpus_worked_stays_in_the_summary(tmp_path):
    known = Workdays(tmp_path)
    day = (
        UsageSpan(36_000, 36_060, GPU, None, 60.0),
        UsageSpan(36_060, 36_120, GPU),
        UsageSpan(36_120, 36_180, IDLE, 0.0),
    )
    known.add({"1970-01-01": day})
    assert known.read() == {"1970-01-01": day}


def test_a_period_is_of_its_days_and_one_around_them(past):
    assert past.utilization(T + 86400, T + 86401) == SHOWN
    assert past.utilization(T + 3 * 86400, T + 4 * 86400) == []
    assert SampleStore(past.root, "nobody").utilization(*EVER) == []
    assert not (past.root / "nobody").exists()


# -- what goes wrong


def test_what_was_killed_after_the_summary_and_before_the_end_of_the_lines_is_counted_once(shelf):
    keep(shelf, minutes(0, 60, gpu=90))
    text = (shelf.directory / "2026-11-21.jsonl").read_bytes()
    keep(shelf, minutes(1440, 1441))
    before = worked(shelf)
    (shelf.directory / "2026-11-21.jsonl").write_bytes(text)
    assert worked(shelf) == before
    keep(shelf, minutes(1441, 1442))
    assert not (shelf.directory / "2026-11-21.jsonl").exists()
    assert len(lines(shelf)) == 2
    assert worked(shelf)[:1] == before[:1] == [UsageSpan(T, T + 3600, GPU)]


def test_what_was_killed_before_the_summary_has_it_with_the_next_packing(shelf):
    keep(shelf, minutes(0, 60, gpu=90))
    text = (shelf.directory / "2026-11-21.jsonl").read_bytes()
    keep(shelf, minutes(1440, 1441))
    (shelf.directory / "2026-11-21.jsonl").write_bytes(text)
    (shelf.directory / FILE_NAME).unlink()
    assert worked(shelf)[0] == UsageSpan(T, T + 3600, GPU)
    keep(shelf, minutes(1441, 1442))
    assert Workdays(shelf.directory).days() == {"2026-11-21"}


def test_a_line_torn_anywhere_is_no_line_and_the_next_one_is_whole(past):
    path = past.directory / FILE_NAME
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        days = Workdays(past.directory)
        assert days.days() == set(days.read()) == ({"2026-11-21"} if size == len(whole) - 1 else set())
        assert worked(past) == SHOWN
    path.write_bytes(whole[:-20])
    keep(past, minutes(2880, 2881))
    assert Workdays(past.directory).days() == {"2026-11-22"}
    assert worked(past)[:3] == SHOWN


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\xff\x00",
        b"[]",
        b"null",
        b'{"v":2,"day":"2026-11-21","steps":[0,60],"kinds":"p"}',
        b'{"v":1,"day":"2026-11-21x","steps":[],"kinds":""}',
        b'{"v":1,"day":"2026-11-21","steps":[0],"kinds":"p"}',
        b'{"v":1,"day":"2026-11-21","steps":[0,"x"],"kinds":"p"}',
        b'{"v":1,"day":"2026-11-21","steps":[0,60],"kinds":"q"}',
        b'{"v":1,"day":"2026-11-21","steps":[0,60],"kinds":"p","joules":[]}',
        b'{"v":1,"day":"2026-11-21","steps":[0,60],"kinds":"p","joules":["much"]}',
        b'{"v":1,"day":"2026-11-21","steps":[0,60],"kinds":"p","joules":[NaN]}',
        b'{"v":1,"day":"2026-11-21","steps":[0,60],"kinds":"p","joules":[-5]}',
        b'{"v":1,"day":"2026-11-21","steps":[43200,0],"kinds":"p","joules":[5]}',
        b'{"v":1,"day":"2026-11-21","steps":[0,NaN],"kinds":"p"}',
        b'{"v":1,"day":"2026-11-21","steps":[43200,7200,-7200,3600],"kinds":"ps"}',
        b'{"v":1,"day":"2026-11-21","steps":[0,86400000],"kinds":"p"}',
        b'{"v":1,"day":"2026-11-21","steps":' + b"[" * 100_000 + b"}",
    ],
)
def test_rubbish_among_the_lines_hides_no_day(past, rubbish):
    path = past.directory / FILE_NAME
    path.write_bytes(rubbish + b"\n" + path.read_bytes() + rubbish + b"\n")
    assert worked(past) == SHOWN


TODAY = "2026-11-22.jsonl"


@pytest.mark.parametrize(
    "rubbish",
    [
        b'{"t":%d,"s":"x"}',
        b'{"t":%d,"s":NaN}',
        b'{"t":%d,"s":1000000000000}',
        b'{"t":%d,"s":60,"gpu":"x"}',
        b'{"t":%d,"s":60,"gpu":NaN}',
        b'{"t":%d,"s":60,"power":"x","gpu":9}',
        b'{"t":%d,"s":60,"in":"x"}',
        b'{"t":%d,"s":60,"out":"x","in":[]}',
        b'{"t":%d' + b"0" * 400 + b',"s":60}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_reading_hides_no_other_and_hinders_no_packing(past, rubbish):
    path = past.directory / TODAY
    path.write_bytes(path.read_bytes() + rubbish.replace(b"%d", str(T + 86580).encode()) + b"\n")
    assert worked(past) == SHOWN
    keep(past, minutes(2880, 2881))  # which packs it
    assert worked(past)[:3] == SHOWN


@pytest.mark.parametrize("name", [FILE_NAME, TODAY, "2026-11-22.fresh"])
def test_nothing_is_written_through_a_link(past, tmp_path, name):
    victim = tmp_path / "victim"
    victim.write_bytes(b"")  # even what is empty: no line may come to it
    path = past.directory / name
    path.unlink(missing_ok=True)
    path.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        keep(past, minutes(1441, 1442)) and keep(past, minutes(2880, 2881))
    assert victim.read_bytes() == b""


@pytest.mark.parametrize("name", [FILE_NAME, TODAY])
@pytest.mark.parametrize("what", ["pipe", "device", "huge"])
def test_nobody_waits_for_what_is_no_file_and_nothing_endless_is_read(past, name, what):
    path = past.directory / name
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/zero")
    else:
        path.touch()
        os.truncate(path, 10**12)
    assert worked(past) == (SHOWN if name == FILE_NAME else SHOWN[:2])


def test_a_packed_day_that_is_damaged_afterwards_is_known_by_its_summary(past):
    (past.directory / "2026-11-21.columns.xz").write_bytes(b"xz")
    assert worked(past) == SHOWN


@pytest.mark.parametrize("name", [FILE_NAME, "2026-11-21.columns.xz"])
def test_nothing_is_dropped_of_which_no_summary_can_be_written(past, name):
    """A directory stands for a file that cannot be opened: it hinders root, too."""
    (past.directory / FILE_NAME).unlink()
    (past.directory / name).unlink(missing_ok=True)
    (past.directory / name).mkdir()
    before = sorted(path.name for path in past.directory.iterdir())
    with pytest.raises(OSError, match="directory"):
        sweep(past.root, NOON + 100 * DAY_S)
    assert sorted(path.name for path in past.directory.iterdir()) == before


def test_a_day_that_cannot_be_read_shows_nothing_and_hides_no_other(past):
    (past.directory / FILE_NAME).unlink()
    packed = past.directory / "2026-11-21.columns.xz"
    packed.unlink()
    packed.mkdir()
    assert worked(past) == SHOWN[2:]


def _write(root, first):
    shelf = SampleStore(root, "cg-1")
    for end in range(first, 40):
        keep(shelf, minutes(100 * end, 100 * end + 5, gpu=90))


def test_two_who_pack_at_once_leave_whole_lines(shelf):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(shelf.root, n)) for n in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert [json.loads(line)["day"] for line in lines(shelf)] == ["2026-11-21", "2026-11-22", "2026-11-23"]
    (shelf.directory / FILE_NAME).rename(shelf.root / "aside")
    again = worked(shelf)
    (shelf.root / "aside").rename(shelf.directory / FILE_NAME)
    assert worked(shelf) == again


# -- it makes no difference which of both is read

kinds = st.sampled_from([{"gpu": 90}, {"gpu": 0}, {"gpu": None}, {"busy": ["k"]}, {"fault": "it hangs"}, {}])
pieces = st.lists(
    st.tuples(st.integers(1, 200), st.sampled_from([0, 0.4, 7]), kinds, st.sampled_from([{}, {"power": 211.7}])),
    min_size=1,
    max_size=12,
)


@settings(max_examples=some(25))
@given(pieces)
def test_the_answer_is_that_of_all_samples_whatever_was_packed_or_dropped(lived):
    now, shown = float(T), []
    for length, gap, kind, power in lived:
        for _ in range(length):
            now += 600 + gap
            shown.append({"t": round(now, 3), "s": 600, "cpu": 0.1, **kind, **power})
    runs = [(T + 1000.5, now)]
    whole = hours(usage_intervals(shown), runs)
    with TemporaryDirectory() as root:
        shelf = SampleStore(Path(root), "cg-1")
        for begin in range(0, len(shown), 100):
            keep(shelf, shown[begin : begin + 100])
        _same(hours(worked(shelf), runs), whole)
        (shelf.directory / FILE_NAME).unlink(missing_ok=True)
        _same(hours(worked(shelf), runs), whole)
        sweep(shelf.root, datetime.fromtimestamp(now, UTC) + 100 * DAY_S)
        assert os.listdir(shelf.directory) == [FILE_NAME]  # noqa: PTH208
        _same(hours(worked(shelf), runs), whole)


def _same(found, whole):
    assert [(one.at, one.gpu_s, one.used_s, one.idle_s, one.unknown_s, one.drawing_s) for one in found] == [
        (one.at, one.gpu_s, one.used_s, one.idle_s, one.unknown_s, one.drawing_s) for one in whole
    ]
    assert [one.joules for one in found] == pytest.approx([one.joules for one in whole], abs=0.01)
