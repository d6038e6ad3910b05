"""The verbs about jobs, typed: real processes, a machine of this computer that is there, and one that is launched."""

from __future__ import annotations

import os
import pty
import re
import signal
import sqlite3
import subprocess
import threading
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from cloudgpu.cli.jobs.logs import _parse_time
from cloudgpu.cli.jobs.run import WriteOnce, order_arguments
from cloudgpu.errors import InvalidRequest
from tests.cli.many import QuickProgram
from tests.cli.program import until

TICKS = "i=0; while [ $i -lt 600 ]; do echo tick $i; echo warn $i >&2; i=$((i+1)); sleep 0.1; done"
PLANTED = "pl4nted-s3cret"


@pytest.fixture(scope="module")
def desk(tmp_path_factory, many):
    """A home with a machine of this computer that is there, and a directory with a program."""
    root = tmp_path_factory.mktemp("desk")
    program = QuickProgram(root / "home", many=many)
    program.work = root / "work"
    program.work.mkdir()
    (program.work / "ticks.sh").write_text(TICKS)
    (program.work / "requirements.txt").touch()
    (program.work / ".env").write_text(f"TOKEN={PLANTED}\n")
    done = program("up", "--provider", "local", "--template", "bare", "--name", "desk", "--yes")
    assert done.code == 0, done.err
    yield program
    program("down", "--all", "--yes", timeout=120)


def run(desk, *words, on="desk", **more):
    return desk("run", "--on", on, "--workdir", str(desk.work), *words, **more)


def begun(desk, name, *words):
    """Begin a job that ticks for a minute, and leave it to itself."""
    done = run(desk, *words, "--detach", name, "--", "bash", "ticks.sh")
    assert done.code == 0, done.err
    return done


@pytest.mark.soak
@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -SEGV $$", 139)])
def test_run_prints_what_the_command_prints_and_exits_as_it_did(desk, script, code):
    done = run(desk, "--", "sh", "-c", f"echo out; echo err >&2; {script}")
    assert (done.code, done.out) == (code, "out\n")
    assert "err\n" in done.err
    assert "has failed" in done.err


def test_words_after_the_dashes_are_the_commands_own(desk):
    done = run(desk, "words", "--", "sh", "-c", 'printf "%s|" "$@"', "x", "--on", "--help", "-o", "json", "--", "")
    assert (done.code, done.out) == (0, "--on|--help|-o|json|--||")


def test_results_come_back_under_the_jobs_name_and_show_says_where(desk):
    done = run(desk, "wins", "--", "sh", "-c", 'mkdir -p "$CLOUDGPU_RESULTS"; echo 42 > "$CLOUDGPU_RESULTS/answer"')
    assert done.code == 0, done.err
    assert (desk.work / "results" / "wins" / "answer").read_text() == "42\n"
    shown = desk("show", "wins", "-o", "json").json
    assert shown["results"]["directory"] == str(desk.work / "results" / "wins")
    assert (shown["exit"]["code"], shown["exit"]["by"], shown["machine"]["own"]) == (0, "command", False)
    text = desk("show", "wins").out
    assert "succeeded" in text
    assert "1 file, 3 B" in text
    refused = desk("show", "wins", "--why")
    assert (refused.code, "--why is about machines, and wins is a job" in refused.err) == (2, True)


def test_the_plan_says_what_travels_what_stays_and_what_happens_asleep(desk):
    before = desk("jobs", "--all", "-o", "json").json["jobs"]
    done = run(desk, "--timeout", "2h", "--max-cost", "5", "--dry-run", "--env", "HF_TOKEN=x", "--", "bash", "ticks.sh")
    text = " ".join(done.out.split())
    assert done.code == 0, done.err
    for words in (
        "machine desk, which is there (local), and stays",
        "costs at most $5.00 (--max-cost)",
        "timeout its command is ended after 2h",
        "upload 2 files",
        "secrets .env: by their names, it stays here",
        "it keeps running; cloudgpu watch or reap here fetches its results",
        "requirements.txt is there and nothing installs it: add --setup 'pip install -r requirements.txt'",
        "the ledger keeps the value of --env HF_TOKEN; --secret HF_TOKEN is kept nowhere",
    ):
        assert words in text
    assert PLANTED not in done.out
    assert desk("jobs", "--all", "-o", "json").json["jobs"] == before


