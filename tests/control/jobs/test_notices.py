"""Alerts of jobs through a real receiver, each once, and notices through a program that stands for the desktop's."""

from __future__ import annotations

import json
import os
import stat
import sys

import pytest

from cloudgpu.control.alerts.alerts import deliver
from cloudgpu.control.jobs.notices import show, show_end, update_secret_alert, update_stall_alert
from cloudgpu.control.session.session import all_jobs
from cloudgpu.core.events.job_events import (
    job_began,
    job_closed,
    job_ended,
    job_machine,
    job_placed,
    job_progressed,
    job_requested,
)
from tests.core.jobs.writing import spec

JOB = "job-00000000a1"


def begun(lab, **facts):
    """Have a machine for a job whose command runs from now on."""
    lab.up(name="fox")
    (row,) = lab.session.ledger.machines()
    now = lab.clock()
    lines = [
        job_requested(JOB, "train", None, "tower", spec(**facts), now),
        job_placed(JOB, 1, now, key="job:a1:1", machine=None),
        job_machine(JOB, 1, row.id, now),
        job_began(JOB, 1, None, now),
    ]
    lab.session.ledger.append(lines)


def over(lab, outcome="succeeded", status=0):
    now = lab.clock()
    lab.session.ledger.append([job_ended(JOB, 1, outcome, now, status=status), job_closed(JOB, "", now)])


def job_of(lab):
    return all_jobs(lab.session)[JOB]


@pytest.fixture
def told(make_lab, web):
    return make_lab(f'[alerts]\nto = ["json://{web.place}/"]')


def kinds(lab):
    return [(line.kind, line.body.get("key")) for line in lab.session.ledger.events("alerts")]


def test_the_end_of_a_job_is_sent_once_whoever_watches(told):
    begun(told)
    told.later(hours=2)
    over(told)
    first = deliver(told.session, [])
    assert first.raised == (f"job:{JOB}:succeeded",)
    assert [one.why for one in first.outcomes] == [None]
    assert first.active == ()  # nothing is wrong
    for session in (told.session, told.opened()):
        again = deliver(session, [])
        assert (again.raised, again.outcomes) == ((), ())
    told.later(days=4)
    gone = deliver(told.session, [])
    assert f"job:{JOB}:succeeded" in gone.cleared
    assert f"job:{JOB}:succeeded" not in deliver(told.session, []).raised
    assert [kind for kind, key in kinds(told) if key == f"job:{JOB}:succeeded"] == ["alert_raised", "alert_cleared"]


def test_a_failed_job_names_its_cost(told):
    begun(told)
    told.later(hours=1)
    over(told, "failed", 3)
    deliver(told.session, [])
    (raised,) = [line.body for line in told.session.ledger.events("alerts") if line.kind == "alert_raised"]
    assert raised["kind"] == "job failed"
    assert raised["urgent"]
    assert "exit status is 3" in raised["text"]
    assert raised["facts"]["cost"].startswith("$")
    assert raised["facts"]["cost"] != "$0.00"


def test_a_stalled_job_is_told_once_and_again_only_after_it_went_on(told):
    begun(told, stall_s=600)
    told.later(minutes=11)
    assert update_stall_alert(told.session, job_of(told), None)
    assert not update_stall_alert(told.session, job_of(told), None)
    assert not update_stall_alert(told.opened(), job_of(told), None)
    assert len(deliver(told.session, []).outcomes) == 1
    assert deliver(told.session, []).cleared == ()  # a pass that did not look at the machine says nothing of it
    assert update_stall_alert(told.session, job_of(told), told.clock())
    told.later(minutes=11)
    assert update_stall_alert(told.session, job_of(told), None)
    assert [kind for kind, _ in kinds(told)].count("alert_raised") == 2


def test_progress_that_is_in_no_line_yet_is_a_sign_of_life(told):
    begun(told, stall_s=600)
    told.later(minutes=11)
    assert not update_stall_alert(told.session, job_of(told), None, (3.0, 10.0))
    told.session.ledger.append([job_progressed(JOB, 1, 3.0, 10.0, told.clock())])
    told.later(minutes=9)
    assert not update_stall_alert(told.session, job_of(told), None, (3.0, 10.0))
    told.later(minutes=2)
    assert update_stall_alert(told.session, job_of(told), None, (3.0, 10.0))


def test_a_stall_is_over_with_its_job(told):
    begun(told, stall_s=600)
    told.later(minutes=11)
    update_stall_alert(told.session, job_of(told), None)
    over(told)
    assert deliver(told.session, []).cleared == (f"job-waits:{JOB}:stalled",)


def test_a_job_that_waits_for_a_secret_names_it_until_it_has_it(told):
    begun(told)
    assert update_secret_alert(told.session, job_of(told), ["HF_TOKEN"])
    assert deliver(told.session, []).active == ("Job train waits for HF_TOKEN",)
    assert update_secret_alert(told.session, job_of(told), [])
    assert deliver(told.session, []).active == ()


@pytest.fixture
def screen(tmp_path):
    """A desktop whose program writes down what it was called with."""
    place = tmp_path / "bin"
    place.mkdir()
    name = "osascript" if sys.platform == "darwin" else "notify-send"
    program = place / name
    note = f"open({str(tmp_path / 'argv')!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')"
    program.write_text(f"#!{sys.executable}\nimport json, sys\n{note}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    environ = {"PATH": f"{place}{os.pathsep}{os.environ['PATH']}", "DISPLAY": ":0"}
    return environ, lambda: [json.loads(line) for line in (tmp_path / "argv").read_text().splitlines()]


def test_the_end_of_a_job_is_shown_on_the_screen(lab, screen):
    environ, calls = screen
    begun(lab)
    lab.later(hours=1)
    over(lab, "failed", 3)
    assert show_end(lab.session, job_of(lab), environ)
    ((*_, title, text),) = calls()
    assert title == "Job train has failed"
    assert text.startswith("$")
    assert "exit status is 3" in text


def test_without_a_desktop_or_with_the_setting_off_nothing_is_shown(lab, make_lab, screen):
    environ, _ = screen
    begun(lab)
    over(lab)
    job = job_of(lab)
    assert not show_end(lab.session, job, {"PATH": "", "DISPLAY": ":0"})
    if sys.platform != "darwin":
        assert not show_end(lab.session, job, {"PATH": environ["PATH"]})
    off = make_lab("[jobs]\nnotify = false")
    assert not show_end(off.session, job, environ)
    twice = make_lab('[alerts]\nto = ["desktop"]')
    assert not show_end(twice.session, job, environ)


def test_a_program_that_fails_fails_no_job(tmp_path):
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("notify-send", "osascript"):
        (place / name).write_text("#!/bin/sh\nexit 1\n")
        (place / name).chmod(0o755)
    assert not show("title", "text", {"PATH": str(place), "DISPLAY": ":0"})
    for name in ("notify-send", "osascript"):
        (place / name).write_text("no program at all")
    assert not show("title", "text", {"PATH": str(place), "DISPLAY": ":0"})


def test_a_title_that_looks_like_an_option_is_a_title(screen):
    environ, calls = screen
    assert show("--help", '$(touch owned) " & do shell script', environ)
    assert calls()[0][-2:] == ["--help", '$(touch owned) " & do shell script']
