"""What stands in a crontab: our block and nothing else changes, and /bin/sh gets what was meant."""

from __future__ import annotations

import configparser
import shlex
import subprocess
from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from cloudgpu.control.scheduler.crontab_text import (
    MAX_COMMAND_LENGTH,
    CronJob,
    check_every,
    crontab_block,
    crontab_line,
    find_block,
    installed_command,
    shell_command,
    systemd_calendar,
    unit_files,
    with_block,
    without_block,
)
from cloudgpu.core.values.times import parse_duration
from cloudgpu.errors import InvalidRequest

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
HOME = "/home/ada/.local/share/cloudgpu"


def job(home=HOME, program=("/usr/bin/cloudgpu",), *, every=10 * MINUTE, nightly=False, **more):
    return CronJob(program, {"CLOUDGPU_HOME": home, "PATH": "/usr/bin:/bin", **more}, every, nightly)


def as_cron_runs(line):
    """The command as Vixie cron gives it to /bin/sh: an escaped % is a %, a bare one would end it."""
    command = line.split(maxsplit=5)[5]
    pieces = command.split("\\%")
    assert not any("%" in piece for piece in pieces)
    return "%".join(pieces)


lines = st.lists(st.binary(max_size=30).map(lambda text: text.replace(b"\n", b"")), max_size=6)
paths = st.text(st.characters(exclude_categories=("C",), exclude_characters="\\\u2028\u2029"), min_size=1, max_size=20)


@given(lines, lines, st.sampled_from([HOME, "/x y/100%"]))
def test_all_else_of_the_crontab_stays_byte_for_byte(above, below, home):
    wanted = crontab_block(job(home))
    table = b"".join(line + b"\n" for line in above)
    installed = with_block(table, home, wanted) + b"".join(line + b"\n" for line in below)
    assert find_block(installed, home) == wanted
    assert with_block(installed, home, wanted) == installed
    assert without_block(installed, home) == table + b"".join(line + b"\n" for line in below)
    assert with_block(without_block(installed, home), home, wanted).count(wanted.encode()) == 1


def test_a_block_is_changed_in_its_place():
    first = b"MAILTO=ada\n" + crontab_block(job()).encode() + b"5 * * * * true\n"
    other = crontab_block(job(every=30 * MINUTE))
    changed = with_block(first, HOME, other)
    assert changed == b"MAILTO=ada\n" + other.encode() + b"5 * * * * true\n"


def test_two_homes_have_a_block_each():
    both = with_block(with_block(b"", "/a", crontab_block(job("/a"))), "/b", crontab_block(job("/b")))
    assert without_block(both, "/a") == crontab_block(job("/b")).encode()
    assert find_block(without_block(both, "/b"), "/a") == crontab_block(job("/a"))


def test_a_block_without_its_end_is_not_guessed_at():
    torn = b"".join(crontab_block(job()).encode().splitlines(keepends=True)[:2]) + b"5 * * * * mine\n"
    for change in (lambda: without_block(torn, HOME), lambda: with_block(torn, HOME, crontab_block(job()))):
        with pytest.raises(InvalidRequest, match="it was changed by hand"):
            change()


@given(paths, paths)
def test_spaces_percents_and_quotes_in_paths_reach_the_program(home, program):
    line = crontab_line(job(f"/{home}", (f"/{program}",)))
    words = shlex.split(as_cron_runs(line))
    assert words == [f"CLOUDGPU_HOME=/{home}", "PATH=/usr/bin:/bin", f"/{program}", "reap", "--cron"]


def test_the_shell_runs_it_as_it_was_meant(tmp_path):
    odd = tmp_path / 'it\'s 100% "odd" $HOME'
    odd.mkdir()
    program = odd / "prog"
    program.write_text('#!/bin/sh\nprintf "%s|%s|%s" "$CLOUDGPU_HOME" "$1" "$2"\n')
    program.chmod(0o755)
    line = crontab_line(job(str(odd), (str(program),)))
    done = subprocess.run(["/bin/sh", "-c", as_cron_runs(line)], env={}, capture_output=True, text=True, check=True)
    assert done.stdout == f"{odd}|reap|--cron"


@pytest.mark.parametrize("bad", ["/a\\b", "/a\nb", "/a\x07b"])
def test_what_cron_would_read_otherwise_is_refused(bad):
    with pytest.raises(InvalidRequest) as fault:
        crontab_line(job(bad))
    assert fault.value.field == "CLOUDGPU_HOME"


