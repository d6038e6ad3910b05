from __future__ import annotations

import json
import os
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from cloudgpu.config.files.yaml import parse_yaml, read_yaml
from cloudgpu.config.templates.find import load_template, template_from, template_names
from cloudgpu.config.templates.render import engine_parts
from cloudgpu.core.model.launch import BootPart
from cloudgpu.errors import InvalidRequest

FILE = Path("/somewhere/t.yaml")


def template(text):
    return template_from(parse_yaml(text, FILE), "t")


def fault(text):
    with pytest.raises(InvalidRequest) as caught:
        template(text)
    return caught.value


def test_the_shipped_template_serves_jupyter():
    shipped = load_template("jupyter", search=())
    assert shipped.jupyter == ("jupyter", "lab")
    assert {part.kind for part in shipped.parts()} == {"disk_gb", "on_start"}
    assert shipped.description


def test_the_shipped_notebook_runs_and_an_edited_one_stays(tmp_path):
    script = load_template("jupyter", search=()).on_start
    for _turn in range(2):
        subprocess.run(["sh", "-eu"], input=script, text=True, cwd=tmp_path, check=True, timeout=30)
    notebook = json.loads((tmp_path / "hello.ipynb").read_text())
    code = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert notebook["nbformat"] == 4
    for source in code:
        exec(compile(source, "cell", "exec"), {})  # noqa: S102
    (tmp_path / "hello.ipynb").write_text("edited")
    subprocess.run(["sh", "-eu"], input=script, text=True, cwd=tmp_path, check=True, timeout=30)
    assert (tmp_path / "hello.ipynb").read_text() == "edited"


def test_every_key_becomes_a_part_in_the_order_of_a_first_boot():
    full = template(
        "description: all of it\n"
        "jupyter: [jupyter, lab, --collaborative]\n"
        "image: debian-12\n"
        "disk_gb: 50\n"
        "packages: [git, tmux]\n"
        "cloud_init: |\n  {{ user }}\n"
        "on_start: echo hello\n"
    )
    assert full.jupyter == ("jupyter", "lab", "--collaborative")
    assert full.parts() == (
        BootPart("image", "debian-12"),
        BootPart("disk_gb", "50"),
        BootPart("packages", "git\ntmux"),
        BootPart("cloud_init", "{{ user }}\n"),
        BootPart("on_start", "echo hello"),
    )


def test_an_engine_is_one_of_two_words_and_brings_its_packages_with_services_that_stay_off():
    assert (template("engine: slurm").engine, template("engine: none").engine, template("description: x").engine) == (
        "slurm",
        "none",
        None,
    )
    said = fault("engine: ray")
    assert (said.value, said.next) == ("ray", f"Write one of: slurm, none. ({FILE})")
    packages, masked = engine_parts("slurm")
    assert packages == BootPart("packages", "slurm-wlm\nmunge")
    assert parse_yaml(masked.text, FILE).values == {"bootcmd": [["systemctl", "mask", "munge", "slurmd", "slurmctld"]]}
    assert engine_parts("none") == ()


def test_what_a_template_leaves_out_is_no_part():
    assert template("jupyter: false").parts() == ()
    assert template("jupyter: false").jupyter == ()


def test_the_first_directory_wins_and_the_shipped_comes_last(tmp_path):
    first, second = tmp_path / "project", tmp_path / "user"
    for directory, text in ((first, "project's"), (second, "user's")):
        directory.mkdir()
        (directory / "jupyter.yaml").write_text(f"description: {text}")
    assert load_template("jupyter", search=(first, second)).description == "project's"
    assert load_template("jupyter", search=(tmp_path / "none", second)).description == "user's"
    (second / "own.yaml").write_text("description: mine")
    (second / "Not A Name.yaml").write_text("")
    assert template_names(search=(first, second)) == (
        "bare",
        "cuda",
        "d2l",
        "jupyter",
        "ngc",
        "ngc-rapids",
        "ngc-tensorflow",
        "own",
        "pytorch",
    )


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("jupiter", "did you mean 'jupyter'?"),
        ("zzz", "Use one of: bare, cuda, d2l, jupyter, ngc, ngc-rapids, ngc-tensorflow, pytorch"),
    ],
)
def test_an_unknown_name_is_answered_with_the_near_one_and_all_there_are(tmp_path, name, says):
    with pytest.raises(InvalidRequest) as caught:
        load_template(name, search=(tmp_path,))
    assert (caught.value.field, caught.value.value) == ("template", name)
    assert says in f"{caught.value.message} {caught.value.next}"
    assert str(tmp_path / f"{name}.yaml") in caught.value.next


@pytest.mark.parametrize("name", ["../jupyter", "/etc/passwd", "a/b", "", ".", "jupyter.yaml", "A", "x" * 41])
def test_a_name_cannot_be_a_path(tmp_path, name):
    (tmp_path / "jupyter.yaml").write_text("description: outside")
    (tmp_path / "in").mkdir()
    with pytest.raises(InvalidRequest, match="cannot be a template's name"):
        load_template(name, search=(tmp_path / "in",))


