"""`--deadline`, `--work` and `--spot-policy`: what is meant, and the cheapest way where they cannot be kept."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cloudgpu.control.jobs.inputs.deadline import check_feasible
from cloudgpu.control.jobs.inputs.request import parse_run
from cloudgpu.core.jobs.deadline import Margins
from cloudgpu.core.values.money import Money
from cloudgpu.errors import InvalidRequest

NOW = datetime(2026, 11, 1, 9, tzinfo=UTC)


@pytest.fixture
def read(tmp_path):
    def parsed(**options):
        return parse_run(workdir=tmp_path, argv=["true"], environ={}, **options)

    parsed.workdir = tmp_path
    return parsed


def refused(call, field, *words):
    with pytest.raises(InvalidRequest) as found:
        call()
    assert found.value.field == field
    for word in words:
        assert word in f"{found.value.message} {found.value.next}"


def test_a_deadline_is_a_duration_from_now_or_a_time_with_its_zone(read):
    asked = read(deadline="24h", work="18h").deadline
    assert (asked.work, asked.moment(NOW)) == (timedelta(hours=18), NOW + timedelta(hours=24))
    asked = read(deadline="2026-11-02T09:00+00:00", work="18h").deadline
    assert asked.moment(NOW) == NOW + timedelta(days=1)
    assert read().deadline is None


@pytest.mark.parametrize(
    ("options", "field", "word"),
    [
        ({"deadline": "24h"}, "--work", "--deadline 24h --work"),
        ({"work": "24h"}, "--work", "Add --deadline"),
        ({"spot_policy": "greedy"}, "--spot-policy", "Add --deadline"),
        ({"deadline": "soon", "work": "1h"}, "--deadline", "2026-12-01"),
        ({"deadline": "2h", "work": "lots"}, "--work", "duration"),
        ({"deadline": "2h", "work": "1h", "spot_policy": "gredy"}, "--spot-policy", "greedy"),
        ({"deadline": "2h", "work": "1h", "spot": False, "spot_policy": "greedy"}, "--spot-policy", "--on-demand"),
        ({"deadline": "2h", "work": "1h", "results_to": "volume:data"}, "--results-to", "the zone of the volume"),
        ({"deadline": "2h", "work": "1h", "on": "desk"}, "--deadline", "--on desk"),
        ({"deadline": "2h", "work": "1h", "or_on_demand": True, "spot": True}, "--or-on-demand", "Leave"),
        ({"deadline": "2h", "work": "1h", "renew_until": "9h"}, "--renew-until", "Leave"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_way_out(read, options, field, word):
    refused(lambda: read(**options), field, word)


def test_work_that_does_not_fit_names_the_least_deadline_and_from_when_on_spot_helps(read):
    words = ("18h does not fit", "--deadline 18h16m", "--deadline 18h49m", "spot")
    refused(lambda: read(deadline="17h", work="18h"), "--deadline", *words)
    asked = read(deadline="18h10m", work="18h").deadline
    margins = Margins(start_s=900, pass_interval_s=60)
    refused(lambda: check_feasible(asked, NOW, margins, Money.usd(3)), "--deadline", *words, "$54.80")
    fits = read(deadline="18h16m", work="18h").deadline
    assert check_feasible(fits, NOW, margins, None) == NOW + timedelta(hours=18, minutes=16)


def test_a_deadline_that_is_over_is_refused(read):
    asked = read(deadline="2020-01-01T00:00+00:00", work="1h").deadline
    refused(lambda: check_feasible(asked, NOW, Margins(), None), "--deadline", "in the past")
    refused(lambda: check_feasible(asked, NOW, Margins(), None), "--deadline", "--deadline 2020-01-01")


def test_on_demand_alone_is_its_own_policy(read):
    assert read(deadline="24h", work="18h", spot=False).deadline.policy == "on-demand"


def test_a_checkpoint_directory_that_cannot_be_written_is_refused(read, monkeypatch):
    (read.workdir / "kept").mkdir(mode=0o500)
    monkeypatch.setattr(os, "access", lambda path, mode, may=os.access: Path(path).name != "kept" and may(path, mode))
    refused(lambda: read(checkpoint="kept"), "--checkpoint", "cannot be written")


def test_a_checkpoint_directory_that_is_a_file_is_refused(read):
    (read.workdir / "kept").write_text("")
    refused(lambda: read(checkpoint="kept/here"), "--checkpoint", "checkpoints cannot be written")
