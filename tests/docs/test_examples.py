"""The examples run as they are written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from configparser import RawConfigParser
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
import yaml

from tests.cli.machines import test_templates
from tests.cli.program import until
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.aws.plain import client

__all__ = ["aws", "aws_process"]

EXAMPLES = Path(__file__).parents[2] / "examples"
TESTED = {
    "aws-keras.sh",
    "crontab",
    "d2l.sh",
    "first-notebook.sh",
    "first_notebook.py",
    "nightly_report.py",  # these in test_library_page.py
    "own_machine.ipynb",
    "reap-github.yml",
    "spend.sh",
    "sweep.py",
    "sweep_jobs.py",
    "watch.service",
}


@pytest.fixture
def environ(tmp_path):
    """A `cloudgpu` on PATH that is this checkout's, and a place of its own for everything an example makes."""
    place = tmp_path / "bin"
    place.mkdir()
    program = place / "cloudgpu"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cloudgpu "$@"\n')
    program.chmod(0o755)
    (tmp_path / "made").mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("CLOUDGPU_")}
    return kept | {"PATH": f"{place}:{kept['PATH']}", "TMPDIR": str(tmp_path / "made"), "HOME": str(tmp_path)}


site = test_templates.site  # a web server on loopback


@pytest.fixture
def at_home(environ, own_home):
    """The same, with a home that outlives the example; what an example that was cut short has left is ended."""
    environ |= {"CLOUDGPU_HOME": str(own_home)}
    yield environ
    subprocess.run(["cloudgpu", "down", "--all", "--yes"], env=environ, capture_output=True, check=False)


def run(example: str, environ: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable if example.endswith(".py") else "sh", str(EXAMPLES / example), *words]
    still = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    return subprocess.run(argv, env=environ, **still, timeout=100, check=False)


