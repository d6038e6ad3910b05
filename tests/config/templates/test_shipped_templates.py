"""The templates that are shipped, and what becomes of a template's text: rendered, parsed, checked, run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from cloudgpu.config.files.user_files import data_dir
from cloudgpu.config.files.yaml import YamlFileError, parse_yaml
from cloudgpu.config.templates.find import load_template, template_from, template_names
from cloudgpu.config.templates.render import CLOUD_CONFIG_KEYS, VALUE_NAMES, render_parts
from cloudgpu.errors import InvalidRequest
from tests.config.values import VALUES as KNOWN

FILE = Path("/somewhere/t.yaml")
SHIPPED = template_names(search=())


def template(text):
    return template_from(parse_yaml(text, FILE), "t")


def parts(one):
    return {part.kind: part.text for part in render_parts(one, KNOWN)}


def cloud_init(text, settings=""):
    indented = "".join(f"  {line}\n" for line in text.splitlines())
    return template(f"{settings}cloud_init: |\n{indented}")


def fault(text, settings=""):
    with pytest.raises(InvalidRequest) as caught:
        render_parts(cloud_init(text, settings), KNOWN)
    return caught.value


def test_the_shipped_templates_are_these():
    assert SHIPPED == ("bare", "cuda", "d2l", "jupyter", "ngc", "ngc-rapids", "ngc-tensorflow", "pytorch")


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_template_is_whole(name):
    shipped = load_template(name, search=())
    made = parts(shipped)
    assert shipped.description
    assert shipped.path == data_dir("templates") / f"{name}.yaml"
    assert shipped.jupyter == (() if name == "bare" else ("jupyter", "lab"))
    if "on_start" in made:
        subprocess.run(["sh", "-n"], input=made["on_start"], text=True, check=True)
    if "cloud_init" in made:
        assert set(yaml.safe_load(made["cloud_init"])) <= set(CLOUD_CONFIG_KEYS)  # as cloud-init itself reads it
        assert made["cloud_init"].startswith("#cloud-config\n")
        assert made["cloud_init"].count("#cloud-config") == 1


@pytest.mark.parametrize("name", SHIPPED)
def test_every_setting_of_a_shipped_template_is_used(name):
    shipped = load_template(name, search=())
    marked = {name: {key: f"mark-of-{key}" for key in shipped.settings}}
    made = "".join(parts(load_template(name, search=(), settings=marked)).values())
    used = [key for key in shipped.settings if f"mark-of-{key}" in made]
    variables = [
        key for key in shipped.settings if shipped.on_start and not re.search(rf"\$\{{?{key}\b", shipped.on_start)
    ]
    assert used == list(shipped.settings)
    assert variables == []


def test_bare_gives_a_machine_nothing():
    assert render_parts(load_template("bare", search=()), KNOWN) == ()


def test_a_value_cannot_become_a_command_nor_yaml(tmp_path):
    evil = 'x\'; touch evil; "$(touch evil)" `touch evil`'
    made = parts(template("settings: {a: ''}\non_start: printf %s \"$a\" > said\n"))
    assert made["on_start"].startswith("a=''\n")
    (tmp_path / "t.yaml").write_text(
        "settings: {a: ''}\non_start: printf %s \"$a\" > said\n"
        "cloud_init: |\n  runcmd:\n    - {{ ('printf %s ' ~ settings.a | sh ~ ' > booted') | tojson }}\n"
    )
    own = parts(load_template("t", search=(tmp_path,), settings={"t": {"a": evil}}))
    (command,) = yaml.safe_load(own["cloud_init"])["runcmd"]
    for script in (own["on_start"], command):
        subprocess.run(["sh", "-e"], input=script, text=True, cwd=tmp_path, check=True)
    assert ((tmp_path / "said").read_text(), (tmp_path / "booted").read_text()) == (evil, evil)
    assert not (tmp_path / "evil").exists()


def test_cloud_init_sees_the_offer_the_request_and_its_settings():
    words = "\n".join(f"  - {{{{ {name} }}}}" for name in VALUE_NAMES if name != "settings")
    made = cloud_init(f"packages:\n{words}\n  - {{{{ settings.more }}}}", "settings: {more: git}\n")
    assert yaml.safe_load(parts(made)["cloud_init"])["packages"] == [*KNOWN.values(), "git"]


def test_a_condition_chooses():
    text = "{% if gpu == 'v100' %}\npackages: [old]\n{% else %}\npackages: [new]\n{% endif %}"
    assert yaml.safe_load(parts(cloud_init(text))["cloud_init"]) == {"packages": ["old"]}


BAD = [
    # text, line of the file, words of the sentence, words of the way out
    ("packages:\n  - {{ pakage }}", 3, "uses pakage, which is not a value", "Use one of: provider, account"),
    ("packages: [{{ regoin }}]", 2, "did you mean 'region'?", "Use one of"),
    ("{% if gpu == 'none' %}\npackages: [{{ nobody }}]\n{% endif %}", 3, "uses nobody", "Use one of"),
    ("packages: [{{ settings.drivr }}]", 2, "did you mean 'driver'?", "Use one of: driver."),
    ("packages: [{{ settings['toolkit'] }}]", 2, "uses toolkit, which is not a setting", "driver"),
    ("packages:\n  - {{ gpu", 3, "is not valid Jinja2", "Correct that line"),
    ("packages: [{{ gpu | nofilter }}]", 2, "No filter named 'nofilter'", "Correct that line"),
    ("\n\npackages: [{{ 1 / 0 }}]", 4, "division by zero", "Correct that line"),
    ("packages: [{{ gpu.__class__.__mro__ }}]", 2, "unsafe", "Correct that line"),
    (
        "packages: [git]\n{% include '/etc/passwd' %}",
        3,
        "uses include: a template cannot build on another",
        "Copy what you need",
    ),
    ("{% extends 'jupyter.yaml' %}", 2, "uses extends", "Copy what you need"),
    ("{% from 'x' import y %}\npackages: [a]", 2, "uses import", "Copy what you need"),
    ("packages: [git\nruncmd: [a]", 3, "is not valid YAML", "may set: apt"),
    ("packages: [git]\nrun_cmd: [a]", 3, "sets run_cmd, which a template may not; did you mean 'runcmd'?", "may set"),
    ("ssh_keys: {ed25519_private: x}", 2, "sets ssh_keys, which a template may not", "may set"),
    ("users: [eve]", 2, "sets users", "may set"),
    ("just words", 2, "holds no `key: value` lines", "may set"),
    ("packages: [git]\npackages: [tmux]", 3, "a second time", "may set"),
    ("{% for n in [1, 2] %}\nruncmd: [a]\n{% endfor %}", 2, "(line 2 of the rendered text)", "may set"),
]


def test_a_text_that_is_no_yaml_says_its_line_and_its_problem_as_values():
    with pytest.raises(YamlFileError) as caught:
        parse_yaml("packages: [git]\npackages: [tmux]", Path("cloud_init"))
    assert (caught.value.line, caught.value.problem) == (2, "says packages a second time; the first is on line 1")
    assert caught.value.message == "cloud_init:2: the file says packages a second time; the first is on line 1."


@pytest.mark.parametrize(("text", "line", "says", "out"), BAD, ids=[row[2][:40] for row in BAD])
def test_a_fault_in_cloud_init_names_its_line_in_the_file(text, line, says, out):
    head = "settings: {driver: '580'}\n"
    error = fault(text, head)
    assert (error.exit_code, error.field) == (2, f"t.yaml:{line + 1}: cloud_init")
    assert says in error.message
    assert error.message.isprintable()
    assert out in error.next


BAD_KEYS = [
    ("extends: jupyter", 1, "extends", "templates do not build on each other"),
    ("jupyter: true\ninclude: [a]", 2, "include", "templates do not build on each other"),
    ("settings: [a]", 1, "settings", "has to be a table"),
    ("settings:\n  Big: x", 2, "settings.Big", "cannot be a setting's name"),
    ("settings:\n  a: x\n  b: 3", 3, "settings.b", "one line of text"),
    ('settings:\n  a: "\\e[2J"', 2, "settings.a", "one line of text"),
    ("setings: {a: b}", 1, "setings", "did you mean 'settings'?"),
]


@pytest.mark.parametrize(("text", "line", "key", "says"), BAD_KEYS, ids=[row[2] for row in BAD_KEYS])
def test_a_fault_in_the_keys_names_its_line(text, line, key, says):
    with pytest.raises(InvalidRequest) as caught:
        template(text)
    assert caught.value.field == f"t.yaml:{line}: {key}"
    assert says in caught.value.message


def test_an_unknown_setting_in_the_users_file_is_answered_with_the_near_one():
    with pytest.raises(InvalidRequest) as caught:
        load_template("d2l", search=(), settings={"d2l": {"repositry": "x"}})
    assert caught.value.field == "config.toml: templates.d2l.repositry"
    assert "did you mean 'repository'?" in caught.value.message
    with pytest.raises(InvalidRequest) as caught:
        load_template("bare", search=(), settings={"bare": {"x": "y"}})
    assert "It has no settings" in caught.value.next


PYTHON = """#!/bin/sh
# Makes environments that are copies of itself, and writes down what is installed. The index has no ipykernel.
case "$*" in
  *"-m venv"*)
    for place; do :; done
    mkdir -p "$place/bin" "$place/lib/python3.11/site-packages"
    cp "$0" "$place/bin/python" ;;
  *"import ipykernel"*) exit 1 ;;
  *"pip install"*)
    echo "$*" >> "$CALLS"
    case "$*" in *--index-url*ipykernel*) exit 1 ;; esac ;;
