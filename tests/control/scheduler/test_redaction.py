"""A job's line is shown without what is secret in it, however the secret is spelled."""

from __future__ import annotations

import pytest

from cloudgpu.control.scheduler import stale_lines as cron_stale

PROGRAM = "/opt/cloudgpu reap"
SHOWN = "CLOUDGPU_LEDGER=postgresql://"


class Table:
    """A table of jobs with one text."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind, self._text = kind, text

    def text(self) -> str:
        return self._text


def shown(monkeypatch: pytest.MonkeyPatch, kind: str, text: str) -> str:
    monkeypatch.setattr(cron_stale, "find_tables", lambda _: [Table(kind, text)])
    (entry,) = cron_stale.find_scheduled_commands({})
    return entry.line


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("crontab", r'0 * * * * CLOUDGPU_LEDGER="postgresql://ann:p\%40ss@db/lab?sslmode=require" /opt/cloudgpu reap'),
        ("crontab", r"0 * * * * CLOUDGPU_LEDGER='postgresql://ann:p\%40ss@db/lab' /opt/cloudgpu reap"),
        ("crontab", r"0 * * * * CLOUDGPU_LEDGER=postgresql://ann:p\%40ss@db/lab /opt/cloudgpu reap"),
        (
            "crontab",
            r"0 * * * * env 'CLOUDGPU_LEDGER=postgresql://db/lab?user=ann&password=p\%40ss' /opt/cloudgpu reap",
        ),
        ("systemd", "ExecStart=/usr/bin/env CLOUDGPU_LEDGER=postgresql://ann:p%%40ss@db/lab /opt/cloudgpu reap"),
        ("systemd", 'ExecStart=/usr/bin/env "CLOUDGPU_LEDGER=postgresql://ann:p%%40ss@db/lab" /opt/cloudgpu reap'),
    ],
)
def test_the_ledgers_url_is_shown_without_its_password(monkeypatch, kind, text):
    line = shown(monkeypatch, kind, text)
    assert "ss" not in line.replace("sslmode", "")
    assert SHOWN in line
    assert "db/lab" in line
    assert line.endswith(f" {PROGRAM}")
    assert line.startswith(text.partition("CLOUDGPU")[0].rstrip("'\""))


@pytest.mark.parametrize("name", ["PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "CLOUDGPU_ALERTS", "MY_TOKEN"])
@pytest.mark.parametrize("value", ["s3cr3t", "'s3cr3t two'", '"s3cr3t"', r"s3cr\3t", "s3c'r3t'"])
def test_a_secret_before_the_command_is_stars(monkeypatch, name, value):
    line = shown(monkeypatch, "crontab", f"*/5 * * * * A=1 {name}={value} {PROGRAM} 2>&1 | logger -t it")
    assert line == f"*/5 * * * * A=1 {name}=*** {PROGRAM} 2>&1 | logger -t it"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"PGPASSWORD=s3cr3t\n0 * * * * {PROGRAM} --note s3cr3t", "***"),
        ("0 * * * * sh -c 'PGPASSWORD=s3cr3t /opt/cloudgpu'", "0 * * * * sh -c PGPASSWORD=***"),
        (
            "0 * * * * sh -c 'CLOUDGPU_LEDGER=postgresql://db/lab PGPASSWORD=s3cr3t /opt/cloudgpu'",
            "0 * * * * sh -c ***",
        ),
        (f"0 * * * * HTTPS_PROXY=http://ann:s3cr3t@proxy {PROGRAM}", f"0 * * * * *** {PROGRAM}"),
        (f"0 * * * * PGPASSFILE=/home/ann/.pgpass {PROGRAM}", f"0 * * * * PGPASSFILE=/home/ann/.pgpass {PROGRAM}"),
    ],
)
def test_a_secret_that_stands_elsewhere_is_not_shown_either(monkeypatch, text, expected):
    assert shown(monkeypatch, "crontab", text) == expected
