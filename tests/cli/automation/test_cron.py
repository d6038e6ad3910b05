"""cron install, show, remove and test: the user's own jobs stay as they are, and cron's own environment is tried."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from cloudgpu.cli.automation.cron_text import cron_test_text
from cloudgpu.control.inputs.launch_request import UpRequest
from cloudgpu.control.launch.launch import launch
from cloudgpu.control.launch.plan import prepare
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.scheduler import cron_test
from cloudgpu.control.scheduler.cron import apply_change, plan_install, plan_remove, show_cron
from cloudgpu.control.scheduler.cron_test import (
    cron_test_document,
    exit_code,
    lasts_until_morning,
    next_morning,
    planned_actions,
)
from cloudgpu.control.scheduler.redaction import SECRET_VARIABLES
from cloudgpu.core.model.offers import Requirements
from cloudgpu.errors import InvalidRequest, ProviderUnavailable
from cloudgpu.testing import FAKE, ManualClock, write_plugin
from tests.access.sshserver import wait_for
from tests.cli.many import QuickProgram, shared
from tests.cli.program import Program

MINE = b"# my own\nMAILTO=ada\n\n5 4 * * * true 100\\% \xe9\n"

# A crontab as Vixie's and cronie's behave: a table in a file, `-l` that fails where there is none, no line without end.
CRONTAB = """#!/bin/sh
case "$1" in
-l) [ -e "$TABLE" ] || { echo "no crontab for ada" >&2; exit 1; }; [ ! -e "$TABLE.broken" ] || { echo "cannot fork" >&2
    exit 1; }; cat "$TABLE" ;;
