from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.activity.agent_status import MAX_SAMPLES, MAX_TEXT_CHARS, SAMPLE_WINDOW_S, parse_agent_status
from cloudgpu.core.activity.idle import ACTIVE, IDLE, UNKNOWN, Thresholds, judge

NOW = 1_800_000_000.0


def bucket(**more):
    return {"t": NOW - 60, "s": 60, "cpu": 0.02, "net": 900, "disk": 0, "in": 40.5, "out": None, "busy": []} | more


def answer(*samples, **more):
    said = {"now": NOW, "up_since": NOW - 7200, "samples": list(samples), "activity": "IDLE"} | more
    return json.dumps(said).encode()


def test_what_an_agent_says_is_taken_as_it_says_it():
    found = parse_agent_status(
        answer(bucket(gpu=None, fault="nvidia-smi: hangs"), scratch=[["/mnt/nvme", 4096]], verdict="keep")
    )
    assert found.fault == ""
    assert found.samples == (
        {"t": NOW - 60, "s": 60, "gpu": None, "cpu": 0.02, "net": 900, "disk": 0, "in": 40.5}
        | {"fault": "nvidia-smi: hangs"},
    )
    assert (found.now, found.up_since, found.scratch) == (NOW, NOW - 7200, (("/mnt/nvme", 4096),))
    assert found.answer == {
        "now": NOW,
        "up_since": NOW - 7200,
        "activity": "IDLE",
        "scratch": [["/mnt/nvme", 4096]],
        "verdict": "keep",
    }


def test_a_machine_without_a_gpu_has_no_such_key_and_one_that_cannot_be_read_is_null():
    without, unread = (
        parse_agent_status(answer(bucket())).samples[0],
        parse_agent_status(answer(bucket(gpu=None))).samples[0],
    )
    assert "gpu" not in without
    assert unread["gpu"] is None


@pytest.mark.parametrize("watts", [0, 312.5, 100_000, None])
def test_power_is_taken_as_watts_and_one_that_was_not_told_is_null(watts):
    assert parse_agent_status(answer(bucket(power=watts))).samples[0]["power"] == watts
    assert "power" not in parse_agent_status(answer(bucket())).samples[0]


def test_samples_come_in_order_each_once_and_none_is_older_than_a_ring():
    said = [bucket(t=NOW), bucket(t=NOW - 120), bucket(t=NOW), bucket(t=NOW - SAMPLE_WINDOW_S)]
    assert [one["t"] for one in parse_agent_status(answer(*said)).samples] == [NOW - 120, NOW]


def test_an_agent_of_an_earlier_version_is_said_to_be_one():
    found = parse_agent_status(json.dumps({"activity": "IDLE", "why": "nothing runs"}).encode())
    assert found.fault == "its agent is of an earlier version and keeps no samples"
    assert found.answer == {"activity": "IDLE", "why": "nothing runs"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "does not answer in JSON"),
        (b"\xff\xfe", "does not answer in JSON"),
        (b"[" * 100_000, "does not answer in JSON"),
        (b'{"now": NaN, "up_since": 1, "samples": []}', "does not answer in JSON"),
        (b'{"now": 1' + b"0" * 5000 + b"}", "does not answer in JSON"),
        (b"[]", "with a JSON object"),
        (answer(now=None), "now is not a number"),
        (answer(heartbeat=None, up_since=None), "its agent has seen nothing yet"),
        (answer(now=True), "now is not a number"),
        (answer(now=-1), "now is -1, which cannot be"),
        (b'{"now": 1e999, "up_since": 1, "samples": []}', "now is larger than any number of ours"),
        (answer(now=10**400), "now is larger than any number of ours, which cannot be"),
        (answer(up_since=NOW + 60), "up_since is 1800000060, which cannot be"),
        (answer(samples={}), "samples is not a list"),
        (answer(*[{}] * (MAX_SAMPLES + 1)), "samples is not a list of at most 5000"),
        (answer(3), "sample 0 is not an object"),
        (answer(bucket(), bucket(cpu="much")), "sample 1: cpu is not a number"),
        (answer(bucket(gpu=101)), "sample 0: gpu is 101"),
        (answer(bucket(net=-4)), "sample 0: net is -4"),
        (answer(bucket(power=-1)), "sample 0: power is -1"),
        (answer(bucket(power=100_001)), "sample 0: power is 100001"),
        (answer(bucket(s=0)), "sample 0: s is nothing"),
        (answer(bucket(s=1e9)), "sample 0: s is 1000000000"),
        (answer(bucket(t=NOW + 60)), "of a time to come, so its clock was set back"),
        (answer(bucket(**{"in": -60})), "sample 0: in is -60"),
        (answer(bucket(out=[])), "sample 0: out is not a number"),
        (answer(bucket(busy="all")), "sample 0: busy is not a list"),
        (answer(bucket(job=[1])), "sample 0: job is not a list"),
        (answer(bucket(busy=[1])), "sample 0: busy is not a list"),
        (answer(bucket(busy=["k"] * 65)), "sample 0: busy is not a list of at most 64 names"),
        (answer(bucket(fault=3)), "sample 0: fault is not text"),
        (answer(scratch="none"), "scratch is not a list"),
        (answer(scratch=[["/mnt", "much"]]), "size is not a number"),
        (answer(scratch=[["/mnt"]]), "not a path with a size"),
    ],
)
def test_an_answer_that_cannot_be_used_is_unknown_and_says_why(said, why):
    found = parse_agent_status(said)
    assert why in found.fault
    assert not found.fault.endswith(".")
    assert (found.samples, found.now, found.up_since, found.scratch) == ((), None, None, ())