esac
"""


@pytest.mark.parametrize("name", ["d2l", "pytorch"])
def test_the_index_serves_all_that_is_installed_and_pips_own_what_it_lacks(tmp_path, name):
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(PYTHON)
    python.chmod(0o755)
    (tmp_path / "d2l").mkdir()  # cloned already
    given = {"packages": "torch", "index": "http://127.0.0.1:1/simple"}
    script = parts(load_template(name, search=(), settings={name: given}))["on_start"]
    places = {"CLOUDGPU_ENVIRONMENTS": str(tmp_path / "environments"), "HOME": str(tmp_path / "nobody")}
    environ = {
        **os.environ,
        **places,
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "CALLS": str(tmp_path / "calls"),
    }
    subprocess.run(["sh", "-e"], input=script, env=environ, text=True, cwd=tmp_path, check=True, capture_output=True)
    calls = [line.split("--disable-pip-version-check ")[1] for line in (tmp_path / "calls").read_text().splitlines()]
    assert calls[0] == "--index-url http://127.0.0.1:1/simple torch"
    assert calls[-2:] == ["--index-url http://127.0.0.1:1/simple ipykernel", "ipykernel"]
    assert (tmp_path / "environments" / name / "prepared").exists()
    assert not (tmp_path / "nobody").exists()


@pytest.fixture
def root(tmp_path):
    """A machine for the CUDA script: its programs are stand-ins that write down how they were called."""
    programs = tmp_path / "bin"
    programs.mkdir()
    calls = tmp_path / "calls"
    stub = f'#!/bin/sh\necho "$(basename "$0") $*" >> {calls}\n'
    for name in ("apt-get", "dpkg", "curl", "modprobe", "nvidia-smi"):
        (programs / name).write_text(stub)
    (programs / "dpkg-query").write_text(f"#!/bin/sh\ngrep -qs '^dpkg --install' {calls}\n")
    (programs / "uname").write_text('#!/bin/sh\n[ "$1" = -r ] && echo 6.8.0-1-aws || echo x86_64\n')
    for one in programs.iterdir():
        one.chmod(0o755)
    (tmp_path / "os-release").write_text('ID=ubuntu\nVERSION_ID="22.04"\n')
    return tmp_path


def cuda(root, **settings):
    """Run the script of the template on it; its two absolute paths are put below `root`."""
    shipped = load_template("cuda", search=(), settings={"cuda": settings})
    (file,) = yaml.safe_load(parts(shipped)["cloud_init"])["write_files"]
    script = file["content"].replace("/etc/os-release", f"{root}/os-release").replace("/etc/profile.d", str(root))
    environ = {**os.environ, "PATH": f"{root / 'bin'}:{os.environ['PATH']}", "TMPDIR": str(root)}
    return subprocess.run(["sh"], input=script, env=environ, text=True, capture_output=True, check=False)


def test_the_cuda_script_installs_driver_and_toolkit_from_nvidias_repository(root):
    done = cuda(root, driver="nvidia-driver-pinning-590 cuda-drivers", toolkit="cuda-toolkit-13-0")
    assert done.returncode == 0, done.stderr
    calls = (root / "calls").read_text().splitlines()
    curl = next(line for line in calls if line.startswith("curl "))
    assert curl.endswith("/compute/cuda/repos/ubuntu2204/x86_64/cuda-keyring_1.1-1_all.deb")
    assert calls[-3].endswith(" linux-headers-6.8.0-1-aws nvidia-driver-pinning-590 cuda-drivers cuda-toolkit-13-0")
    assert "/usr/local/cuda/bin" in (root / "cloudgpu-cuda.sh").read_text()
    again = cuda(root)
    assert again.returncode == 0
    assert sum(line.startswith("dpkg --install") for line in (root / "calls").read_text().splitlines()) == 1


def test_the_cuda_script_refuses_a_system_that_it_does_not_know(root):
    (root / "os-release").write_text("ID=amzn\nVERSION_ID=2023\n")
    done = cuda(root)
    assert (done.returncode, done.stderr) == (1, "cloudgpu-cuda: amzn is neither Ubuntu nor Debian\n")
    assert not (root / "calls").exists()
