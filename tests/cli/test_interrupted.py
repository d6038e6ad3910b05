"""Ctrl-C ends any command soon, with 130 and one sentence about what may be left; the next command settles that.

At every call of a launch: tests/soak/test_ctrl_c_aws.py.
"""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading

import psutil
import psycopg
import pytest

from tests.cli.many import Many
from tests.cli.program import Program, until
from tests.clouds.aws.fixtures import aws, aws_process
from tests.clouds.azure.fixtures import azure_arm, azure_process
from tests.clouds.azure.server import ENVIRON as AZURE
from tests.clouds.gcp.fixtures import gcp, gcp_process
from tests.postgres import postgres
from tests.soak import crash_aws, crash_azure, crash_gcp
from tests.soak.crash_cloud import CTRL_C, LEFT_WITHIN_S, Moment

__all__ = ["aws", "aws_process", "azure_arm", "azure_process", "gcp", "gcp_process", "postgres"]
CONFIG = 'provider = "{0}"\naddress_services = []\n[accounts.lab]\nprovider = "{0}"\nregions = ["{1}"]\n'
NOTHING = "Interrupted; no machine was changed."


@pytest.fixture(scope="module")
def forks():
    many = Many.open(*crash_gcp.SDK, *crash_azure.SDK)
    yield many
    many.close()


class AnswerTimeout:
    """An endpoint that accepts and never answers."""

    def __init__(self):
        self._server = socket.create_server(("127.0.0.1", 0))
        self._taken: list[socket.socket] = []
        self.url = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.asked = threading.Event()
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self):
        while True:
            try:
                self._taken.append(self._server.accept()[0])
            except OSError:
                return
            self.asked.set()

    def close(self):
        for one in (self._server, *self._taken):
            one.close()


@pytest.fixture
def silent():
    made = AnswerTimeout()
    yield made
    made.close()


def pressed(process, *, times=1):
    """Press Ctrl-C, and return how the process ended: its code and what it said on stderr."""
    for _ in range(times):
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LEFT_WITHIN_S)
    return process.returncode, err.decode()