-r) rm "$TABLE" ;;
-) cat > "$TABLE.new"; [ ! -e "$TABLE.full" ] || { echo "disk full" >&2; exit 1; }; mv "$TABLE.new" "$TABLE" ;;
esac
"""
SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$CALLS"
[ "$2" != enable ] || [ ! -e "$CALLS.broken" ] || { echo "no space left" >&2; exit 1; }
"""


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A `crontab` on PATH whose table is a file, and no systemd."""
    programs(tmp_path, monkeypatch, crontab=CRONTAB, systemctl="#!/bin/sh\nexit 1\n")
    monkeypatch.setenv("TABLE", str(tmp_path / "table"))
    return tmp_path / "table"


def programs(tmp_path, monkeypatch, **texts):
    place = tmp_path / "bin"
    place.mkdir()
    for name, text in texts.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name in (*SECRET_VARIABLES, "CLOUDGPU_LEDGER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def session(own_home):
    return open_session(os.environ)


def install(session, *, every=None, nightly=False, kind=None):
    return apply_change(session, plan_install(session, os.environ, every=every, nightly=nightly, kind=kind), os.environ)


def test_a_crontab_gets_one_job_and_keeps_every_other_byte(table, session):
    table.write_bytes(MINE)
    first = install(session)
    assert first["changed"]
    assert table.read_bytes().startswith(MINE)
    assert first["lines"][1].endswith("reap --cron")
    assert f"CLOUDGPU_HOME={session.home.root} PATH=" in first["lines"][1]
    written = table.read_bytes()
    assert not install(session)["changed"]
    assert table.read_bytes() == written
    assert install(session, every=timedelta(hours=1))["replaced"] == first["lines"]
    assert table.read_bytes().count(b"reap --cron") == 1
    (there,) = show_cron(session, os.environ)["installed"]
    assert there["table"] == "crontab"
    apply_change(session, plan_remove(session, os.environ, kind=None), os.environ)
    assert table.read_bytes() == MINE
    assert plan_remove(session, os.environ, kind=None) is None


def test_a_crontab_that_was_ours_alone_is_gone_afterwards(table, session):
    install(session)
    apply_change(session, plan_remove(session, os.environ, kind=None), os.environ)
    assert not table.exists()


def test_a_crontab_that_cannot_be_read_is_not_taken_for_an_empty_one(table, session):
    table.write_bytes(MINE)
    Path(f"{table}.broken").touch()
    with pytest.raises(InvalidRequest, match="cannot fork"):
        install(session)
    assert table.read_bytes() == MINE


def test_a_crontab_program_that_cannot_start_is_not_taken_for_an_empty_table(table, session):
    table.write_bytes(MINE)
    program = table.parent / "bin" / "crontab"
    message = "crontab: error while loading libc.so.6: No such file or directory"
    program.write_text(CRONTAB.replace("-l)", f'-l) echo "{message}" >&2; exit 127;'))
    with pytest.raises(InvalidRequest, match="error while loading"):
        install(session)
    assert table.read_bytes() == MINE


def test_busyboxs_word_for_no_crontab_is_understood(table, session):
    program = table.parent / "bin" / "crontab"
    program.write_text(CRONTAB.replace("no crontab for ada", "crontab: can't open 'ada': No such file or directory"))
    assert install(session)["changed"]


def test_a_crontab_that_cannot_be_written_is_said_and_stays(table, session):
    table.write_bytes(MINE)
    Path(f"{table}.full").touch()
    with pytest.raises(InvalidRequest, match="disk full"):
        install(session)
    assert table.read_bytes() == MINE


def test_secrets_of_the_shell_are_not_written_down_and_that_is_said(table, session, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    monkeypatch.setenv("PGPASSFILE", "/home/ada/pgpass")
    done = install(session)
    assert not any(secret in table.read_text() for secret in ("wJalr", "hunter2"))
    assert "AWS_PROFILE=lab" in table.read_text()
    assert "PGPASSFILE=/home/ada/pgpass" in table.read_text()
    assert any("PGPASSWORD" in note and "~/.pgpass" in note for note in done["notes"])
    assert any("AWS_SECRET_ACCESS_KEY is set in this shell" in note for note in done["notes"])


@pytest.mark.parametrize("url", ["http://ada:hunter2@proxy:3128", "ada:hunter2@proxy:3128"])
def test_a_proxys_password_is_not_written_down_and_that_is_said(table, session, monkeypatch, url):
    """In the command it would be in the list of processes, which every user of the computer can read."""
    monkeypatch.setenv("HTTPS_PROXY", url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    done = install(session)
    assert "hunter2" not in table.read_text()
    assert "NO_PROXY=127.0.0.1" in table.read_text()
    (note,) = done["notes"]
    assert "HTTPS_PROXY is set in this shell" in note
    assert "hunter2" not in note


@pytest.mark.parametrize("name", ["LAMBDA_API_KEY", "LAMBDA_CLOUD_API_TOKEN", "RUNPOD_API_KEY", "VAST_API_KEY"])
def test_a_clouds_key_that_only_this_shell_has_is_told_of_and_not_written_down(table, session, monkeypatch, name):
    monkeypatch.setenv(name, "hunter2")
    assert any(f"{name} is set in this shell" in note for note in install(session)["notes"])
    assert "hunter2" not in table.read_text()


@pytest.mark.parametrize("name", ["https_proxy", "HTTPS_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_the_runs_go_the_same_way_into_the_net_as_this_shell(table, session, monkeypatch, name):
    """Else no cloud answers at night, and no machine is ended."""
    monkeypatch.setenv(name, "/etc/lab.pem" if name.isupper() and "PROXY" not in name else "http://proxy:3128")
    assert install(session)["notes"] == []
    assert f"{name}={os.environ[name]}" in table.read_text()


@pytest.mark.parametrize("cloud", ["AZURE", "GCP", "LAMBDA", "RUNPOD", "VAST"])
def test_the_runs_ask_the_same_server_as_this_shell(table, session, monkeypatch, cloud):
    monkeypatch.setenv(f"CLOUDGPU_{cloud}_ENDPOINT", "http://127.0.0.1:9")
    install(session)
    assert f"CLOUDGPU_{cloud}_ENDPOINT=http://127.0.0.1:9" in table.read_text()


def test_a_ledger_that_only_this_shell_knows_is_refused(table, session, monkeypatch):
    monkeypatch.setenv("CLOUDGPU_LEDGER", "postgresql://ada:secret@127.0.0.1/lab")
    with pytest.raises(InvalidRequest) as fault:
        install(session)
    assert fault.value.field == "CLOUDGPU_LEDGER"
    assert "secret" not in str(fault.value.as_dict())
    assert not table.exists()


def test_the_sweep_alone_has_no_interval(table, session):
    with pytest.raises(InvalidRequest, match="once a night"):
        install(session, nightly=True, every=timedelta(hours=1))
    assert install(session, nightly=True)["lines"][1].endswith("reap --cron --nightly --every 24h")


def test_show_names_each_line_that_helps_nobody_and_the_way_out(table, session, tmp_path):
    home, other = session.home.root, tmp_path / "other"
    other.mkdir()
    install(session)
    mine = table.read_text()
    job = f"1 * * * * CLOUDGPU_HOME=/gone {sys.executable} -m cloudgpu reap"
    gone = f"# cloudgpu begin: /gone (cloudgpu cron remove takes it out)\n{job}\n# cloudgpu end: /gone\n"
    table.write_text(
        f"{mine}{gone}CLOUDGPU_HOME={home}\n"
        "5 4 * * * /usr/bin/true cloudgpu is no program here\n"
        "@daily CLOUDGPU_HOME='/it is gone' cloudgpu reap\n"
        "0 * * * * PATH=/nowhere cloudgpu reap % CLOUDGPU_HOME=/x\n"
        f"0 * * * * CLOUDGPU_LEDGER=sqlite:///gone/ledger.db {sys.executable} -m cloudgpu reap\n"
        f"0 * * * * cd / && CLOUDGPU_HOME={other} {sys.executable} -m cloudgpu reap --cron\n"
    )
    found = [(one["why"], one["next"]) for one in show_cron(session, os.environ)["stale"]]
    interactive = "Take the line out: crontab -e"
    assert found == [
        ("its home /gone is not there", "Run: CLOUDGPU_HOME=/gone cloudgpu cron remove"),
        ("its home /it is gone is not there", interactive),
        ("its program cloudgpu is not there", interactive),
        (
            "there is no ledger at /gone/ledger.db",
            "Take CLOUDGPU_LEDGER out of the line, or name the new place in it: crontab -e",
        ),
        (f"it looks after another home, {other}", f"Look there: CLOUDGPU_HOME={other} cloudgpu cron show"),
    ]
    away = open_session(os.environ | {"CLOUDGPU_HOME": "/gone"})
    apply_change(away, plan_remove(away, os.environ, kind=None), os.environ)
    assert gone not in table.read_text()
    assert not Path("/gone").exists()
    table.write_text(mine.replace(sys.executable, "/gone/python"))
    (stale,) = show_cron(session, os.environ)["stale"]
    assert stale["why"] == "its program /gone/python is not there"
    assert stale["next"] == f"Run: CLOUDGPU_HOME={home} cloudgpu cron install (or cron remove)"


def test_a_home_of_the_programs_name_is_not_taken_for_the_program(table, tmp_path):
    home = tmp_path / ".local" / "share" / "cloudgpu"
    home.mkdir(parents=True)
    session = open_session(os.environ | {"CLOUDGPU_HOME": str(home)})
    install(session)
    assert show_cron(session, os.environ)["stale"] == []


@pytest.fixture
def timers(tmp_path, monkeypatch):
    """A systemd of the user that takes every call, and no crontab; PATH has nothing else."""
    programs(tmp_path, monkeypatch, systemctl=SYSTEMCTL, loginctl="#!/bin/sh\necho Linger=no\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path


def test_without_a_crontab_a_systemd_timer_is_written_and_started(timers, session):
    done = install(session)
    assert done["table"] == "systemd"
    names = sorted(path.name for path in (timers / ".config" / "systemd" / "user").iterdir())
    assert [name.rpartition(".")[2] for name in names] == ["service", "timer"]
    calls = (timers / "calls").read_text()
    assert f"--user restart {names[1]}" in calls
    assert f"--user enable {names[1]}" in calls
    assert any("loginctl enable-linger" in note for note in done["notes"])
    assert not install(session)["changed"]
    assert show_cron(session, os.environ)["stale"] == []
    (service,) = (timers / ".config" / "systemd" / "user").glob("*.service")
    other = service.with_name("other.service")
    other.write_text(service.read_text().replace(str(session.home.root), "/gone"))
    (stale,) = show_cron(session, os.environ)["stale"]
    other.unlink()
    assert (stale["table"], stale["why"]) == ("systemd", "its home /gone is not there")
    apply_change(session, plan_remove(session, os.environ, kind=None), os.environ)
    assert list((timers / ".config" / "systemd" / "user").iterdir()) == []
    assert f"--user disable --now {names[1]}" in (timers / "calls").read_text()


def test_a_timer_that_systemd_does_not_take_is_not_left_as_if_it_were_installed(timers, session):
    broken = timers / "calls.broken"
    broken.touch()
    with pytest.raises(InvalidRequest, match=r"systemctl --user enable .* refused"):
        install(session)
    assert show_cron(session, os.environ)["installed"] == []
    assert list((timers / ".config" / "systemd" / "user").iterdir()) == []
    broken.unlink()
    first = install(session)
    broken.touch()
    with pytest.raises(InvalidRequest, match=r"systemctl --user enable .* refused"):
        install(session, every=timedelta(hours=1))
    (there,) = show_cron(session, os.environ)["installed"]
    assert there["lines"] == first["lines"]


def test_a_place_that_is_not_there_is_left_out_where_there_is_another(table, session):
    with pytest.raises(InvalidRequest) as fault:
        install(session, kind="systemd")
    assert fault.value.next == "Leave --systemd out, or keep a watch running: cloudgpu watch"


def test_one_home_has_one_job_in_one_place(timers, session, monkeypatch):
    install(session)
    (timers / "bin" / "crontab").write_text(CRONTAB)
    (timers / "bin" / "crontab").chmod(0o755)
    monkeypatch.setenv("PATH", f"{timers / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("TABLE", str(timers / "table"))
    with pytest.raises(InvalidRequest) as fault:
        install(session, kind="crontab")
    assert "cron remove --systemd" in str(fault.value.next)


def test_where_there_is_neither_the_way_out_is_said(tmp_path, monkeypatch, session):
    programs(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(InvalidRequest) as fault:
        install(session)
    assert "apt-get install cron" in str(fault.value.next)
    assert "cloudgpu watch" in str(fault.value.next)


@pytest.fixture
def real():
    """The crontab of whoever runs this, where it is empty: it is as it was afterwards."""
    if shutil.which("crontab") is None:
        pytest.skip("There is no crontab here: install it (Debian: apt-get install cron) to run its test.")
    if subprocess.run(["crontab", "-l"], capture_output=True, check=False).stdout:
        pytest.skip("Whoever runs this has a crontab of their own, which no test touches.")
    yield lambda: subprocess.run(["crontab", "-l"], capture_output=True, check=False).stdout
    subprocess.run(["crontab", "-r"], capture_output=True, check=False)


@pytest.mark.soak
def test_the_real_crontab_takes_our_line_and_gives_it_back(real, tmp_path):
    cloudgpu = Program(tmp_path / "it's 100% odd")
    refused = cloudgpu("cron", "install")
    assert refused.code == 2
    assert "This changes your crontab" in refused.err
    assert real() == b""
    assert cloudgpu("cron", "install", "--yes").code == 0
    assert b"reap --cron" in real()
    assert cloudgpu("cron", "show", "-o", "json").json["installed"][0]["lines"] == real().decode().splitlines()
    assert cloudgpu("cron", "remove", "--yes", "-o", "json").json["changed"]
    assert real() == b""


def test_a_pass_is_tried_in_crons_own_environment(tmp_path):
    cloudgpu = Program(tmp_path / "home", {"AWS_SECRET_ACCESS_KEY": "of the shell", "LANG": "C.UTF-8"})
    done = cloudgpu("cron", "test", "-o", "json")
    assert (done.code, done.json["error"]) == (0, None), done.err
    assert set(done.json["environment"]) == {"HOME", "LOGNAME", "PATH", "SHELL"}
    assert done.json["environment"]["PATH"] == "/usr/bin:/bin"
    assert "of the shell" not in done.out
    assert done.json["planned_actions"] == ["Nothing: no machine would be ended or warned."]
    assert [(one["account"], one["lasts_until_morning"]) for one in done.json["credentials"]] == [("local", True)]
    assert not (tmp_path / "home").exists(), "it changed something"


def test_a_program_that_has_gone_since_it_was_installed_is_found_by_the_trial(table, session):
    install(session)
    table.write_bytes(table.read_bytes().replace(sys.executable.encode(), b"/nowhere/python"))
    found = cron_test_document(session, os.environ)
    assert found["exit_code"] == 127
    assert "cloudgpu does not start there" in found["error"]["message"]
    assert "/nowhere/python" in found["command"]


def test_a_trial_that_takes_too_long_is_ended_with_all_that_it_started(monkeypatch, tmp_path):
    monkeypatch.setattr(cron_test, "TIMEOUT_S", 1)
    numbers = tmp_path / "numbers"
    command = f"sleep 300 & echo $$ $! > {numbers}; wait"
    code, report = cron_test._run_as_cron(command, {**cron_test.cron_environment(), "HOME": str(tmp_path)})
    assert (code, report["error"]["kind"]) == (ProviderUnavailable.exit_code, ProviderUnavailable.kind)
    for number in numbers.read_text().split():
        wait_for(partial(has_ended, Path(f"/proc/{number}/stat")))  # a process ends some moments after its signal


def has_ended(stat):
    """Tell by its file in /proc whether a process has ended, or only waits to be reaped."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return stat.read_text().rpartition(")")[2].split()[0] in "ZX"
    return True


