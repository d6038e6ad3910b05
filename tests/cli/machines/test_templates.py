"""Shipped and own templates on a real local machine, through the real command line; what they fetch is on loopback."""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import sys
import threading
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cloudgpu.config.templates.find import load_template
from cloudgpu.config.templates.render import render_parts
from tests.cli.program import until
from tests.config.values import VALUES

PATIENCE_S = 90  # two environments at once on a small machine


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_words):
        pass


@pytest.fixture
def site(tmp_path):
    """A web server of plain files on loopback: its directory and its address."""
    root = tmp_path / "site"
    root.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield root, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def git(*words, cwd):
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *who, *words], cwd=cwd, check=True, capture_output=True)


def serve_notebooks(root):
    """A small repository of notebooks, as a server without git gives it."""
    work = root.parent / "work"
    work.mkdir()
    git("init", cwd=work)
    (work / "chapter_preliminaries").mkdir()
    (work / "chapter_preliminaries" / "ndarray.ipynb").write_text('{"cells": [], "nbformat": 4, "metadata": {}}')
    git("add", ".", cwd=work)
    git("commit", "-m", "notebooks", cwd=work)
    git("clone", "--bare", str(work), str(root / "notebooks.git"), cwd=root)
    git("update-server-info", cwd=root / "notebooks.git")


def serve_package(root, name, needs=()):
    """A package of one line, and its page in a simple index."""
    place = root / "simple" / name
    place.mkdir(parents=True)
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-1.0.dist-info"
    wheel = f"{module}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(place / wheel, "w") as archive:
        archive.writestr(f"{module}.py", "here = True\n")
        asked = "".join(f"Requires-Dist: {need}\n" for need in needs)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{asked}")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    (place / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>')


def on(cloudgpu, script, stdin=b""):
    """What a shell on the machine says to a script."""
    return cloudgpu("exec", "first", "--", "sh", "-ec", script, stdin=stdin)


def prepared(cloudgpu, environment):
    ready = until(lambda: on(cloudgpu, f"cat .venvs/{environment}/prepared").code == 0, within_s=PATIENCE_S)
    said = cloudgpu("show", "first", "--refresh").out
    assert ready, said