def test_a_command_longer_than_cron_takes_is_refused_with_the_way_out():
    with pytest.raises(InvalidRequest) as fault:
        crontab_line(job(PATH="/é" * (MAX_COMMAND_LENGTH // 3)))  # cron counts bytes
    assert fault.value.field == "PATH"
    assert "cloudgpu cron install" in str(fault.value.next)


@pytest.mark.parametrize(
    ("every", "minutes"),
    [(MINUTE, 1440), (10 * MINUTE, 144), (30 * MINUTE, 48), (HOUR, 24), (6 * HOUR, 4), (24 * HOUR, 1)],
)
def test_a_day_has_as_many_passes_as_were_asked_for(every, minutes):
    check_every(every)
    assert len(moments(crontab_line(job(every=every)))) == minutes


@pytest.mark.parametrize(("every", "said"), [(30 * MINUTE, "30m"), (HOUR, "1h"), (24 * HOUR, "1d")])
def test_a_pass_knows_how_often_it_comes(every, said):
    assert crontab_line(job(every=every)).endswith(f"reap --cron --every {said}")
    assert parse_duration(said) == every


def moments(line):
    """The minutes of a day at which a line of a crontab runs, by crontab(5)."""
    minute, hour, *rest = line.split()[:5]
    assert rest == ["*", "*", "*"]
    return [(h, m) for h in field(hour, 24) for m in field(minute, 60)]


def field(text, size):
    span, _, step = text.partition("/")
    low, _, high = span.partition("-")
    if span == "*":
        low, high = "0", str(size - 1)
    return list(range(int(low), int(high or low) + 1, int(step or 1)))


@pytest.mark.parametrize("every", [7 * MINUTE, 90 * MINUTE, timedelta(seconds=90), 48 * HOUR, timedelta(seconds=30)])
def test_what_does_not_divide_an_hour_or_a_day_is_refused(every):
    with pytest.raises(InvalidRequest) as fault:
        check_every(every)
    assert fault.value.field == "--every"


def test_not_all_homes_call_at_the_same_minute():
    assert len({crontab_line(job(f"/{n}")).split()[0] for n in range(50)}) > 5


def test_the_nightly_sweep_is_asked_for_every_hour_so_that_a_night_asleep_is_made_up_for():
    line = crontab_line(job(nightly=True))
    assert len(moments(line)) == 24
    assert line.endswith("reap --cron --nightly --every 24h")


def test_a_timer_catches_up_and_says_the_same_command():
    wanted = job("/x y/100%", ("/opt/my apps/cloudgpu",), AWS_PROFILE='la"b')
    files = unit_files(wanted)
    timer, service = (parsed(next(text for name, text in files.items() if name.endswith(end)))
                      for end in (".timer", ".service"))  # fmt: skip
    assert timer["Timer"]["Persistent"] == "true"
    assert timer["Timer"]["OnCalendar"] == systemd_calendar(wanted)
    assert timer["Install"]["WantedBy"] == "timers.target"
    assert words(service["Service"]["ExecStart"]) == ["/opt/my apps/cloudgpu", "reap", "--cron"]
    assert words(service["Service"]["Environment"])[0] == "CLOUDGPU_HOME=/x y/100%"
    assert words(service["Service"]["Environment"])[2] == 'AWS_PROFILE=la"b'


@given(paths, paths, st.booleans(), st.sampled_from([10 * MINUTE, HOUR]))
def test_what_is_installed_can_be_tried_as_it_stands(home, program, nightly, every):
    wanted = job(f"/{home}", (f"/{program}", "-m", "cloudgpu"), every=every, nightly=nightly, AWS_PROFILE="la b")
    tried = shell_command(wanted, ["cron", "test"])
    assert installed_command(crontab_block(wanted), ["cron", "test"]) == tried
    assert installed_command("".join(unit_files(wanted).values()), ["cron", "test"]) == tried


def test_a_line_that_somebody_has_rewritten_is_not_tried():
    assert installed_command("# cloudgpu begin\n4 * * * * mine\n# cloudgpu end\n", ["cron", "test"]) is None
    assert installed_command("# nothing\n", ["cron", "test"]) is None


def parsed(text):
    found = configparser.RawConfigParser()
    found.optionxform = str
    found.read_string(text)
    return found


def words(text):
    """The words of a unit's line, by systemd.syntax(7): C-like quotes, and %% for a percent."""
    return [word.replace("%%", "%") for word in shlex.split(text)]


@pytest.mark.parametrize(
    ("every", "nightly", "found"),
    [(10 * MINUTE, False, r"\*:0\d/10"), (HOUR, False, r"\*:0\d"), (6 * HOUR, False, r"00/6:0\d"),
     (24 * HOUR, False, r"03:0\d"), (10 * MINUTE, True, r"\*:0\d")],
)  # fmt: skip
def test_a_calendar_is_written_as_systemd_reads_it(every, nightly, found):
    import re

    assert re.fullmatch(found, systemd_calendar(job(every=every, nightly=nightly)))
