"""Jupyter through the tunnel, with a real JupyterLab and the real command line."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import urllib.request
from pathlib import Path

import pytest

from cloudgpu.access.jupyter.notebook import run_cell
from tests.cli.program import until


def token_of(url: str) -> str:
    return url.rpartition("token=")[2]


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url.replace("/lab?", "/api/status?"), timeout=5) as reply:  # noqa: S310  (http)
            return reply.status == 200
    except OSError:
        return False


def shown_by_processes() -> str:
    """Every command line and environment on this machine that can be read."""
    texts = []
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                texts.append((process / name).read_bytes().decode(errors="replace"))
            except OSError:
                continue
    return "\n".join(texts)


@pytest.fixture
def machine(cloudgpu):
    assert cloudgpu("up", "--yes", "--name", "amber-fox").code == 0
    return "amber-fox"


@pytest.mark.soak
def test_a_background_tunnel_serves_a_notebook_until_it_is_stopped(cloudgpu, machine, tmp_path):
    started = cloudgpu("tunnel", machine, "--background", "-o", "json", timeout=60)
    assert started.code == 0, started.err
    url, port = started.json["url"], started.json["port"]
    assert len(url) <= 60, "it is never broken on a narrow terminal"
    result = run_cell(port, token_of(url), "6 * 7")
    assert (result.text.strip(), result.ok) == ("42", True)

    again = cloudgpu("tunnel", "--background", "-o", "json", timeout=60).json
    assert (again["url"], again["pid"]) == (url, started.json["pid"])

    assert token_of(url) not in shown_by_processes()
    written = [path for path in cloudgpu.home.rglob("*") if path.is_file() and path.name != "token"]
    with_token = {path for path in written if token_of(url).encode() in path.read_bytes()}
    jupyters_own = next(cloudgpu.home.rglob(".cloudgpu/jupyter"))
    assert stat.S_IMODE(jupyters_own.stat().st_mode) == 0o700
    assert all(path.is_relative_to(jupyters_own) for path in with_token)
    assert not [path for path in with_token if "log" in path.name]

    stopped = cloudgpu("tunnel", "--stop", "-o", "json")
    assert stopped.json == {"name": machine, "stopped": True}
    assert not answers(url)
    assert cloudgpu("tunnel", "--stop", "-o", "json").json["stopped"] is False


@pytest.mark.soak  # many seconds
def test_down_ends_the_background_tunnel_too(cloudgpu, machine):
    started = cloudgpu("tunnel", "--background", "-o", "json", timeout=60).json
    assert cloudgpu("down", "--yes").code == 0
    assert until(lambda: not Path(f"/proc/{started['pid']}").exists()), "the tunnel's process lives on"
    left = {path.name for path in (cloudgpu.home / "providers").rglob("*") if path.is_file()}
    assert left == {"place.json"}, "by which this home knows its machines"


@pytest.mark.soak
def test_a_foreground_tunnel_ends_with_ctrl_c_and_jupyter_lives_on(cloudgpu, machine):
    process = cloudgpu.start("tunnel", machine, "-o", "json")
    try:
        lines = list(iter(process.stdout.readline, b"}\n"))
        first = json.loads(b"".join(lines) + b"}")
        assert answers(first["url"])
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode == 0
    assert not answers(first["url"])
    second = cloudgpu("tunnel", "--background", "-o", "json", timeout=60).json
    assert (second["started"], token_of(second["url"])) == (False, token_of(first["url"]))


@pytest.mark.soak
def test_the_first_free_port_is_taken(cloudgpu, machine):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        started = cloudgpu("tunnel", "--background", "--port", str(port), "-o", "json", timeout=60)
    assert started.code == 0, started.err
    assert started.json["port"] != port
    assert answers(started.json["url"])


@pytest.mark.soak
def test_open_shows_the_browser_a_page_and_no_token(cloudgpu, machine, tmp_path):
    """A stand-in browser writes down its arguments: they are what everybody on the machine can see."""
    seen = tmp_path / "arguments"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {seen}\n')
    browser.chmod(0o755)
    cloudgpu.environ["BROWSER"] = f"{browser} %s"
    started = cloudgpu("tunnel", "--background", "--open", "-o", "json", timeout=60)
    assert started.code == 0, started.err
    assert until(seen.exists)
    page = Path(seen.read_text().strip().removeprefix("file://"))
    token = token_of(started.json["url"])
    assert token not in seen.read_text()
    assert token in page.read_text()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert cloudgpu("tunnel", "--stop").code == 0
    assert not page.exists()


@pytest.mark.soak  # many seconds
def test_a_tunnel_survives_a_machine_that_was_stopped_and_started(cloudgpu, machine):
    started = cloudgpu("tunnel", "--background", "-o", "json", timeout=60).json
    assert cloudgpu("stop", "--yes").code == 0
    assert cloudgpu("start", "--yes").code == 0
    assert until(lambda: answers(started["url"]), within_s=40)


@pytest.mark.soak
@pytest.mark.browser
def test_a_real_browser_shows_jupyterlab_through_the_tunnel(cloudgpu, machine, tmp_path, chromium):
    started = cloudgpu("tunnel", "--background", "-o", "json", timeout=60).json
    from cloudgpu.access.jupyter.notebook import open_page

    page = open_page(tmp_path / "page", started["port"], token_of(started["url"]))
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --disable-quic --virtual-time-budget=20000 --dump-dom"
    ).split()
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [chromium, *flags, profile, page.as_uri()]

    def shown():
        done = subprocess.run(command, capture_output=True, timeout=90, check=False, env=os.environ)
        return "jp-LabShell" in done.stdout.decode()

    assert until(shown, within_s=60), (
        "the browser never showed JupyterLab"
    )  # its budget of time is short on a busy machine