@pytest.mark.soak
def test_what_would_fail_at_night_is_said_by_day(tmp_path):
    cloudgpu = Program(tmp_path / "home")
    cloudgpu.config("")
    file = tmp_path / "home" / "policies" / "budgets" / "lab.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("amount: much\nperiod: day\n")
    done = cloudgpu("cron", "test")
    assert done.code == 2
    assert "It failed with 2" in done.out
    assert "lab.yaml" in done.out
    assert "Look at the command" not in done.out


NOW = datetime(2026, 11, 20, 22, 0, tzinfo=UTC)
MORNING = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("until", "lasts", "found"),
    [
        (None, True, True),
        (None, None, None),
        (None, False, False),
        ("2026-11-21T02:00:00Z", False, False),
        ("2026-11-21T02:00:00Z", None, False),
        ("2026-11-21T10:00:00Z", False, True),
        ("2026-11-21T10:00:00Z", None, None),
    ],
)
def test_a_credential_has_to_be_good_in_the_morning(until, lasts, found):
    assert lasts_until_morning({"until": until, "lasts": lasts}, MORNING) is found


@pytest.mark.parametrize(
    ("code", "good", "ends"), [(0, True, 0), (0, None, 0), (0, False, 6), (8, False, 8), (9, True, 9)]
)
def test_the_exit_code_is_the_passes_own_before_that_of_a_credential(code, good, ends):
    assert exit_code({"exit_code": code, "credentials": [{"lasts_until_morning": good}]}) == ends


