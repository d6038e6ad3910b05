from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cloudgpu.agent.agent import ACTIVE, IDLE, STARTING, UNKNOWN, WINDOW, Ages, Sign, judge, signs
from tests.agent.machine import MONO, NOW


def _kernel(state, ago, name="k"):
    stamp = datetime.fromtimestamp(NOW - ago, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"id": name, "execution_state": state, "last_activity": stamp, "connections": 1}


def _activity(*items, ages=None, now=NOW, mono=MONO, fault=""):
    return judge(signs(list(items), ages or Ages(), now, mono), fault)[0]


def test_nothing_running_is_idle():
    assert judge([], "") == (IDLE, "nothing runs", -1)


def test_silence_is_not_idleness():
    assert judge([], "JupyterLab died") == (UNKNOWN, "JupyterLab died", -1)


def test_what_is_known_to_live_outweighs_what_is_not_known():
    assert judge([Sign("terminal input", 3)], "JupyterLab died")[0] == ACTIVE


def test_a_busy_kernel_is_active_however_long_its_cell_runs():
    assert _activity(_kernel("busy", 9 * 3600)) == ACTIVE


@pytest.mark.parametrize(("ago", "said"), [(WINDOW - 1, ACTIVE), (WINDOW + 2, IDLE)])
def test_a_quiet_kernel_counts_for_ten_minutes(ago, said):
    assert _activity(_kernel("idle", ago)) == said


@pytest.mark.parametrize(("ago", "said"), [(STARTING - 1, ACTIVE), (STARTING + 2, IDLE)])
def test_a_kernel_that_nobody_connected_to_ages_out_after_five_minutes(ago, said):
    assert _activity(_kernel("starting", ago)) == said


def test_a_terminal_of_jupyter_counts_too():
    stamp = datetime.fromtimestamp(NOW - 5, UTC).isoformat()
    assert _activity({"name": "1", "last_activity": stamp}) == ACTIVE


def test_the_latest_sign_says_why():
    found = signs([_kernel("idle", 900, "old"), _kernel("idle", 20, "new")], Ages(), NOW, MONO)
    assert judge(found, "") == (ACTIVE, "kernel new, 20 s ago", 20)


@pytest.mark.parametrize("jump", [-40 * 86400, 40 * 86400])
def test_a_jump_of_the_wall_clock_makes_nothing_older_or_younger(jump):
    ages, kernel = Ages(), _kernel("idle", 60)
    assert _activity(kernel, ages=ages) == ACTIVE
    assert _activity(kernel, ages=ages, now=NOW + 1 + jump, mono=MONO + 1) == ACTIVE
    assert _activity(kernel, ages=ages, now=NOW + WINDOW + jump, mono=MONO + WINDOW) == IDLE


def test_a_kernel_that_moved_between_two_looks_is_active_whatever_its_clock_says():
    ages = Ages()
    assert _activity(_kernel("idle", 9000), ages=ages) == IDLE
    assert _activity(_kernel("idle", 8000), ages=ages, mono=MONO + 5) == ACTIVE


def test_a_stamp_from_the_future_is_as_old_as_we_know_it():
    ages, kernel = Ages(), _kernel("idle", -9000)
    assert _activity(kernel, ages=ages) == ACTIVE
    assert _activity(kernel, ages=ages, mono=MONO + WINDOW + 1) == IDLE
