"""A launch at a place without tokens: sent once from one home, and from a fresh one only while it is new."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from cloudgpu.providers.rest.once import SEND_WINDOW, SendOnce

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def call(name="t", at=NOW):
    return SimpleNamespace(token=name, made_at=at)


def test_a_call_is_sent_once_from_a_home(tmp_path, clock):
    once = SendOnce(tmp_path, clock)
    assert once.claim_send(call())
    assert not once.claim_send(call())
    assert not SendOnce(tmp_path, clock).claim_send(call())
    assert once.claim_send(call("another"))
    assert once.sent_at("t") == NOW
    assert once.sent_at("never") is None


def test_a_call_that_was_surely_refused_may_be_sent_again_once(tmp_path, clock):
    once = SendOnce(tmp_path, clock)
    assert once.claim_send(call())
    once.record_refusal(call())
    clock.now += timedelta(hours=1)
    assert once.claim_send(call())
    assert not once.claim_send(call())


def test_a_home_that_has_never_seen_an_old_call_only_looks(tmp_path, clock):
    clock.now += SEND_WINDOW + timedelta(seconds=1)
    assert not SendOnce(tmp_path, clock).claim_send(call())
    assert SendOnce(tmp_path, clock).claim_send(call(at=clock.now - SEND_WINDOW))


def test_a_call_from_a_clock_far_ahead_only_looks(tmp_path, clock):
    assert not SendOnce(tmp_path, clock).claim_send(call(at=NOW + timedelta(hours=1)))


def test_of_many_at_once_one_may_send(tmp_path, clock):
    once, said = SendOnce(tmp_path, clock), []
    threads = [threading.Thread(target=lambda: said.append(once.claim_send(call()))) for _ in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(said) == [False] * 15 + [True]


def test_marks_are_kept_for_a_month(tmp_path, clock):
    once = SendOnce(tmp_path, clock)
    once.claim_send(call())
    clock.now += timedelta(days=31)
    once.claim_send(call("new", clock.now))
    assert once.sent_at("t") is None
    assert once.sent_at("new") == clock.now


def test_a_mark_that_another_launch_takes_away_meanwhile_hinders_nobody(tmp_path, clock, monkeypatch):
    once = SendOnce(tmp_path, clock)
    monkeypatch.setattr(type(tmp_path), "iterdir", lambda place: iter([place / "just-renamed.refused"]))
    assert once.claim_send(call())
    assert not once.claim_send(call())


def test_a_damaged_record_is_one_without_a_machine_and_hides_no_other(tmp_path, clock):
    once = SendOnce(tmp_path, clock)
    for name in ("a", "b", "c"):
        once.claim_send(call(name))
        once.record_machine(call(name), f"machine-{name}")
    for name in ("a", "b"):
        once._files(name)[0].write_bytes(b"\xff\xfe")
    assert once.has_machine("machine-c")
    assert not once.has_machine("machine-a")
    assert (once.machine_id("a"), once.machine_id("c")) == ("", "machine-c")
    assert not once.claim_send(call("a"))
