"""Calls side by side: as the standard library's pool, but that nothing is waited for after Ctrl-C."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from cloudgpu.errors import CloudgpuError
from cloudgpu.parallel import Abandoned, Pool, is_abandoned, join_abandoned, send_heartbeat, stop_if_abandoned

PATIENCE_S = 20  # a bound against hanging
HANGS = """
import os, signal, sys, threading
from cloudgpu.parallel import Pool

never = threading.Event()

def hang(number):
    never.wait()

def fan_out(number):
    with Pool(2) as pool:
        return list(pool.map(hang, range(2)))

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

call, wait, when = sys.argv[1:]
try:
    with Pool(2) as pool:
        parts = [pool.submit(globals()[call], number) for number in range(4)]
        interrupt() if when == "now" else threading.Timer(0.05, interrupt).start()
        parts[0].result() if wait == "result" else None
except KeyboardInterrupt:
    print("left")
"""


def test_answers_come_in_the_order_of_the_items():
    first = threading.Event()

    def answer(number):
        first.wait(PATIENCE_S) if number == 0 else first.set()
        return number * 2

    with Pool(2) as pool:
        assert list(pool.map(answer, range(8))) == [0, 2, 4, 6, 8, 10, 12, 14]


def test_no_more_run_at_a_time_than_was_said():
    lock, now, most = threading.Lock(), 0, 0
    gate = threading.Barrier(3, timeout=PATIENCE_S)  # 9 calls by threes

    def count(_):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        gate.wait()
        with lock:
            now -= 1

    with Pool(3) as pool:
        list(pool.map(count, range(9)))
    assert most <= 3


def test_the_first_error_in_order_is_raised_after_what_has_begun_has_ended():
    begun, done = threading.Event(), []

    def call(number):
        if number == 1:
            begun.wait(PATIENCE_S)
            raise CloudgpuError("first in order")
        if number == 2:
            begun.set()
            done.append(number)
            raise ValueError("first in time")
        done.append(number)

    with pytest.raises(CloudgpuError, match="first in order"), Pool(4) as pool:
        list(pool.map(call, range(4)))
    assert sorted(done) == [0, 2, 3]


def test_what_has_not_begun_is_dropped_after_an_error():
    release, pools = threading.Event(), []

    def fail():
        with Pool(1) as pool:
            pools.extend([pool.submit(release.wait, PATIENCE_S), pool.submit(str, 1)])
            threading.Timer(0.02, release.set).start()
            raise CloudgpuError("not now")

    with pytest.raises(CloudgpuError):
        fail()
    assert pools[0].result(0) is True
    with pytest.raises(Abandoned):
        pools[1].result(0)


def test_an_exception_that_is_none_of_the_usual_reaches_the_caller():
    with pytest.raises(SystemExit), Pool(1) as pool:
        list(pool.map(sys.exit, [3]))


def test_a_pool_of_nothing_is_left_at_once():
    with Pool(0) as pool:
        assert list(pool.map(str, [])) == []


def test_a_part_that_is_abandoned_is_not_waited_for_and_gives_its_place_to_the_next():
    never, seen = threading.Event(), []

    def hangs():
        never.wait(PATIENCE_S)
        seen.append(is_abandoned())

    with Pool(1) as pool:
        hanging, next_one = pool.submit(hangs), pool.submit(str, 7)
        with pytest.raises(TimeoutError):
            hanging.result(0.01)
        hanging.abandon()
        assert next_one.result(PATIENCE_S) == "7"
    never.set()
    assert hanging.wait(PATIENCE_S)
    assert seen == [True]


def test_a_part_that_is_abandoned_before_it_began_never_begins():
    release, done = threading.Event(), []
    with Pool(1) as pool:
        pool.submit(release.wait, PATIENCE_S)
        later = pool.submit(done.append, 1)
        later.abandon()
        release.set()
    assert not done
    with pytest.raises(Abandoned):
        later.result()


def test_what_was_abandoned_sends_nothing_more_nor_do_its_own_parts():
    left, came, parts = threading.Event(), [], []

    def inner(_):
        left.wait(PATIENCE_S)
        stop_if_abandoned()
        came.append("sent")

    def outer():
        with Pool(2) as pool:
            list(pool.map(inner, range(2)))

    def interrupted():
        with Pool(1) as pool:
            parts.append(pool.submit(outer))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    left.set()
    with pytest.raises(Abandoned):
        parts[0].result(PATIENCE_S)
    assert not came
    stop_if_abandoned()  # this thread was not abandoned


@pytest.mark.parametrize("when", ["now", "later"])
@pytest.mark.parametrize("wait", ["result", "leaving"])
@pytest.mark.parametrize("call", ["hang", "fan_out"])
def test_ctrl_c_leaves_at_once_and_the_interpreter_joins_nothing(call, wait, when):
    command = [sys.executable, "-c", HANGS, call, wait, when]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("left\n", "", 0)


def test_a_call_that_says_nothing_is_left_and_the_others_are_answered():
    never = threading.Event()
    with Pool(1) as pool:
        parts = [pool.submit(never.wait), pool.submit(lambda: "answered")]
        assert [one.listen(0.05, PATIENCE_S) for one in parts] == [False, True]
        assert parts[1].result() == "answered"
    never.set()


def test_a_call_that_goes_on_being_answered_is_listened_to_also_inside_another():
    def page(_):
        for _ in range(6):
            threading.Event().wait(0.1)
            send_heartbeat()

    def pages():
        with Pool(1) as pool:
            return list(pool.map(page, range(1)))

    with Pool(1) as pool:
        asked = pool.submit(pages)
        assert asked.listen(0.4, PATIENCE_S)


def test_a_call_that_is_answered_without_an_end_is_left():
    over = threading.Event()

    def drips():
        while not over.wait(0.01):
            send_heartbeat()

    with Pool(1) as pool:
        assert not pool.submit(drips).listen(PATIENCE_S, 0.1)
    over.set()


def test_a_part_that_was_left_ends_with_all_that_waits_in_its_own_pool():
    release, parts = threading.Event(), []

    def outer():
        with Pool(1) as pool:
            parts.extend(pool.submit(release.wait, PATIENCE_S) for _ in range(3))

    with Pool(1) as pool:
        left = pool.submit(outer)
        assert not left.listen(0.1, PATIENCE_S)
    release.set()
    assert [one.wait(PATIENCE_S) for one in [left, *parts]] == [True] * 4


def test_a_thread_whose_start_was_interrupted_is_not_waited_for(monkeypatch):
    start = threading.Thread.start

    def interrupted(thread):
        start(thread)
        thread._started.clear()  # as where Ctrl-C comes before the thread has said that it runs
        raise KeyboardInterrupt

    release = threading.Event()
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), Pool(1) as pool:
        pool.submit(release.wait, PATIENCE_S)
    join_abandoned(0.1)
    release.set()