@pytest.mark.parametrize(
    ("until", "good", "said"),
    [
        (None, True, "outlives the night: a key"),
        ("2026-11-20T23:00:00Z", False, "ends 2026-11-20 23:00 UTC (in 1h), before the morning: a key"),
        (None, False, "does not outlive the night: a key"),
        (None, None, "how long it lasts is not known: a key"),
    ],
)
def test_a_credential_is_told_in_a_line(until, good, said):
    found = cron_test_text(
        {"environment": {}, "command": "x", "error": None, "exit_code": 0, "planned_actions": [],
         "morning": MORNING.isoformat(),
         "credentials": [{"account": "lab", "what": "a key", "until": until, "lasts_until_morning": good}]}, NOW
    )  # fmt: skip
    assert " ".join(found.split()).endswith(f"lab {said}")


def test_a_night_is_at_least_eight_hours_long():
    for hour in range(24):
        now = NOW + timedelta(hours=hour)
        morning = next_morning(now)
        assert timedelta(hours=8) <= morning - now < timedelta(hours=33)
        assert morning.astimezone().hour == 8


@pytest.mark.parametrize("day", [datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 10, 24, tzinfo=UTC)])
def test_the_morning_after_a_change_of_the_clocks_is_at_eight_by_the_new_time(monkeypatch, day):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        for hour in range(24):
            morning = next_morning(day + timedelta(hours=hour))
            assert morning.astimezone(ZoneInfo("Europe/Berlin")).hour == 8
    finally:
        monkeypatch.undo()
        time.tzset()


