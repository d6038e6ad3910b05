"""Which scheduled jobs run cloudgpu, and which of these name a program that is not there."""

from __future__ import annotations

import os

import pytest

from cloudgpu.cli.verbs import VERBS
from cloudgpu.control.outage.opening import open_session
from cloudgpu.control.scheduler.stale_lines import find_scheduled_commands, find_stale_lines

# `crontab -l` prints the file beside it; systemd has this user's units, and answers.
PROGRAMS = {"crontab": '#!/bin/sh\ncat "${0%/*}/table"\n', "systemctl": "#!/bin/sh\n", "cloudgpu": "#!/bin/sh\n"}


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """A function that stores lines of a crontab and of a service's section, and returns the session's environment."""
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    units = tmp_path / "systemd" / "user"
    units.mkdir(parents=True)

    def store(crontab=(), service=()):
        home = f"CLOUDGPU_HOME={os.environ['CLOUDGPU_HOME']}"
        (tmp_path / "table").write_text("".join(f"{line}\n" for line in (home, *crontab)))
        (units / "mine.service").write_text("\n".join(("[Service]", f"Environment={home}", *service)))
        return dict(os.environ)

    return store


def programs(environ):
    return [scheduled.program for scheduled in find_scheduled_commands(environ)]


def faults(environ):
    return [stale["why"] for stale in find_stale_lines(open_session(environ), environ)]


@pytest.mark.parametrize(
    "command",
    [
        "cd /srv/cloudgpu && make",
        "rsync -a /data /backup/cloudgpu",
        "rsync -a /srv/cloudgpu /backup/",
        "tar -C /srv/cloudgpu -czf /backup/it.tgz .",
        "du -s /srv/cloudgpu | mail ada",
        "ls -l /srv/cloudgpu > /tmp/list",
        "rsync -a /home/ada/cloudgpu backup",
        "tar -czf /backup/it.tgz /srv/cloudgpu data",
    ],
)
def test_a_directory_of_the_programs_name_is_not_the_program(tables, command):
    assert programs(tables([f"0 * * * * {command}"])) == []


@pytest.mark.parametrize(
    "command",
    [
        "/opt/cloudgpu",
        "cd /srv/cloudgpu && /opt/cloudgpu reap",
        "timeout 600 /opt/cloudgpu reap",
        "flock -n /tmp/lock /opt/cloudgpu -o json reap 2>&1",
        "env A=1 /opt/cloudgpu",
        "sh -c /opt/cloudgpu",
    ],
)
def test_a_program_is_found_behind_what_runs_it(tables, command):
    assert programs(tables([f"0 * * * * {command}"])) == ["/opt/cloudgpu"]


@pytest.mark.parametrize("verb", VERBS)
def test_behind_what_runs_it_a_program_is_known_by_every_verb(tables, verb):
    assert programs(tables([f"0 * * * * timeout 600 /opt/cloudgpu {verb}"])) == ["/opt/cloudgpu"]


@pytest.mark.parametrize(
    "command",
    [
        "~/bin/cloudgpu reap",
        "cd /srv && bin/cloudgpu reap",
        "PATH=$HOME/bin:$PATH cloudgpu reap",
        "PATH=~/bin cloudgpu reap",
    ],
)
def test_a_program_whose_place_only_the_shell_knows_is_not_said_to_be_gone(tables, command):
    assert faults(tables([f"0 * * * * {command}"])) == []


def test_cron_expands_no_variable_in_its_own_assignments(tables):
    """crontab(5): "the value string is not parsed for environmental substitutions or replacement of variables"."""
    assert faults(tables(["PATH=$HOME/bin", "0 * * * * cloudgpu reap"])) == ["its program cloudgpu is not there"]


@pytest.mark.parametrize("prefix", ["-", "@", ":", "+", "!", "!!", "-+"])
def test_systemds_prefixes_are_no_part_of_the_program(tables, tmp_path, prefix):
    environ = tables(service=[f"ExecStart={prefix}{tmp_path}/cloudgpu reap"])
    assert programs(environ) == [f"{tmp_path}/cloudgpu"]
    assert faults(environ) == []


def test_a_comment_with_blanks_before_it_is_no_job(tables):
    assert programs(tables(["  # 0 * * * * /opt/cloudgpu reap", "\t#0 * * * * /opt/cloudgpu reap"])) == []
