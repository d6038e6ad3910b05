"""A conversation of JSON lines with a policy: each line is answered, whatever it holds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from cloudgpu.core.spot.policies import POLICIES
from cloudgpu.core.spot.serving import Serving

JOB = {
    "total_work_h": 4,
    "deadline_h": 6,
    "tick_h": 0.1,
    "changeover_h": 0.1,
    "price_spot": 1,
    "price_on_demand": 3,
}
STATE = {
    "elapsed_h": 0,
    "work_left_h": 4,
    "time_left_h": 6,
    "spot_available": True,
    "zones_available": None,
    "mode": "wait",
    "zone": None,
    "pending_h": 0,
}


def asked(*requests, name="greedy"):
    serving = Serving(POLICIES[name])
    lines = [one if isinstance(one, (str, bytes)) else json.dumps(one) for one in requests]
    return [json.loads(serving.answer(line)) for line in lines]


def decided(**changes):
    return asked({"op": "reset", "job": JOB}, {"op": "decide", "state": STATE | changes})[1]


def test_a_reset_and_a_decision_are_answered_as_the_interface_says():
    assert asked({"op": "reset", "job": JOB}) == [{"ok": True}]
    assert decided() == {"action": "spot", "zone": None}
    assert decided(spot_available=False) == {"action": "wait", "zone": None}
    assert decided(spot_available=False, elapsed_h=1.9, time_left_h=4.1) == {"action": "on_demand", "zone": None}
    assert decided(zones_available=[False, True]) == {"action": "spot", "zone": 1}
    assert decided(zones_available=[0, 0], spot_available=True)["action"] == "wait"


def test_unknown_keys_and_missing_optional_ones_are_no_fault():
    needed = {key: STATE[key] for key in ("elapsed_h", "work_left_h", "time_left_h", "spot_available", "mode")}
    more = {"zone_prices": [1], "move_costs": [0]}
    found = asked({"op": "reset", "job": JOB | more}, {"op": "decide", "state": needed | more, "id": 3})
    assert found[1] == {"action": "spot", "zone": None}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("x", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        ("[" * 200_000, "nested too deeply"),
        ("[]", "no JSON object"),
        ("null", "no JSON object"),
        ("{}", 'op null is not "reset" or "decide"'),
        ('{"op": ["reset"]}', "is not"),
        ('{"op": "reset"}', "job null is not an object"),
        ('{"op": "reset", "job": []}', "job [] is not an object"),
        ('{"op": "reset", "job": {}}', "total_work_h"),
        (json.dumps({"op": "reset", "job": JOB | {"tick_h": "soon"}}), "tick_h"),
        (json.dumps({"op": "reset", "job": JOB | {"deadline_h": float("nan")}}), "deadline_h"),
        (json.dumps({"op": "reset", "job": JOB | {"deadline_h": 10**400}}), "deadline_h"),
        ('{"op": "decide", "state": {}}', "No job has begun"),
    ],
)
def test_a_line_that_is_wrong_is_answered_with_its_fault_and_the_next_one_counts(line, says):
    wrong, right = asked(line, {"op": "reset", "job": JOB})
    assert list(wrong) == ["error"]
    assert says in wrong["error"]
    assert right == {"ok": True}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"elapsed_h": -1}, "elapsed_h -1 is not a number of at least 0"),
        ({"work_left_h": None}, "work_left_h null"),
        ({"work_left_h": True}, "work_left_h true"),
        ({"time_left_h": "6"}, 'time_left_h "6" is not a number'),
        ({"time_left_h": float("inf")}, "time_left_h Infinity"),
        ({"elapsed_h": 10**400}, "elapsed_h 1000"),
        ({"spot_available": None}, "spot_available null is neither true nor false"),
        ({"spot_available": 2}, "spot_available 2"),
        ({"spot_available": []}, "spot_available []"),
        ({"zones_available": []}, "zones_available []"),
        ({"zones_available": [True, "no"]}, 'zones_available "no"'),
        ({"mode": "walk"}, 'mode "walk"'),
        ({"mode": ["spot"]}, "mode"),
        ({"zone": 1}, "zone 1 is neither null nor the place of a zone"),
        ({"zone": -1, "zones_available": [True]}, "zone -1"),
        ({"zone": True, "zones_available": [True]}, "zone true"),
        ({"pending_h": -0.1}, "pending_h -0.1"),
    ],
)
def test_a_state_that_cannot_be_is_refused_by_its_key(changes, says):
    assert says in decided(**changes)["error"]


def test_a_failed_reset_leaves_no_job_behind():
    found = asked({"op": "reset", "job": JOB}, {"op": "reset", "job": {}}, {"op": "decide", "state": STATE})
    assert found[0] == {"ok": True}
    assert "No job has begun" in found[2]["error"]


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.booleans())


@given(st.dictionaries(st.sampled_from([*STATE, "op", "x"]), VALUES))
def test_any_state_is_answered_by_one_line(changes):
    serving = Serving(POLICIES["uniform-progress"])
    assert json.loads(serving.answer(json.dumps({"op": "reset", "job": JOB}))) == {"ok": True}
    answer = serving.answer(json.dumps({"op": "decide", "state": STATE | changes}))
    assert "\n" not in answer
    assert set(json.loads(answer)) in ({"action", "zone"}, {"error"})
