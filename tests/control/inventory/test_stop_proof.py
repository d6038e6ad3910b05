"""When "not found" proves the end of a machine that is so young that a cloud may not show it yet."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from cloudgpu.control.lifecycle.lifecycle import terminate_one
from cloudgpu.errors import InstanceNotFound


@pytest.fixture
def young(lab, monkeypatch):
    """A machine of ten seconds at a cloud whose `get` proves an end a minute after the launch at the earliest."""

    def made(gone_proves_after):
        rule = replace(
            lab.cloud.token_rule, listing_proves_after=timedelta(minutes=10), gone_proves_after=gone_proves_after
        )
        monkeypatch.setattr(lab.cloud, "token_rule", rule)
        row = lab.up().machine
        lab.later(seconds=10)
        return row, lab.session.clock()

    return made


def ended(lab, row, since, *, seen_by_get):
    """End it where `get` shows it at first, or never; return after how long that was proved."""
    looks = iter([None] if seen_by_get else [])

    def look():
        return next(looks, InstanceNotFound("A read does not find it."))

    lab.cloud.fail_next("get", look, times=500)
    assert terminate_one(lab.session, row, why="test").terminated_at
    assert lab.machines() == []
    return lab.session.clock() - since


def test_one_that_get_has_just_shown_is_gone_at_once_where_the_provider_vouches_for_that(lab, young):
    row, since = young(timedelta(minutes=1))
    assert ended(lab, row, since, seen_by_get=True) < timedelta(seconds=5)


def test_one_that_get_has_not_shown_is_gone_only_after_the_minute(lab, young):
    row, since = young(timedelta(minutes=1))
    assert timedelta(seconds=50) <= ended(lab, row, since, seen_by_get=False) < timedelta(seconds=75)


def test_where_nobody_vouches_for_get_it_is_gone_only_as_late_as_by_a_listing(lab, young):
    row, since = young(None)
    assert ended(lab, row, since, seen_by_get=True) >= timedelta(minutes=9)