BAD = [
    # text, line, key, value, a word of the sentence or the way out
    ("jupyter: true\njupytre: true", 2, "jupytre", "true", "did you mean 'jupyter'?"),
    ("description: 3", 1, "description", "3", "in quotes"),
    ("description: |\n  a\n  b", 1, "description", "a\\nb", "one line"),
    ('description: "\\e[2J"', 1, "description", "\\x1b[2J", "one line"),
    ("description: x\n\ndisk_gb: big", 3, "disk_gb", "big", "whole number from 1 to 65,536"),
    ("disk_gb: 0", 1, "disk_gb", "0", "whole number"),
    ("disk_gb: -5", 1, "disk_gb", "-5", "whole number"),
    ("disk_gb: 1.5", 1, "disk_gb", "1.5", "whole number"),
    ("disk_gb: true", 1, "disk_gb", "true", "whole number"),
    ("disk_gb:", 1, "disk_gb", None, "whole number"),
    ("disk_gb: 70000", 1, "disk_gb", "70000", "whole number"),
    ("jupyter: maybe", 1, "jupyter", "maybe", "jupyter: true"),
    ("jupyter: []", 1, "jupyter", "a list", "jupyter: true"),
    ("jupyter: [jupyter, 3]", 1, "jupyter[1]", "3", "one line of text"),
    ("packages: git", 1, "packages", "git", "- item"),
    ("packages:\n  - git\n  - [tmux]", 3, "packages[1]", "a list", "one line of text"),
    ('packages:\n  - ""', 2, "packages[0]", "", "one line of text"),
    ("on_start: [a]", 1, "on_start", "a list", "text"),
    ("on_start:\n  a: b", 1, "on_start", "a table", "text"),
]


@pytest.mark.parametrize(("text", "line", "key", "value", "says"), BAD, ids=[row[0][:30] for row in BAD])
def test_a_fault_names_line_key_value_and_way_out(text, line, key, value, says):
    error = fault(text)
    assert (error.exit_code, error.field, error.value) == (2, f"t.yaml:{line}: {key}", value)
    assert says in f"{error.message} {error.next}"
    assert str(FILE) in error.next


UNREADABLE = [
    ("", 1, "no `key: value` lines"),
    ("- a", 1, "no `key: value` lines"),
    ("just text", 1, "no `key: value` lines"),
    ("a: 1\nb: c: d", 2, "mapping values are not allowed here"),
    ("on_start:\n\t- x", 2, "not valid YAML"),
    ("a: 'open", 1, "not valid YAML"),
    ("a: 1\nb: 2\na: 3", 3, "says a a second time; the first is on line 1"),
    ("a:\n  b: 1\n  b: 2", 3, "says b a second time"),
    ("a: &x 1", 1, "anchor"),
    ("b: 1\na: *x", 2, "alias"),
    ("a: !!python/object/apply:os.system [true]", 1, "tag"),
    ("a: 1\nb: !secret x", 2, "tag"),
    ("a: " + "[" * 5000, 1, "nests more than 12 deep"),
    ("a: " + "{b: " * 5000, 1, "nests more than 12 deep"),
    ("---\na: 1\n---\nb: 2", 3, "second document"),
    ("{[a]: 1}", 1, "key that is not text"),
    ("1: 2", 1, "key that is not text"),
    ("true: 2", 1, "key that is not text"),
    ("? \n: 2", 1, "key that is not text"),
    ("a: 1\nb: \x01", 2, "character"),
    ("%YAML 9.9\n---\na: 1", 1, "not valid YAML"),
    ("#" * (128 * 1024 + 1), 1, "larger than 128 KiB"),
]


@pytest.mark.parametrize(("text", "line", "says"), UNREADABLE, ids=[row[0][:30] for row in UNREADABLE])
def test_what_is_no_plain_table_is_refused_with_its_line(text, line, says):
    error = fault(text)
    assert (error.exit_code, error.field) == (2, f"t.yaml:{line}")
    assert says in error.message


def test_scalars_are_what_they_look_like():
    table = parse_yaml(
        "on: no\nyes: on\nday: 2026-11-20\ntime: 12:30\noctal: 010\nhex: 0x1F\nprice: 0.1\nhalf: .5\nwhole: -3\n"
        "big: 12345678901234567890\nnot: .nan\nempty:\nnull_: null\ntrue_: true\nfalse_: false\n"
        "quoted: '1'\nexp: 1e3\n",
        FILE,
    )
    assert table.values == {
        "on": "no",
        "yes": "on",
        "day": "2026-11-20",
        "time": "12:30",
        "octal": 10,
        "hex": "0x1F",
        "price": Decimal("0.1"),
        "half": Decimal("0.5"),
        "whole": -3,
        "big": "12345678901234567890",
        "not": ".nan",
        "empty": None,
        "null_": None,
        "true_": True,
        "false_": False,
        "quoted": "1",
        "exp": "1e3",
    }


@given(st.text(alphabet=st.sampled_from("ab:-[]{}#&*!|>'\"%@ \n\t0.,?<=~`é\x00\ud800"), max_size=60))
def test_whatever_the_text_it_is_read_or_refused(text):
    try:
        template(text)
    except InvalidRequest as refused:
        check_clear(refused)


def check_clear(error):
    assert error.field.startswith("t.yaml:")
    assert error.message.isprintable()


def test_a_file_that_is_absent_is_none_and_a_directory_is_refused(tmp_path):
    assert read_yaml(tmp_path / "none.yaml") is None
    (tmp_path / "dir.yaml").mkdir()
    with pytest.raises(InvalidRequest, match=r"dir\.yaml is a directory"):
        read_yaml(tmp_path / "dir.yaml")


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "own.yaml")
    with pytest.raises(InvalidRequest, match="is not a file"):
        load_template("own", search=(tmp_path,))