@pytest.mark.soak
def test_a_job_that_was_detached_is_listed_read_attached_to_and_cancelled(desk):
    done = begun(desk, "far")
    assert done.out == ""
    for words in ("cloudgpu logs -f far", "cloudgpu cancel far", "cloudgpu watch"):
        assert words in done.err
    (listed,) = desk("jobs", "-o", "json").json["jobs"]
    assert (listed["name"], listed["state"], listed["machine"]["name"]) == ("far", "running", "desk")
    assert "far" in desk("jobs").out
    read = desk("logs", "far")
    assert read.out.startswith("tick 0\ntick 1\n")
    assert "warn 0\n" in read.err
    other = run(desk, "far", "--", "true")
    assert other.code == 2
    assert "The job far is running with another command" in other.err
    busy = run(desk, "near", "--", "true")
    assert (busy.code, "desk is busy: the job far runs on it" in busy.err) == (2, True)
    asked = desk("cancel", "far")
    assert (asked.code, "Add --yes" in asked.err) == (2, True)
    cancelled = desk("cancel", "far", "--yes", "-o", "json").json
    assert (cancelled["was_over"], cancelled["waits"], cancelled["job"]["state"]) == (False, None, "cancelled")
    again = desk("cancel", "far", "--yes")
    assert (again.code, again.out) == (0, "far is over already: cancelled.\n")
    assert desk("jobs").out == "No job is running. Those that are over: cloudgpu jobs --all\n"
    assert desk("logs", "-f", "far").out.startswith("tick 0\n")


@pytest.mark.soak
def test_ctrl_c_without_a_terminal_leaves_the_job_running_and_says_how_to_follow_it(desk):
    process = desk.start("run", "--on", "desk", "--workdir", str(desk.work), "left", "--", "bash", "ticks.sh")
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, first) == (130, b"tick 0\n"), err
    assert b"cloudgpu logs -f left" in err
    try:
        assert desk("jobs", "-o", "json").json["jobs"][0]["state"] == "running"
    finally:
        assert desk("cancel", "left", "--yes").code == 0


class OnTerminal:
    """`run` on a terminal of this computer, at which a person types."""

    def __init__(self, desk, *words):
        self._ours, theirs = pty.openpty()
        argv = desk.argv("run", "--on", "desk", "--workdir", str(desk.work), *words)
        self.process = subprocess.Popen(
            argv, stdin=theirs, stdout=theirs, stderr=theirs, env=desk.env(), start_new_session=True
        )
        os.close(theirs)
        self._said = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        try:
            while more := os.read(self._ours, 65536):
                self._said += more
        except OSError:  # nobody holds the other side any more
            pass

    def sees(self, words):
        assert until(lambda: words.encode() in self._said), self._said.decode(errors="replace")

    def interrupts(self):
        self.process.send_signal(signal.SIGINT)

    def types(self, text):
        os.write(self._ours, text.encode())

    def ends(self):
        code = self.process.wait(timeout=60)
        self._reader.join(10)
        os.close(self._ours)
        return code, self._said.decode(errors="replace").replace("\r\n", "\n")


@pytest.mark.soak
def test_ctrl_c_asks_and_a_job_that_is_cancelled_ends_with_each_line_shown_once(desk):
    person = OnTerminal(desk, "asked", "--", "bash", "ticks.sh")
    person.sees("tick 3")
    person.interrupts()
    person.sees("[c]ancel it?")
    person.types("what\n")
    person.types("c\n")
    code, text = person.ends()
    assert code == 143, text
    assert "asked was cancelled" in text
    ticks = [int(number) for number in re.findall(r"tick (\d+)\n", text)]
    assert ticks == list(range(len(ticks)))
    assert desk("jobs", "-o", "json").json["jobs"] == []


@pytest.mark.soak
def test_a_second_ctrl_c_detaches(desk):
    person = OnTerminal(desk, "twice", "--", "bash", "ticks.sh")
    person.sees("tick 1")
    person.interrupts()
    person.sees("[c]ancel it?")
    person.interrupts()
    code, text = person.ends()
    assert (code, "cloudgpu logs -f twice" in text) == (130, True)
    assert desk("jobs", "-o", "json").json["jobs"][0]["name"] == "twice"
    assert desk("cancel", "twice", "--yes").code == 0


