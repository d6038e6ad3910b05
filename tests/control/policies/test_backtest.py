from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from cloudgpu.cli.automation.backtest import backtest_text
from cloudgpu.control.lifecycle.lifecycle import stop
from cloudgpu.control.policies.backtest import build_backtest_document
from cloudgpu.core.values.times import from_iso
from cloudgpu.errors import InstanceNotFound, InvalidRequest
from cloudgpu.ledger.samples.store import SampleStore

MINUTE = timedelta(minutes=1)


def keep(lab, *pieces):
    """Live through (minutes, what each sample shows), keeping the samples of each."""
    (row,) = lab.rows()
    shelf = SampleStore(lab.session.home.samples, row.id)
    for minutes, shown in pieces:
        begin = lab.clock()
        lab.later(minutes=minutes)
        if shown is not None:
            samples = [
                {"t": (begin + n * MINUTE).timestamp(), "s": 60, "cpu": 0.02, "net": 400, "disk": 0} | shown
                for n in range(1, minutes + 1)
            ]
            shelf.keep(samples, lab.clock().timestamp() + 60, lab.clock() + MINUTE)


IDLE, BUSY, GPU = {}, {"busy": ["kernel 1"]}, {"gpu": 97.0}


@pytest.fixture
def past(lab):
    """A machine that was used for an hour, idle for four, used for ten minutes, and stopped an hour later."""
    lab.up()
    keep(lab, (60, BUSY), (240, IDLE), (10, BUSY), (60, IDLE))
    (row,) = lab.rows()
    stop(lab.session, row, why="asked by the user")
    lab.later(hours=3)
    return lab


def test_what_a_shipped_policy_would_have_done(past):
    value = build_backtest_document(past.session, "default")
    (first,) = value["stops"]
    assert (first["do"], first["rule"], first["off_s"]) == ("stop", "idle", 170 * 60)
    assert first["work"]["what"] == ["busy kernel"]
    assert (value["hours"], value["unsampled_share"]) == (6.1667, 0.0)
    price = Decimal(past.session.ledger.machines()[0].price.nanos_per_hour) / 10**9
    assert Decimal(value["savings"]["usd"]) == round(price * 170 / 60, 9)
    assert Decimal(value["would_have_cost"]["usd"]) == Decimal(value["cost"]["usd"]) - Decimal(value["savings"]["usd"])
    assert value["machines"][0]["actual_ends"] == [
        {"at": value["machines"][0]["actual_ends"][0]["at"], "why": "asked by the user"}
    ]
    assert (value["restarts"], value["killed"]) == (1, 0)


def test_a_cluster_is_judged_as_one_and_is_in_use_when_any_node_is(lab):
    lab.up(name="train", nodes=3, engine="none")
    rows, begin = lab.rows(), lab.clock()
    lab.later(hours=6)
    for row in rows:  # the last node works for four hours, the others never do
        shown = [BUSY if row.name == "train-2" and minute <= 240 else IDLE for minute in range(1, 361)]
        samples = [
            {"t": (begin + (n + 1) * MINUTE).timestamp(), "s": 60, "cpu": 0.02, "net": 400, "disk": 0} | one
            for n, one in enumerate(shown)
        ]
        SampleStore(lab.session.home.samples, row.id).keep(samples, lab.clock().timestamp(), lab.clock())
    value = build_backtest_document(lab.session, "default")
    (one,), (end,) = value["machines"], value["stops"]
    assert (one["name"], end["name"], end["rule"]) == ("train", "train", "idle")
    worked = begin + 240 * MINUTE
    assert worked < from_iso(end["at"]) < worked + timedelta(hours=2)
    price = sum(Decimal(row.price.nanos_per_hour) for row in rows) / 10**9
    assert Decimal(end["savings"]["usd"]) == round(price * end["off_s"] / 3600, 9)
    assert any("evaluated as one" in note for note in value["notes"])
    assert build_backtest_document(lab.session, "default", machine="train-1")["stops"] == value["stops"]
    assert build_backtest_document(lab.session, "default", machine="train")["stops"] == value["stops"]


def test_under_never_nothing_is_stopped_and_nothing_saved(past):
    value = build_backtest_document(past.session, "never")
    assert (value["ends"], value["savings"]["usd"], value["off_hours"]) == (0, "0", 0)


def test_a_file_is_tested_before_anybody_is_under_it(past, tmp_path):
    file = tmp_path / "strict.yaml"
    file.write_text("lease: 8h\nrenew_until: 3d\nidle:\n  after: 20m\n  grace: 5m\n")
    strict, usual = (build_backtest_document(past.session, name) for name in (str(file), "default"))
    assert (strict["policy"], strict["file"]) == ("strict", str(file))
    assert Decimal(strict["savings"]["usd"]) > Decimal(usual["savings"]["usd"])
    assert strict["ends"] == 2