def processes_in(place: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if place in " ".join([*process.cmdline(), *process.environ().values()]):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_the_first_notebook_is_opened_and_nothing_is_left(environ):
    done = run("first-notebook.sh", environ)
    assert done.returncode == 0, done.stderr
    assert "Jupyter on notebook:\nhttp://127.0.0.1:" in done.stdout
    assert "hello.ipynb" in done.stdout
    assert "notebook is gone" in done.stdout
    assert list(Path(environ["TMPDIR"]).iterdir()) == []
    assert until(lambda: not processes_in(environ["TMPDIR"])), "a process of the example lives on"


@pytest.mark.soak  # many seconds
def test_a_command_that_fails_ends_the_machine_too(environ, tmp_path):
    broken = tmp_path / "broken.sh"
    broken.write_text((EXAMPLES / "first-notebook.sh").read_text().replace("-- ls", "-- sh -c 'exit 7'"))
    done = run(str(broken), environ)
    assert done.returncode == 7, done.stderr
    assert "notebook is gone" in done.stdout
    assert list(Path(environ["TMPDIR"]).iterdir()) == []


def test_spend_is_one_line_of_json(environ, own_home):
    done = run("spend.sh", environ | {"CLOUDGPU_HOME": str(own_home)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert Decimal(json.loads(done.stdout)["total_usd"]) == 0


def test_a_spend_that_fails_says_so(environ, own_home):
    (own_home / "config.toml").write_text("lease = 8")
    done = run("spend.sh", environ | {"CLOUDGPU_HOME": str(own_home)})
    assert (done.returncode, done.stdout) == (2, "")


def nothing_is_left(environ):
    said = subprocess.run(["cloudgpu", "ls", "-o", "json"], env=environ, capture_output=True, text=True, check=True)
    home = environ["CLOUDGPU_HOME"]
    return json.loads(said.stdout)["machines"] == [] and until(lambda: not processes_in(home))


def test_the_first_notebook_in_python_says_hello_and_leaves_nothing(at_home):
    done = run("first_notebook.py", at_home)
    assert done.returncode == 0, done.stderr
    assert "hello from a notebook on" in done.stdout
    assert "USD so far." in done.stdout
    assert nothing_is_left(at_home)


@pytest.mark.soak  # many seconds
def test_the_first_notebook_in_python_ends_its_machine_when_the_work_fails(at_home, tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text((EXAMPLES / "first_notebook.py").read_text().replace("import platform", "raise SystemError"))
    done = run(str(broken), at_home)
    assert done.returncode == 1
    assert "SystemError" in done.stderr
    assert nothing_is_left(at_home)


@pytest.mark.soak  # a whole environment: the first notebook stays in the short run
def test_dive_into_deep_learning_is_prepared_shown_and_ended(at_home, own_home, site):
    root, address = site
    test_templates.serve_notebooks(root)
    test_templates.serve_package(root, "tiny-torch")
    settings = {"repository": f"{address}/notebooks.git", "packages": "tiny-torch", "library": ""}
    settings["index"] = f"{address}/simple"
    table = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
    (own_home / "config.toml").write_text(f"[templates.d2l]\n{table}")
    done = run("d2l.sh", at_home)
    assert done.returncode == 0, done.stderr
    assert "http://127.0.0.1:" in done.stdout
    assert "chapter_preliminaries" in done.stdout
    assert " is gone." in done.stdout
    assert nothing_is_left(at_home)


def test_dive_into_deep_learning_that_cannot_be_launched_says_why(at_home):
    done = run("d2l.sh", at_home, "--gpu", "h100:8")
    assert done.returncode == 4
    assert "h100:8" in done.stderr


def cron_lines():
    lines = [line for line in (EXAMPLES / "crontab").read_text().splitlines() if line and line[0] != "#"]
    return dict(line.split("=", 1) for line in lines if line[0].isalpha()), [one for one in lines if one[0].isdigit()]


def test_the_crontab_names_what_cron_needs_and_every_line_of_it_runs(environ, own_home):
    settings, jobs = cron_lines()
    assert set(settings) == {"MAILTO", "PATH"}
    assert len(jobs) == 2
    said = []
    for job in jobs:
        *when, command = job.split(maxsplit=5)
        assert all(re.fullmatch(r"\*|[0-9]{1,2}", word) for word in when)
        assert "%" not in command, "cron takes it for the end of the line"
        bare = {"PATH": environ["PATH"], "HOME": environ["HOME"], "CLOUDGPU_HOME": str(own_home)}
        done = subprocess.run(["sh", "-c", command], env=bare, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        said.append(done.stdout)
    assert said == ["", "Nothing has been spent yet, as far as this ledger knows; no cloud was queried.\n"]


def test_the_commands_of_the_ci_job_make_a_pass(environ, own_home):
    workflow = yaml.safe_load((EXAMPLES / "reap-github.yml").read_text())
    (job,) = workflow["jobs"].values()
    assert workflow["permissions"]["id-token"] == "write"
    assert set(job["env"]) == {"CLOUDGPU_HOME", "CLOUDGPU_LEDGER", "CLOUDGPU_CONFIG"}
    (script,) = [step["run"] for step in job["steps"] if step.get("name") == "reap"]
    of_job = {"CLOUDGPU_HOME": str(own_home / "new"), "CLOUDGPU_CONFIG": 'owner = "lab"\nprovider = "local"'}
    done = subprocess.run(["sh", "-c", script], env=environ | of_job, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 machines" in done.stdout
    assert (own_home / "new" / "config.toml").read_text() == f"{of_job['CLOUDGPU_CONFIG']}\n"


def test_the_unit_of_watch_runs_and_ends_when_it_is_told_to(environ, own_home):
    unit = RawConfigParser()
    unit.optionxform = str
    unit.read(EXAMPLES / "watch.service")
    assert unit["Service"]["Restart"] == "always"
    assert unit["Install"]["WantedBy"] == "default.target"
    program, *words = unit["Service"]["ExecStart"].split()
    assert program == "%h/.local/bin/cloudgpu"
    words[words.index("--metrics") + 1] = "0"  # a port that is free
    of_unit = environ | {"CLOUDGPU_HOME": str(own_home)}
    own_home.mkdir(exist_ok=True)
    (own_home / "config.toml").touch()  # somebody has begun there
    watch = subprocess.Popen(["cloudgpu", *words], env=of_unit, stderr=subprocess.PIPE, text=True)
    assert "metrics at http://127.0.0.1:" in watch.stderr.readline()
    watch.terminate()
    assert watch.wait(60) == 0


def test_every_example_is_run_here():
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == TESTED


@pytest.fixture
def on_aws(aws, environ, own_home):
    """The environment of a user with an account at our model of AWS, whose machines answer SSH."""
    aws.serve_ssh()
    table = f'provider = "aws"\nregions = ["us-east-1", "us-west-2"]\nssh_port = {aws.ssh_port}'
    (own_home / "config.toml").write_text(f"[accounts.aws]\n{table}\n")
    of_aws = {key: value for key, value in os.environ.items() if key.startswith("AWS_")}
    yield environ | of_aws | {"CLOUDGPU_HOME": str(own_home)}
    ends = environ | of_aws | {"CLOUDGPU_HOME": str(own_home)}
    subprocess.run(["cloudgpu", "down", "--all", "--yes"], env=ends, capture_output=True, check=False)


def test_a_machine_on_aws_is_launched_reached_and_stopped(aws, on_aws):
    done = run("aws-keras.sh", on_aws, "--gpu", "v100", "--spot", "--ssh-from", "203.0.113.7")
    assert done.returncode == 0, done.stderr
    assert "Jupyter on keras-" in done.stdout
    assert "is parked: it has ended, and its image costs at most $3.20 a month" in done.stdout
    assert "no GPU is visible here" in done.stdout
    assert aws.instances(live=True) == []
    (image,) = client(region=aws.instances()[0].region_name).describe_images(Owners=["self"])["Images"]
    assert image["State"] == "available"