CLOUDS = {
    "aws": ("us-east-1", lambda url: {"AWS_ENDPOINT_URL": f"http://{url}"}),
    "gcp": (
        "us-central1",
        lambda url: {
            "CLOUDGPU_GCP_ENDPOINT": f"http://{url}",
            "GOOGLE_CLOUD_PROJECT": "lab-project-1",
            "NO_GCE_CHECK": "true",
        },
    ),
    "azure": (
        "eastus",
        lambda url: {"CLOUDGPU_AZURE_ENDPOINT": f"https://{url}", "AZURE_AUTHORITY_HOST": f"https://{url}", **AZURE},
    ),
}
KEYS = {
    "CLOUDGPU_PATIENCE": "60",
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "y",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.mark.parametrize(
    ("cloud", "times", "verb"),
    [
        ("aws", 1, "ls --refresh -o json"),
        ("aws", 2, "reap"),
        pytest.param("gcp", 2, "ls --refresh", marks=pytest.mark.soak),
        pytest.param("azure", 1, "orphans", marks=pytest.mark.soak),
    ],
)
def test_a_command_whose_cloud_hangs_ends_on_ctrl_c(tmp_path, silent, cloud, times, verb):
    region, environ = CLOUDS[cloud]
    program = Program(tmp_path / "home", KEYS | environ(silent.url))
    program.config(CONFIG.format(cloud, region))
    process = program.start(*verb.split())
    assert silent.asked.wait(60)  # to start, and to load the SDK
    code, said = pressed(process, times=times)
    assert (code, said.strip()) == (CTRL_C, NOTHING)


@pytest.mark.parametrize(
    ("model", "life", "headline", "launch", "end"),
    [
        ("aws", crash_aws.AwsLife, crash_aws.HEADLINE, "RunInstances", "TerminateInstances"),
        pytest.param(
            *("gcp", crash_gcp.GcpLife, crash_gcp.HEADLINE, "compute.instances.insert", "compute.instances.delete"),
            marks=pytest.mark.soak,
        ),
        pytest.param(
            *("azure_arm", crash_azure.AzureLife, crash_azure.HEADLINE),
            *("VirtualMachines.CreateOrUpdate", "ResourceGroups.Delete"),
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_launch_and_an_end_that_were_interrupted_are_finished_by_the_same_again(
    request, tmp_path, model, life, headline, launch, end
):
    server = request.getfixturevalue(model)
    forks = [] if model == "aws" else [request.getfixturevalue("forks")]  # AWS's have loaded its SDK alone
    one = life(server, tmp_path / "home", *forks)
    said = one.left(*headline, at=Moment(launch, 1, "after"))
    assert "Interrupted. The launch of " in said
    assert "may have been accepted: the next cloudgpu up or cloudgpu reap finds out." in said
    one.check_one()
    said = one.left("down", "--all", "--yes", at=Moment(end, 1, "before"))
    assert "Interrupted. The end of " in said
    assert "is not proved: it may still be billed. Run the same command again to finish it." in said
    assert "The next run of cloudgpu reap finishes the end of " in said
    one.check_down_leaves_nothing()


def test_an_up_that_waits_for_its_machine_says_that_it_is_billed(aws, tmp_path):
    aws.dwell(pending=3600)
    looks = crash_aws.AwsLife(aws, tmp_path / "first" / "home").counted(*crash_aws.HEADLINE).count("DescribeInstances")
    one = crash_aws.AwsLife(aws, tmp_path / "home")
    aws.dwell(pending=3600)
    up = [word for word in crash_aws.HEADLINE if word != "--no-wait"]
    said = one.left(*up, at=Moment("DescribeInstances", looks + 1, "before"))
    assert "is launched and billed. The same up waits for it again; cloudgpu down " in said


def test_a_command_that_waits_for_a_ledger_in_postgresql_ends_on_ctrl_c(tmp_path, postgres):
    url = postgres.schema()
    program = Program(tmp_path / "home", {"CLOUDGPU_LEDGER": url})
    assert program("ls", "--refresh").code == 0
    with psycopg.connect(url) as holder, psycopg.connect(url, autocommit=True) as observer:
        holder.execute("LOCK TABLE line IN ACCESS EXCLUSIVE MODE")
        process = program.start("reap")
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        assert until(lambda: observer.execute(waits).fetchone())
        assert pressed(process) == (CTRL_C, f"\n{NOTHING}\n")


def test_a_command_that_waits_for_the_ledger_ends_on_ctrl_c(tmp_path):
    program = Program(tmp_path / "home")
    program.config("")
    assert program("ls", "--refresh").code == 0
    (file,) = program.home.rglob("*.db")
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    process = program.start("reap")
    assert until(lambda: str(file) in [one.path for one in psutil.Process(process.pid).open_files()])
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)  # it has the file, and waits for the lock on it
    assert pressed(process) == (CTRL_C, f"\n{NOTHING}\n")
    holder.close()


SWALLOWED = """
import os, signal, sys, threading
from cloudgpu.cli import interrupt
interrupt.install_handlers()
try:
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        pass
    try:
        threading.Event().wait()
    finally:
        threading.Event().wait()
except KeyboardInterrupt:
    interrupt.ignore_interrupts()
    sys.exit(interrupt.EXIT_CODE)
"""
MARKED = """
import os, signal, sys
from cloudgpu.cli import interrupt
interrupt.install_handlers()
try:
    exec("os.kill(os.getpid(), signal.SIGINT)")
except KeyboardInterrupt:
    interrupt.ignore_interrupts()
    sys.exit(interrupt.EXIT_CODE)
"""
# Signals come to the second thread, so that the first one's wait is not cut short: as if the wait had just begun.
UNSEEN = """
import os, signal, sys, threading
from cloudgpu.cli import interrupt
interrupt.install_handlers()
try:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    threading.Event().wait()
except KeyboardInterrupt:
    interrupt.ignore_interrupts()
    sys.exit(interrupt.EXIT_CODE)
"""
WAYS = {"swallowed, then a clean-up that hangs": SWALLOWED, "in an exec": MARKED, "as a wait begins": UNSEEN}


@pytest.mark.parametrize("script", WAYS.values(), ids=WAYS)
def test_no_library_and_no_clean_up_keeps_the_process_from_its_end(script, tmp_path):
    (tmp_path / "left.py").write_text(script)
    command = [sys.executable, "-m", "left"]
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environ, capture_output=True, timeout=LEFT_WITHIN_S, check=False)
    assert (done.returncode, done.stderr) == (CTRL_C, b"")