def test_work_that_it_would_have_killed_is_named_first_of_all_ends(lab, tmp_path):
    lab.up()
    keep(lab, (180, GPU))
    file = tmp_path / "blind.yaml"
    file.write_text("lease: 8h\nrenew_until: 3d\nidle:\n  gpu: 99\n")
    value = build_backtest_document(lab.session, str(file))
    assert value["killed"] == 2  # at 70 minutes; started again, and an hour and a warning later
    assert value["stops"][0]["work"]["under_way"]
    assert value["stops"][0]["work"]["what"] == ["GPU"]
    assert value["savings"]["usd"] == "0"
    assert "KILLED work" in backtest_text(value)
    assert "GPU was running at" in backtest_text(value)


def test_a_time_without_samples_is_said_first(lab):
    lab.up()
    keep(lab, (60, IDLE), (180, None))
    value = build_backtest_document(lab.session, "default")
    assert value["unsampled_share"] == 0.75
    assert backtest_text(value).split("\n\n")[1].replace("\n", " ").startswith("For 75.0% of the 4h that 1 machine ran")
    assert value["ends"] == 0


def test_a_short_run_is_shown_to_the_second(lab):
    lab.up()
    keep(lab, (5, BUSY))
    text = backtest_text(build_backtest_document(lab.session, "default"))
    assert "Of the 5m that 1 machine ran there are samples for all." in text


def test_without_any_samples_and_without_any_machine_that_is_what_is_said(lab):
    assert "No machine ran in that time" in backtest_text(build_backtest_document(lab.session, "default"))
    lab.up()
    lab.later(hours=3)
    assert "no samples are kept here" in backtest_text(build_backtest_document(lab.session, "default")).replace(
        "\n", " "
    )


def test_one_machine_alone_and_a_shorter_time(past):
    past.up(name="other", new=True)
    past.later(hours=2)
    assert [one["name"] for one in build_backtest_document(past.session, "default", machine="other")["machines"]] == [
        "other"
    ]
    assert len(build_backtest_document(past.session, "default")["machines"]) == 2
    assert [one["name"] for one in build_backtest_document(past.session, "default", since="2h")["machines"]] == [
        "other"
    ]
    with pytest.raises(InstanceNotFound):
        build_backtest_document(past.session, "default", machine="nobody")


def test_what_was_before_the_period_is_known_to_its_first_pass(lab):
    lab.up()
    keep(lab, (300, IDLE))
    (first,) = build_backtest_document(lab.session, "default", since="2h")["stops"]
    assert first["off_s"] == 110 * 60


def test_nothing_is_changed_by_it(past):
    before = past.session.ledger.head()
    build_backtest_document(past.session, "default")
    assert past.session.ledger.head() == before


def test_the_limits_of_the_lab_hold_in_a_test_too(past):
    (past.home / "policies").mkdir()
    (past.home / "policies" / "limits.yaml").write_text("idle_after: 1h\n")
    value = build_backtest_document(past.session, "never")
    assert value["ends"] == 1
    assert any("limits" in remark for remark in value["notes"])


@pytest.mark.parametrize(
    ("policy", "more", "field"),
    [
        ("nightli", {}, "policy"),
        ("./nowhere.yaml", {}, "FILE"),
        ("default", {"since": "soon"}, "--since"),
        ("default", {"since": "2099-01-01"}, "--since"),
        ("default", {"every": "often"}, "--every"),
        ("default", {"every": "1s"}, "--every"),
        ("default", {"every": "2d"}, "--every"),
    ],
)
def test_what_cannot_be_is_refused_by_its_field(lab, policy, more, field):
    with pytest.raises(InvalidRequest) as caught:
        build_backtest_document(lab.session, policy, **more)
    assert caught.value.field == field


def test_a_file_with_a_fault_is_named_with_its_line(lab, tmp_path):
    (tmp_path / "half.yaml").write_text("lease: 8h\nrenew_until: 3d\nidle:\n  after: never\n")
    with pytest.raises(InvalidRequest) as caught:
        build_backtest_document(lab.session, str(tmp_path / "half.yaml"))
    assert caught.value.field.startswith("half.yaml:4")


def test_a_period_older_than_the_samples_says_so(past):
    assert any("90 days" in one for one in build_backtest_document(past.session, "default", since="100d")["notes"])


def test_the_text_has_room_in_eighty_columns(past):
    shown = backtest_text(build_backtest_document(past.session, "default"))
    assert max(map(len, shown.splitlines())) <= 80
    assert "used again" in shown
    assert "there are samples for all" in shown