def test_tonight_says_what_ends_before_the_morning_by_which_rule_and_not_what_ends_later():
    none = dict.fromkeys(("idle", "lease", "schedule", "renew_until", "held_until"))
    three, five, noon = (f"2026-11-21T{hour}:30:00.000000Z" for hour in ("03", "05", "12"))

    def decided(name, do="keep", **more):
        usual = {"machine": name, "name": name, "do": do, "rule": "stopped", "why": "so", "at": three}
        return usual | {"state": "running", "activity": "ACTIVE"} | more

    ends = {
        "now": {},
        "quiet": {"idle": three, "lease": five, "renew_until": noon},
        "held": {"idle": three, "lease": three, "held_until": five},
        "off": {"idle": five, "schedule": three, "held_until": noon},
        "last": {"lease": noon, "renew_until": five},
        "silent": {"lease": three, "renew_until": noon},
        "later": {"idle": noon, "renew_until": noon},
        "never": {},
        "old": {"lease": noon},
        "deaf": {},
    }
    found = planned_actions(
        {
            "decisions": [
                decided("now", "stop"), *map(decided, ("quiet", "held", "off", "last")),
                decided("silent", activity="UNKNOWN"), *map(decided, ("later", "never")),
                decided("old", state="stopped"), decided("deaf", "warn", rule="none"),
            ],
            "explained": [{"machine": name, "ends": none | some} for name, some in ends.items()],
            "unanswered": [{"scope": "aws/eu-west-3", "why": "it timed out"}],
            "errors": [],
        },
        MORNING,
    )  # fmt: skip
    assert found == [
        "now: stop now (stopped): so",
        "quiet: ended at 2026-11-21 03:30 UTC unless it is used (idle): so",
        "held: ended at 2026-11-21 05:30 UTC unless it is used (idle): so",
        "off: ended at 2026-11-21 03:30 UTC, whoever uses it (schedule): so",
        "last: ended at 2026-11-21 05:30 UTC, whoever uses it (renew-until): so",
        "old: ended at 2026-11-21 03:30 UTC (stopped): so",
        "deaf: warn now: so",
        "aws/eu-west-3 does not answer: it timed out",
    ]


