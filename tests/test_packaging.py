"""What a user installs: the wheel and the sdist hold all that runs and all that it reads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

import cloudgpu

ROOT = Path(__file__).parent.parent
SUITE = sysconfig.get_path("purelib")


def run(*command, cwd, **env):
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_wheel(source, target):
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", target, cwd=source)
    (wheel,) = target.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The source distribution, unpacked: what a wheel is made of when there is no checkout."""
    target = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", target, cwd=ROOT)
    (archive,) = target.glob("*.tar.gz")
    run("tar", "xzf", archive, cwd=target)
    return target / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    return build_wheel(sdist, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A directory with an installed copy; the dependencies come from the suite's own environment."""
    target = tmp_path_factory.mktemp("installed")
    pip = (sys.executable, "-m", "pip", "install", "-qq", "--no-index", "--no-deps", "--no-compile", "--target", target)
    run(*pip, wheel, cwd=target)
    return target


def python(installed, code):
    path = os.pathsep.join([str(installed), os.environ["PYTHONPATH"]])
    return run(sys.executable, "-P", "-c", code, cwd=installed.parent, PYTHONPATH=path).strip()


def test_the_wheel_made_of_the_sdist_is_the_wheel_made_of_the_checkout(wheel, tmp_path):
    direct = build_wheel(ROOT, tmp_path)
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(direct) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())


def test_the_wheel_holds_every_file_of_the_package_and_its_data(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tracked = run("git", "ls-files", "cloudgpu", "templates", "policies", cwd=ROOT).splitlines()
    assert {name if name.startswith("cloudgpu/") else f"cloudgpu/_data/{name}" for name in tracked} <= names
    assert "cloudgpu/_data/templates/jupyter.yaml" in names
    assert "cloudgpu/_data/policies/desktops/rtx3090.yaml" in names
    assert "cloudgpu/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"cloudgpu"}


def test_an_installed_copy_reads_its_own_data(installed):
    code = (
        "from cloudgpu.config.files.user_files import data_dir\n"
        "from cloudgpu.config.desktops.desktops import load_desktop\n"
        "from cloudgpu.config.templates.find import load_template\n"
        "print(data_dir('policies'))\n"
        "print(load_template('jupyter', search=()).path)\n"
        "print(load_desktop('rtx3090').gpu)\n"
    )
    data = installed / "cloudgpu" / "_data"
    assert python(installed, code).splitlines() == [
        str(data / "policies"),
        str(data / "templates" / "jupyter.yaml"),
        "RTX 3090",
    ]


def test_an_installed_copy_reads_its_own_catalogue(installed):
    code = (
        "from cloudgpu import catalog\n"
        "print(catalog.__file__)\n"
        "print(catalog.gpu('t4').memory_gib, len(catalog.offers('aws', gpu='t4')) > 50)\n"
    )
    assert python(installed, code).splitlines() == [
        str(installed / "cloudgpu" / "catalog" / "__init__.py"),
        "16.0 True",
    ]


def test_the_command_runs_from_an_installed_copy(installed):
    path = os.pathsep.join([str(installed), os.environ["PYTHONPATH"]])
    said = run(sys.executable, installed / "bin" / "cloudgpu", "--help", cwd=installed.parent, PYTHONPATH=path)
    assert "demo" in said


def test_the_lines_of_the_readme_install_a_command_that_works(sdist, tmp_path):
    """What pip would fetch is the suite's: it is told so by pip's own settings, and the lines run as they are."""
    block = re.search(r"^## Install\n.*?^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    make, install, check = block[1].splitlines()
    clone = shutil.copytree(sdist, tmp_path / "clone")
    of_suite = f"import sysconfig; open(sysconfig.get_path('purelib') + '/suite.pth', 'w').write({SUITE!r})"
    script = "\n".join(("set -eu", make, f'python -c "{of_suite}"', install, "cd /", "command -v cloudgpu", check))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    pip = {
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_QUIET": "1",
        "PIP_NO_COMPILE": "0",
    }
    home = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data"), "PYTHONPATH": ""}
    shown = run("sh", "-c", script, cwd=clone, PATH=path, **pip, **home).splitlines()
    assert shown[0] == str(clone / ".venv" / "bin" / "cloudgpu")
    assert shown[1].startswith("No problem found")


PROVIDERS = ("aws", "azure", "gcp", "lambdalabs", "local", "runpod", "ssh", "vast")


def test_the_installed_metadata_names_version_extras_and_providers(installed):
    code = (
        "from importlib import metadata\n"
        "from pathlib import Path\n"
        "found = metadata.distribution('cloudgpu')\n"
        "print(Path(found.locate_file('')).name, found.version, found.metadata['License-Expression'])\n"
        "print(*sorted(found.metadata.get_all('Provides-Extra')))\n"
        "print(*(e.value for e in found.entry_points if e.group == 'cloudgpu.providers'))\n"
    )
    assert python(installed, code).splitlines() == [
        f"{installed.name} {cloudgpu.__version__} Apache-2.0",
        "alerts all aws azure dev gcp lambda local postgresql rest runpod test vast",
        " ".join(f"cloudgpu.providers.{package}.provider:make" for package in PROVIDERS),
    ]


def test_all_is_every_extra_of_a_user_and_the_core_has_no_sdk():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert extras["all"] == ["cloudgpu[alerts,aws,azure,gcp,local,postgresql,rest]"]
    heavy = "apprise boto3 google azure asyncssh jupyterlab psycopg pydantic sqlalchemy rich urllib3"
    assert not [need for need in project["dependencies"] if need.startswith(tuple(heavy.split()))]
