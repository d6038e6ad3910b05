"""The container of a machine: what Docker is asked for at a start, and what a command in it gets. No Docker runs here.

`docker.py` beside this stands in for Docker's command line: it takes what our scripts say and nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import sys

import pytest

from cloudgpu.core.model.launch import BootPart, Volume
from cloudgpu.providers.machine.files import files
from cloudgpu.providers.machine.user_data import BootOptions, boot_hook, startup_script, user_data
from tests.access.jobs.conftest import lives
from tests.access.sshserver import wait_for
from tests.providers.machine.container_host import IMAGE, Host
from tests.providers.machine.test_user_data import attempt, files_of

SECRET = "what-nobody-may-read"


@pytest.fixture
def host(tmp_path):
    made = Host(tmp_path)
    made.has_docker()
    return made


@pytest.fixture(scope="module")
def booted(tmp_path_factory):
    """A machine whose container is there."""
    made = Host(tmp_path_factory.mktemp("booted"))
    made.has_docker()
    made.boots()
    return made


def options(words):
    """Return the flags of a `docker run` with their values, and the image with its command."""
    words, found = list(words), {}
    while words[0].startswith("-"):
        name = words.pop(0)
        found.setdefault(name, []).append("" if name == "-d" else words.pop(0))
    return found, words


@pytest.mark.soak
def test_the_container_has_the_gpus_and_the_homes_and_opens_nothing(host):
    log = host.boots()
    assert host.said("ready"), log
    ((*words,),) = host.calls("run")
    found, rest = options(words)
    assert rest == [IMAGE, "infinity"]
    assert found["--gpus"] == ["all"]
    assert found["--ipc"] == found["--pid"] == found["--network"] == ["host"]
    assert found["--user"] == [f"{os.getuid()}:{os.getgid()}"]
    assert found["-v"] == [
        f"{host.home}:{host.home}",
        f"{host.root}/data:{host.root}/data:rslave",
        f"{host.root}/etc/passwd:/etc/passwd:ro",
        f"{host.root}/etc/group:/etc/group:ro",
    ]
    assert not {"-p", "-P", "--publish", "--privileged", "--cap-add"} & set(found)
    assert "docker.sock" not in " ".join(words)


def test_a_start_leaves_a_container_that_runs_alone_and_pulls_nothing_twice(host):
    host.boots()
    host.boots()
    assert (len(host.calls("pull")), len(host.calls("run"))) == (1, 1)
    assert host.said("ready")


@pytest.mark.soak
def test_a_machine_without_a_gpu_gets_the_container_without_one(tmp_path):
    host = Host(tmp_path, gpu=False)
    host.has_docker(toolkit=False)
    host.boots()
    assert not (tmp_path / "done").exists()
    assert "--gpus" not in options(host.calls("run")[0])[0]


@pytest.mark.soak
def test_docker_and_nvidias_toolkit_are_installed_where_they_are_missing(tmp_path):
    host = Host(tmp_path)
    for name in ("curl", "dpkg", "systemctl"):
        host.stands_in(name, f'#!/bin/sh\necho "{name} $*" >>{tmp_path}/done\necho amd64\n')
    host.stands_in("gpg", f'#!/bin/sh\ncat >/dev/null\necho "gpg $*" >>{tmp_path}/done\n')
    host.stands_in("docker.there", "")
    host.has_docker()
    for name in ("docker", "nvidia-ctk"):
        (tmp_path / "bin" / name).rename(tmp_path / "bin" / f"{name}.later")
    (tmp_path / "state" / "nvidia").unlink()
    host.stands_in(
        "apt-get",
        f'#!/bin/sh\necho "apt-get $*" >>{tmp_path}/done\ncd {tmp_path}/bin\ncase "$*" in\n'
        "*docker.io) mv docker.later docker ;;\n*toolkit) mv nvidia-ctk.later nvidia-ctk ;;\nesac\n",
    )
    log = host.boots()
    assert host.said("ready"), log
    done = (tmp_path / "done").read_text()
    assert "install -y docker.io" in done
    assert "install -y nvidia-container-toolkit" in done
    assert "nvidia-ctk runtime configure --runtime=docker\nsystemctl restart docker" in done
    (listed,) = (tmp_path / "etc/apt/sources.list.d").iterdir()
    assert listed.read_text().startswith(f"deb [signed-by={tmp_path}/keys/")


@pytest.mark.soak
def test_a_registry_that_is_silent_for_a_while_is_asked_again(host):
    (host.root / "state" / "failures").write_text("2")
    host.boots()
    assert host.said("ready")
    assert len(host.calls("pull")) == 3


@pytest.mark.soak
def test_an_image_that_cannot_be_pulled_is_said_to_whoever_wants_in(host):
    (host.root / "state" / "failures").write_text("1000")
    assert "TLS handshake timeout" in host.boots()
    assert (host.said("ready"), host.said("failed")) == (False, True)
    done = host.inside("true")
    assert done.returncode == 125
    assert "~/.cloudgpu/container.log has the reason" in done.stderr


@pytest.mark.soak
def test_a_command_runs_there_in_the_same_directory_with_its_input_and_its_status(booted):
    done = booted.inside("sh", "-c", "pwd; cat; echo trouble >&2; exit 7", input="what it reads\n")
    assert (done.stdout, done.stderr, done.returncode) == (f"{booted.home}\nwhat it reads\n", "trouble\n", 7)
    assert list(booted.base.glob("inside.*")) == []


def test_words_arrive_as_they_are(booted):
    words = ["a b", "it's", 'say "x"', "$HOME", "back\\slash", "*", "two\nlines", "é", "-e", ""]
    assert booted.inside("printf", "%s\\0", *words).stdout.split("\0")[:-1] == words


def test_variables_are_handed_on_but_those_of_the_machines_own_programs_and_no_value_is_an_argument(booted):
    done = booted.inside("env", TOKEN=SECRET, LD_LIBRARY_PATH="/usr/lib/machine", SSH_CLIENT="1", LONG="two\nA=1 lines")
    said = done.stdout
    assert f"TOKEN={SECRET}\n" in said
    assert "LONG=two\nA=1 lines\n" in said
    assert "LD_LIBRARY_PATH" not in said
    assert "SSH_CLIENT" not in said
    assert f"PATH={booted.root}/bin" not in said
    assert SECRET not in (booted.root / "state" / "calls").read_text()


def test_a_command_that_the_image_lacks_is_127_as_in_a_shell(booted):
    done = booted.inside("nothing-of-the-sort", CLOUDGPU_ATTEMPT="/one")
    assert done.returncode == 127


@pytest.mark.soak
def test_the_usual_kernel_of_jupyter_is_the_containers_python(tmp_path):
    host = Host(tmp_path, jupyter="jupyterlab>=4.4,<5")
    host.has_docker()
    host.boots()
    asked = (host.root / "state" / "python").read_text().splitlines()
    assert asked == ["-c import ipykernel", "-m pip install --user --quiet ipykernel"]
    spec = json.loads((host.home / ".local/share/jupyter/kernels/python3/kernel.json").read_text())
    assert spec["argv"][:4] == [f"{host.base}/inside", "python3", "-m", "ipykernel_launcher"]
    assert spec["interrupt_mode"] == "message"  # Docker hands no signal on


def test_the_boot_data_start_the_container_after_the_lease_and_name_the_image():
    made = attempt(BootPart("container", IMAGE), volume=Volume("data"))
    given = BootOptions("aws")
    hook = boot_hook(made, given)
    assert f"container={IMAGE}\n" in hook
    assert "ExecStart=/usr/local/lib/cloudgpu/container" in hook
    last = hook.splitlines()[-1].split()
    assert last.index("cloudgpu-lease.timer") < last.index("cloudgpu-container.service")
    listed = files_of(made, given)
    assert {"container", "inside"} <= set(listed)
    settle = listed["settle"]["content"]
    assert settle.index("/inside") < settle.index('"$here/agent"')  # no job may begin beside the container
    for text in (user_data(made, given), startup_script(made, BootOptions("gcp"))):
        assert IMAGE in text


def test_a_machine_without_a_container_gets_nothing_of_it():
    made = attempt()
    assert not {"container", "inside"} & {one.path.rpartition("/")[2] for one in files(made, BootOptions("aws"))}
    assert "container" not in boot_hook(made, BootOptions("aws"))


@pytest.mark.soak
def test_a_real_kernel_answers_is_interrupted_and_ends_in_the_container(tmp_path, monkeypatch):
    from jupyter_client.manager import start_new_kernel

    host = Host(tmp_path, jupyter="jupyterlab>=4.4,<5")
    host.has_docker()
    host.program(host.root / "state" / "image" / "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    host.boots()
    shutil.copy(host.root / "here" / "inside", host.base / "inside")
    for name, value in {**host.environ, "JUPYTER_PATH": str(host.home / ".local/share/jupyter")}.items():
        monkeypatch.setenv(name, value)
    manager, client = start_new_kernel(startup_timeout=60, kernel_name="python3", cwd=str(host.home))
    try:
        assert manager.kernel_spec.display_name == "Python 3 (container)"
        assert host.calls("exec")[-1][-3:-1] == ["ipykernel_launcher", "-f"]
        found = client.execute_interactive("import os; open('pid', 'w').write(str(os.getpid()))", timeout=60)
        assert found["content"]["status"] == "ok"
        pid = int((host.home / "pid").read_text())
        client.execute("import time\nwhile True: time.sleep(0.05)")
        wait_for(lambda: client.get_iopub_msg(timeout=60)["content"].get("code", "").endswith("0.05)"), 60)
        manager.interrupt_kernel()
        assert client.get_shell_msg(timeout=60)["content"]["ename"] == "KeyboardInterrupt"
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    wait_for(lambda: not lives(pid), 60)