@pytest.fixture
def unwatched(tmp_path, monkeypatch):
    """A home whose machine runs since thirty hours, with no pass ever; the clouds are made up."""
    plugin = write_plugin(tmp_path / "plugin", {"fake": FAKE})
    monkeypatch.syspath_prepend(plugin)
    path = f"{plugin}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    cloudgpu = QuickProgram(tmp_path / "home", {"PYTHONPATH": path}, shared())
    cloudgpu.config(f'provider = "fake"\n[accounts.lab]\nprovider = "fake"\nstate_file = "{tmp_path / "cloud.json"}"\n')
    clock = ManualClock(datetime.now(UTC) - timedelta(hours=30))
    session = open_session({"CLOUDGPU_HOME": str(cloudgpu.home), "USER": "ada"}, clock=clock)
    session.pause = clock.advance
    launch(session, prepare(session, UpRequest(Requirements(gpu="v100"))), wait=False)
    session.ledger.close()
    return cloudgpu


@pytest.mark.soak
def test_every_verb_says_that_nothing_looks_after_the_machines(unwatched):
    for words in ("ls", "budget ls", "regions --provider fake"):
        done = unwatched(*words.split(), "-o", "json")
        assert done.code == 0
        assert done.json is not None
        assert done.err.count("No run of the reaper has succeeded yet, and a machine runs") == 1
        assert "cloudgpu cron install" in done.err


def test_what_makes_passes_does_not_say_so_of_itself(unwatched):
    done = unwatched("cron", "show")
    assert (done.code, done.err) == (0, "")


def test_the_module_stands_in_for_a_program_that_has_no_name_of_its_own(monkeypatch):
    from cloudgpu.control.scheduler.cron import program_argv

    monkeypatch.setattr(sys, "argv", ["/somewhere/pytest"])
    assert program_argv() == (sys.executable, "-m", "cloudgpu")