@pytest.mark.soak  # a whole environment; that of pytorch stays in the short run
def test_d2l_clones_the_notebooks_and_prepares_their_environment(cloudgpu, site):
    root, address = site
    serve_notebooks(root)
    serve_package(root, "tiny-torch")
    serve_package(root, "tiny-d2l", needs=["numpy==0.0.1"])  # as the real one asks for versions that are not there
    settings = {
        "repository": f"{address}/notebooks.git",
        "packages": "tiny-torch",
        "library": "tiny-d2l",
        "index": f"{address}/simple",
    }
    cloudgpu.config("[templates.d2l]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items()))
    up = cloudgpu("up", "--yes", "--name", "first", "--template", "d2l", "-o", "json")
    assert up.code == 0, up.err
    assert up.json["plan"]["left_out"] == ["disk_gb", "packages"]
    prepared(cloudgpu, "d2l")
    assert on(cloudgpu, "cat d2l/chapter_preliminaries/ndarray.ipynb").out.startswith('{"cells"')
    spec = json.loads(on(cloudgpu, "cat .local/share/jupyter/kernels/python3/kernel.json").out)
    seen = f"{spec['argv'][0]} -c 'import ipykernel, tiny_torch, tiny_d2l; print(tiny_d2l.here)'"
    assert on(cloudgpu, seen).out == "True\n"

    on(cloudgpu, "echo mine > d2l/notes; touch .venvs/d2l/untouched")
    script = load_template("d2l", search=(), settings={"d2l": settings})
    (again,) = (part.text for part in render_parts(script, VALUES) if part.kind == "on_start")
    second = on(cloudgpu, "sh -e; cat d2l/notes; ls .venvs/d2l/untouched", stdin=again.encode())
    assert (second.code, second.out) == (0, "mine\n.venvs/d2l/untouched\n"), second.err


@pytest.mark.soak  # many seconds
def test_pytorch_prepares_a_kernel_of_its_own(cloudgpu, site):
    root, address = site
    serve_package(root, "tiny-torch")
    cloudgpu.config(
        f'[templates.pytorch]\npackages = "tiny-torch"\nindex = "{address}/simple"\nkernel = "It\'s $HOME"\n'
    )
    assert cloudgpu("up", "--yes", "--name", "first", "--template", "pytorch").code == 0
    prepared(cloudgpu, "pytorch")
    spec = json.loads(on(cloudgpu, "cat .local/share/jupyter/kernels/pytorch/kernel.json").out)
    assert spec["display_name"] == "It's $HOME"
    assert on(cloudgpu, f"{spec['argv'][0]} -c 'import ipykernel, tiny_torch; print(42)'").out == "42\n"


@pytest.mark.soak  # many seconds; `make lowest` runs it as well
def test_what_a_template_installs_is_the_machines_own_and_goes_with_it(cloudgpu, site, tmp_path):
    root, address = site
    serve_package(root, "tiny-torch")
    own = cloudgpu.home / "templates"
    own.mkdir(parents=True)
    install = f"python3 -m pip install --quiet --index-url {address}/simple tiny-torch"
    (own / "tiny.yaml").write_text(f"jupyter: true\non_start: |\n  {install}\n")
    assert cloudgpu("up", "--yes", "--name", "first", "--template", "tiny").code == 0
    look = "python3 -c 'import sys, tiny_torch; print(sys.prefix, tiny_torch.__file__)'"
    assert until(lambda: on(cloudgpu, look).code == 0, within_s=PATIENCE_S)
    prefix, module = on(cloudgpu, look).out.split()
    assert module.startswith(prefix)
    assert prefix.startswith(str(cloudgpu.home))
    assert on(cloudgpu, "command -v pip").out.strip() == f"{prefix}/bin/pip"
    assert on(cloudgpu, "sh -lc 'command -v python3'").out.strip() == f"{prefix}/bin/python3"
    assert "outside environment" in on(cloudgpu, "pip uninstall --yes typer 2>&1").out

    spec = json.loads(on(cloudgpu, "cat .local/share/jupyter/kernels/python3/kernel.json").out)
    assert spec["argv"][0] == f"{prefix}/bin/python3"
    assert on(cloudgpu, f"{spec['argv'][0]} -c 'import ipykernel, jupyterlab, tiny_torch; print(42)'").out == "42\n"

    assert subprocess.run([sys.executable, "-c", "import tiny_torch"], capture_output=True, check=False).returncode != 0
    assert cloudgpu("stop", "first", "--yes").code == 0
    assert cloudgpu("start", "first", "--yes").code == 0
    assert on(cloudgpu, look).out.split() == [prefix, module]
    assert cloudgpu("down", "first", "--yes").code == 0
    assert not Path(prefix).exists()


def own_template(cloudgpu, script):
    """Make `on_start` of the template `own` these lines."""
    place = cloudgpu.home / "templates"
    place.mkdir(parents=True, exist_ok=True)
    (place / "own.yaml").write_text("jupyter: true\non_start: |\n" + "".join(f"  {one}\n" for one in script))
    return ("up", "--yes", "--name", "first", "--template", "own")


@pytest.mark.soak
def test_up_says_that_on_start_still_runs_and_waits_for_its_end_where_it_is_told_to(cloudgpu):
    up = own_template(cloudgpu, ["while [ ! -e go ]; do sleep 0.1; done", "echo over"])
    assert cloudgpu(*up, "-o", "json").json["on_start"] == "running"
    said = " ".join(cloudgpu(*up).out.split())  # lines are as long as the terminal is wide
    assert (
        "first is ready; on_start still runs (its log: cloudgpu exec first -- tail -f .cloudgpu/on_start.log)" in said
    )

    waits = cloudgpu.start(*up, "--wait-start")
    assert waits.stderr is not None
    assert any(b"waiting for on_start" in line for line in waits.stderr)
    waits.send_signal(signal.SIGINT)
    assert waits.wait(60) == 130

    on(cloudgpu, "touch go")
    done = cloudgpu(*up, "--wait-start", "-o", "json")
    assert (done.code, done.json["on_start"], done.json["machine"]["state"]) == (0, "done", "running")
    assert on(cloudgpu, "cat .cloudgpu/on_start.log").out == "over\n"
    assert "first is ready.\n" in cloudgpu(*up).out


def test_an_on_start_that_fails_ends_the_wait_with_its_status_and_leaves_the_machine(cloudgpu):
    failed = cloudgpu(*own_template(cloudgpu, ["exit 7"]), "--wait-start", "-o", "json")
    error = failed.json["error"]
    assert (failed.code, error["field"], error["value"]) == (2, "template", "own")
    assert "on_start of the template own failed with status 7" in error["message"]
    assert "cloudgpu exec first -- cat .cloudgpu/on_start.log" in error["next"]
    assert [one["state"] for one in cloudgpu.machines()] == ["running"]
    again = cloudgpu("up", "--yes", "--name", "first", "--template", "own")
    assert "first is ready, but on_start failed" in again.out


def test_waiting_for_on_start_and_for_nothing_contradict_each_other(cloudgpu):
    refused = cloudgpu("up", "--yes", "--wait-start", "--no-wait")
    assert (refused.code, cloudgpu.machines()) == (2, [])
    assert "--wait-start" in refused.err


def test_a_clone_that_fails_is_shown_with_its_log_and_nothing_half_is_left(cloudgpu, site):
    cloudgpu.config(f'[templates.d2l]\nrepository = "{site[1]}/nothing.git"\n')
    assert cloudgpu("up", "--yes", "--name", "first", "--template", "d2l").code == 0
    show = ("show", "first", "--refresh", "-o", "json")
    reason = until(lambda: cloudgpu(*show).json["reason"], within_s=PATIENCE_S)
    assert reason.startswith("on_start failed with status 128: see ")
    assert "nothing.git" in (cloudgpu.home / reason.partition(": see ")[2]).read_text()
    assert on(cloudgpu, "ls -d d2l").code != 0


def test_a_bare_machine_has_a_shell_and_says_how_to_get_jupyter(cloudgpu):
    assert cloudgpu("up", "--yes", "--name", "first", "--template", "bare").code == 0
    assert on(cloudgpu, "echo here").out == "here\n"
    refused = cloudgpu("tunnel", "first", "-o", "json")
    error = refused.json["error"]
    assert (refused.code, error["kind"]) == (10, "unreachable")
    assert "launched without JupyterLab" in error["message"]
    assert "cloudgpu up --template jupyter" in error["next"]


def test_cuda_shows_what_a_local_machine_leaves_out(cloudgpu):
    plan = cloudgpu("up", "--dry-run", "--template", "cuda", "-o", "json").json["plan"]
    assert plan["left_out"] == ["cloud_init", "disk_gb", "packages"]


def test_an_own_template_wins_by_name_and_is_said(cloudgpu):
    (cloudgpu.home / "templates").mkdir(parents=True)
    own = cloudgpu.home / "templates" / "bare.yaml"
    own.write_text('settings: {word: hello}\non_start: echo "$word" > word\n')
    cloudgpu.config('[templates.bare]\nword = "$(id); hi"\n')
    up = cloudgpu("up", "--yes", "--name", "first", "--template", "bare")
    assert ("cloudgpu exec first -- CMD" in up.out, "tunnel" in up.out) == (True, False)
    assert up.code == 0, up.err
    assert f"the template bare is from {own}" in up.err
    assert until(lambda: on(cloudgpu, "cat word").out) == "$(id); hi\n"
