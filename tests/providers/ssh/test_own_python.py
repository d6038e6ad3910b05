"""The Python that the settings name, also where it has no JupyterLab: that is installed in a place of its own."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import threading
import venv
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cloudgpu.access.jupyter.client import program
from cloudgpu.agent.program import source
from cloudgpu.core.model.launch import BootPart
from tests.access.sshserver import wait_for
from tests.providers.ssh.homes import everything, furnish
from tests.providers.ssh.test_home import ended

# Stands in for JupyterLab: it says where it answers, and answers who shows the token.
SERVER = """
import http.server, json, os, pathlib, sys

token = pathlib.Path(os.environ["JUPYTER_TOKEN_FILE"]).read_text()


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.headers["Authorization"] == "token " + token else 403)
        self.end_headers()

    def log_message(self, *words):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
place = pathlib.Path(os.environ["JUPYTER_RUNTIME_DIR"])
place.mkdir(parents=True, exist_ok=True)
(place / f"jpserver-{os.getpid()}.json").write_text(json.dumps({"port": server.server_port, "pid": os.getpid()}))
server.serve_forever()
"""


class Held(SimpleHTTPRequestHandler):
    """Plain files; those of a package come when the test lets them."""

    free = threading.Event()

    def do_GET(self):
        self.free.wait(60)
        super().do_GET()

    def log_message(self, *_words):
        pass


@pytest.fixture
def index(tmp_path):
    """An index on loopback with JupyterLab in it; it answers once `Held.free` is set."""
    Held.free = threading.Event()
    place = tmp_path / "site" / "simple" / "jupyterlab"
    place.mkdir(parents=True)
    wheel = "jupyterlab-4.5.0-py3-none-any.whl"
    with zipfile.ZipFile(place / wheel, "w") as archive:
        archive.writestr("jupyterlab/__init__.py", "")
        archive.writestr("jupyterlab/__main__.py", SERVER)
        info = "jupyterlab-4.5.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: jupyterlab\nVersion: 4.5.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    (place / "index.html").write_text(f'<a href="{wheel}">{wheel}</a>')
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Held, directory=str(tmp_path / "site")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    Held.free.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def host(lab, tmp_path):
    """A host whose settings name a Python that has a module of its owner's, and no JupyterLab."""
    (host,) = lab.hosts
    place = tmp_path / "opt"
    venv.create(place, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "mine.py").write_text("here = True\n")
    pip = importlib.util.find_spec("pip")
    if pip is not None:
        (packages / "pip").symlink_to(Path(pip.origin).parent)
    host.python = str(place / "bin" / "python")
    furnish(host.home)
    return host


def take_from(host, index):
    """Have the owner's pip take packages from there."""
    settings = host.home / ".config" / "pip" / "pip.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"[global]\nindex-url = {index}\nretries = 0\n")


def asked(host, verb="ensure"):
    """What the machine says when JupyterLab is asked for."""
    command = [host.place / "agent", "python", "-", verb]
    environ = {"HOME": str(host.home), "PATH": host.path}
    done = subprocess.run(command, input=program(), env=environ, capture_output=True, check=False)
    return json.loads(done.stdout)


def how_far(host):
    status = host.place / "jupyter.status"
    return status.read_text().strip() if status.exists() else ""


@pytest.mark.soak
def test_jupyterlab_that_is_missing_is_installed_in_a_place_of_its_own(lab, host, index):
    take_from(host, index)
    before = everything(host.home)
    owners = everything(Path(host.python).parents[1])
    made = lab.launch(agent_source=source(), jupyter=("jupyter", "lab"))
    wait_for(lambda: how_far(host) == "installing")
    said = asked(host)
    assert (said["installing"], said["missing"]) == (True, "")
    Held.free.set()
    wait_for(lambda: how_far(host) not in ("", "installing"), 90)
    assert how_far(host) == "ready", (host.place / "jupyter.log").read_text()
    answer = asked(host)
    assert answer["started"], answer
    (installed,) = host.place.glob("python/lib/python*/site-packages/jupyterlab")
    assert installed.is_dir()
    lab.provider.terminate(made.id)
    assert everything(host.home) == before
    assert everything(Path(host.python).parents[1]) == owners


@pytest.mark.soak  # pip tries for a while
def test_jupyterlab_that_cannot_be_installed_says_why(lab, host):
    take_from(host, "http://127.0.0.1:1/simple")
    lab.launch(agent_source=source(), jupyter=("jupyter", "lab"))
    wait_for(lambda: how_far(host) == "failed", 90)
    said = asked(host)
    assert said["missing"]
    assert said["error"].startswith("it could not be installed: ERROR: No matching distribution")


def test_a_template_builds_on_the_python_that_the_settings_name(lab, host):
    look = "import mine; import sys; print(sys.prefix)"
    script = f"python3 -c '{look}'; python3 -m venv --without-pip made; made/bin/python -c '{look[13:]}'"
    lab.launch(parts=[BootPart("on_start", script)])
    ended(host)
    own, made = (host.place / "on_start.log").read_text().split()
    assert (own, made) == (str(host.place / "python"), str(host.place / "work" / "made"))
    kept = host.home / "cloudgpu-one-2" / "made"  # what the script made is still found where the script made it
    assert Path(made).resolve() == kept.resolve()