@contextmanager
def unreadable_ledger(desk):
    """Take the ledger's lines out of reach of every process, and give them back afterwards."""
    (path,) = desk.home.rglob("ledger.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as ledger:
        ledger.execute("ALTER TABLE line RENAME TO elsewhere")
        try:
            yield
        finally:
            ledger.execute("ALTER TABLE elsewhere RENAME TO line")


@pytest.mark.soak
@pytest.mark.parametrize(("answer", "code_then"), [("c", 255), ("d", 130)], ids=["cancel", "detach"])
def test_a_ledger_that_fails_after_ctrl_c_gives_no_code_that_the_command_may_have(desk, answer, code_then):
    name = f"unread-{answer}"
    person = OnTerminal(desk, name, "--", "bash", "ticks.sh")
    person.sees("tick 1")
    person.interrupts()
    person.sees("[c]ancel it?")
    with unreadable_ledger(desk):
        person.types(f"{answer}\n")
        code, text = person.ends()
    assert (code, "Check the disk" in text) == (code_then, True), text
    assert desk("jobs", "-o", "json").json["jobs"][0]["state"] == "running"
    assert desk("cancel", name, "--yes").code == 0


BAD = [
    (["--", "python", "nope.py"], "is not in the workdir"),
    (["train", "python", "x.py"], "has to follow --"),
    (["train"], "has to follow --"),
    ([], "There is no command to run."),
    (["--"], "There is no command to run."),
    (["--gpu", "v100", "--", "true"], "--on desk uses one that is there"),
    (["--secret", "NOT_SET_ANYWHERE", "--", "true"], "NOT_SET_ANYWHERE is not in your environment"),
    (["--port", "70000", "--", "true"], "is not a port"),
    (["--data", "ftp://b/k:data", "--", "true"], "not the address of a bucket"),
    (["--results", "..", "--", "true"], "is not a directory inside the workdir"),
    (["--retries", "many", "--", "true"], "is not a whole number"),
    (["Bad Name", "--", "true"], "cannot be a job's name"),
    (["--nonsense", "--", "true"], "--nonsense"),
]


@pytest.mark.parametrize(("words", "says"), BAD, ids=lambda one: " ".join(one) if isinstance(one, list) else "")
def test_bad_words_are_refused_before_anything_is_written(desk, words, says):
    done = run(desk, *words)
    assert (done.code, done.out) == (2, ""), done.err
    assert says in done.err


def test_nothing_that_was_refused_is_in_the_ledger(desk):
    before = len(desk("jobs", "--all", "-o", "json").json["jobs"])
    assert run(desk, "--", "python", "nope.py").code == 2
    assert run(desk, "--", "true", on="nowhere").code == 7
    assert len(desk("jobs", "--all", "-o", "json").json["jobs"]) == before


def test_an_unknown_job_is_exit_code_7(desk):
    for verb in (["logs", "nobody"], ["cancel", "nobody", "--yes"], ["show", "job:nobody"]):
        done = desk(*verb)
        assert (done.code, "No job is called 'nobody'" in done.err) == (7, True), done.err


@pytest.mark.soak
def test_a_machine_and_its_job_of_the_same_name_are_both_shown(tmp_path, many):
    program = QuickProgram(tmp_path / "home", many=many)
    (tmp_path / "work").mkdir()
    words = [
        "run",
        "--provider",
        "local",
        "--policy",
        "default",
        "--workdir",
        str(tmp_path / "work"),
        "--detach",
        "fox",
    ]
    refused = program(*words, "--", "sleep", "60")
    assert (refused.code, "Add --yes" in refused.err) == (2, True)
    try:
        assert program(*words, "--yes", "--", "sleep", "60").code == 0
        assert program("show", "fox", "-o", "json").json["provider"] == "local"
        assert program("show", "job:fox", "-o", "json").json["command"] == ["sleep", "60"]
        assert program("cancel", "fox", "--yes").code == 0
        shown = program("show", "fox", "-o", "json").json
        assert (shown["command"], shown["machine"]["own"]) == (["sleep", "60"], True)
        assert shown["machine"]["state"] == "terminated"
    finally:
        program("down", "--all", "--yes", timeout=120)


def test_a_stream_that_is_followed_again_writes_each_byte_once(tmp_path):
    with (tmp_path / "out").open("wb") as file:
        stream = WriteOnce(file.fileno())
        stream.rewound().write(b"one two ")
        again = stream.rewound()
        for part in (b"one", b" two three", b" four", b"." * 10_000):
            assert again.write(part) == len(part)
    assert (tmp_path / "out").read_bytes() == b"one two three four" + b"." * 10_000


@pytest.mark.parametrize(
    ("args", "wanted"),
    [
        (["--gpu", "v100", "--", "a", "--", "b"], ["--gpu", "v100", "--", "\0", "a", "--", "b"]),
        (["fox", "--", "a"], ["fox", "--", "\0", "a"]),
        (["fox", "a"], ["fox", "a"]),
    ],
)
def test_the_command_begins_at_the_first_dashes(args, wanted):
    assert order_arguments(args) == wanted


def test_since_is_a_duration_or_a_time():
    now = datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert _parse_time("10m", now) == now - timedelta(minutes=10)
    assert _parse_time("2026-11-20T12:00+01:00", now) == now - timedelta(hours=1)
    with pytest.raises(InvalidRequest, match="neither a duration nor a time"):
        _parse_time("yesterday", now)