def test_what_is_shown_of_it_moves_no_cursor_and_stays_short():
    found = parse_agent_status(
        answer(bucket(busy=["a\x1b[2J\nb" + "x" * 9000]), why="\x1b]0;t\x07hello", verdict={"a": "b" * 9000})
    )
    (name,) = found.samples[0]["busy"]
    assert name.isprintable()
    assert len(name) <= MAX_TEXT_CHARS
    assert found.answer["why"] == "]0;t hello"
    assert len(found.answer["verdict"]["a"]) == MAX_TEXT_CHARS


def test_what_is_handed_on_unread_is_neither_deep_nor_wide():
    deep = {"a": {"b": {"c": {"d": {"e": {"f": {"g": 1}}}}}}}
    found = parse_agent_status(answer(policy=deep, warned=list(range(9999)), ends_at=10**40)).answer
    assert "g" not in json.dumps(found)
    assert len(found["warned"]) == 100
    assert found["ends_at"] is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
keys = st.sampled_from(["t", "s", "gpu", "mem", "cpu", "net", "disk", "in", "out", "busy", "jup", "fault"])


@given(
    st.fixed_dictionaries(
        {
            "now": st.just(NOW) | json_values,
            "up_since": st.just(NOW - 60) | json_values,
            "samples": st.lists(st.dictionaries(keys, json_values | st.just(NOW), max_size=12), max_size=3)
            | json_values,
        },
        optional={"scratch": json_values, "activity": json_values},
    )
)
def test_nothing_that_an_agent_says_raises_and_what_is_taken_is_of_the_right_kind(said):
    found = parse_agent_status(json.dumps(said).encode())
    assert bool(found.fault) == (found.now is None)
    for one in found.samples:
        assert found.now - SAMPLE_WINDOW_S < one["t"] <= found.now + 5
        assert all(isinstance(one[name], int | float) and one[name] >= 0 for name in ("t", "s"))
        assert all(one[name] is None or 0 <= one[name] <= 1e13 for name in ("gpu", "cpu", "net", "disk") if name in one)


ages = st.none() | st.floats(-1, 1e6) | st.integers(0, 10**6)
readings = st.none() | st.floats(0, 100) | st.integers(0, 100)
buckets = st.fixed_dictionaries(
    {"t": st.floats(NOW - 9000, NOW), "s": st.floats(0.5, 120)},
    optional={
        **dict.fromkeys(("gpu", "cpu", "net", "disk", "mem"), readings),
        **dict.fromkeys(("in", "out", "jup"), ages),
        "busy": st.lists(st.text(max_size=3), max_size=2),
        "fault": st.text(max_size=5),
        "more": st.lists(st.integers()),
    },
)


@given(st.lists(buckets, max_size=8))
def test_whatever_is_taken_can_be_judged(samples):
    found = parse_agent_status(answer(*samples))
    assert found.fault == ""
    assert judge(found.samples, Thresholds(), found.now, found.up_since).activity in (ACTIVE, IDLE, UNKNOWN)


@given(st.binary(max_size=60))
def test_no_bytes_raise(text):
    assert parse_agent_status(text).fault
