"""docs/library.md runs: its code blocks, one after the other, are one program, and so are its five programs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import cloudgpu
from cloudgpu.testing import write_plugin

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
_PROGRAM = re.compile(r"<!-- program (\S+) -->\n(.*?)<!-- end of program -->\n", re.DOTALL)
_BLOCK = re.compile(r"^```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = {name: _BLOCK.findall(text) for name, text in _PROGRAM.findall(PAGE)}

# A driver that this computer need not have: GPUs of the local provider are those that `nvidia-smi` names.
NVIDIA_SMI = """#!/bin/sh
case "$1" in
*name,memory.total*) printf 'NVIDIA Tesla V100-SXM2-16GB, 16384\\nNVIDIA A100-SXM4-40GB, 40960\\n';;
*) exit 1;;
esac
"""


@pytest.fixture
def place(tmp_path, own_home, monkeypatch):
    """A directory with the programs of the page; what one that was cut short has left is ended."""
    for name, blocks in PROGRAMS.items():
        (tmp_path / Path(name).name).write_text(blocks[0])
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvidia-smi").write_text(NVIDIA_SMI)
    (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path}")
    yield tmp_path
    subprocess.run([sys.executable, "-m", "cloudgpu", "down", "--all", "--yes"], capture_output=True, check=False)


def run(place, *argv):
    return subprocess.run([sys.executable, *argv], cwd=place, capture_output=True, text=True, timeout=100, check=False)


def test_the_pages_program_runs_from_the_first_block_to_the_last(tmp_path, own_home):
    blocks = re.findall(r"^```python\n(.*?)^```$", _PROGRAM.sub("", PAGE), re.MULTILINE | re.DOTALL)
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    program = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n" + "\n".join(blocks)
    done = run(tmp_path, "-c", program)
    assert done.returncode == 0, done.stderr
    assert "2 data.csv" in done.stdout
    assert "JupyterLab answers on port" in done.stdout
    assert "Nothing like that: " in done.stdout
    assert "not_found 7 name nobody False" in done.stdout
    assert done.stdout.endswith("[]\n"), "the machine is gone"


def test_the_sweep_runs_on_each_gpu_that_is_there_and_the_report_tells_of_it(place, own_home):
    done = run(place, "sweep.py")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0].startswith("t4: skipped. ")
    assert [line.split()[:2] for line in said[1:3]] == [["v100:", "trained"], ["a100:", "trained"]]
    assert re.fullmatch(r"sweep has cost 0\.0\d+ USD", said[3])
    with cloudgpu.connect(home=own_home) as gpu:
        ended = {machine["name"]: machine["state"] for machine in gpu.machines.ls(all=True)["machines"]}
    assert ended == {"sweep-v100": "terminated", "sweep-a100": "terminated"}
    report = run(place, "nightly_report.py", "report.html")
    assert report.returncode == 0, report.stderr
    assert "USD in seven days: report.html" in report.stdout
    assert "sweep-v100" in (place / "report.html").read_text()


def test_a_sweep_that_its_budget_does_not_admit_launches_nothing(place, own_home):
    done = run(place, "sweep.py", "0.0001")
    assert done.returncode == 3, done.stdout
    assert [line[:13] for line in done.stdout.splitlines()] == ["t4: skipped. "]
    assert done.stderr.startswith("error: Budget sweep ")
    assert done.stderr.count("\n") == 1
    with cloudgpu.connect(home=own_home) as gpu:
        assert gpu.machines.ls(all=True)["machines"] == []


def test_a_budget_that_is_no_amount_is_one_sentence(place):
    done = run(place, "sweep.py", "much")
    assert done.returncode == 2
    assert done.stderr.startswith("error: 'much' is not an amount above zero.")


def test_the_sweep_of_jobs_brings_every_loss_back_and_leaves_no_machine(place, own_home):
    done = run(place, "sweep_jobs.py")
    assert done.returncode == 0, done.stdout + done.stderr
    head, *rows, total = done.stdout.splitlines()
    assert head.split() == ["job", "state", "loss", "USD"]
    assert [row.split()[:3] for row in rows] == [
        ["lr-0-01", "succeeded", "1.19"], ["lr-0-1", "succeeded", "1.83e-09"], ["lr-0-4", "succeeded", "0"],
    ]  # fmt: skip
    assert re.fullmatch(r"sweep-jobs has cost 0\.0\d+ USD", total)
    with cloudgpu.connect(home=own_home) as gpu:
        assert gpu.machines.ls()["machines"] == []


def test_a_sweep_of_jobs_whose_budget_admits_one_says_why_the_others_were_not_launched(place):
    done = run(place, "sweep_jobs.py", "0.4")
    assert done.returncode == 1, done.stdout + done.stderr
    _, *rows, _ = done.stdout.splitlines()
    states = sorted(row.split()[1] for row in rows)
    assert states == ["not_launched", "not_launched", "succeeded"]
    assert all("Budget sweep-jobs does not allow" in row for row in rows if "not_launched" in row)


def test_a_sweep_of_jobs_whose_budget_admits_none_begins_none(place, own_home):
    done = run(place, "sweep_jobs.py", "0.0001")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: Budget sweep-jobs does not allow")
    with cloudgpu.connect(home=own_home) as gpu:
        assert gpu.jobs.list(ended=True)["jobs"] == []


def test_a_nightly_report_without_its_file_says_how_it_is_used(place):
    done = run(place, "nightly_report.py")
    assert (done.returncode, done.stderr) == (1, "usage: python nightly_report.py FILE\n")


def test_a_plug_in_that_is_not_installed_is_one_sentence(place):
    done = run(place, "borrow.py")
    assert done.returncode == 2
    assert done.stderr.startswith("error: There is no provider 'shelf'")
    assert done.stderr.count("\n") == 1


def test_a_nightly_report_of_a_wrong_home_is_refused(place):
    done = run(place, "nightly_report.py", "report.html")
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ")
    assert not (place / "report.html").exists()


def test_the_notebook_opens_its_own_machine_and_ends_it(place, own_home):
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in PROGRAMS["examples/own_machine.ipynb"]]
    )
    kernel = {"path": str(place)}
    NotebookClient(notebook, timeout=100, kernel_name="python3", resources={"metadata": kernel}).execute()
    said = "".join(output.get("text", "") for cell in notebook.cells for output in cell.outputs)
    assert "own-machine answers on port" in said
    assert "hello from Linux" in said or "hello from Darwin" in said
    assert said.endswith("['own-machine'] is gone\n")
    with cloudgpu.connect(home=own_home) as gpu:
        assert gpu.machines.ls()["machines"] == []


@pytest.fixture
def shelf(place, own_home):
    """The plug-in, found as an installed one is, and an account with the boxes of the page."""
    written = tomllib.loads((place / "pyproject.toml").read_text())["project"]
    write_plugin(place, written["entry-points"]["cloudgpu.providers"], name=written["name"])
    (settings,) = re.findall(r"^```toml\n(\[accounts\.lab\].*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (own_home / "config.toml").write_text(settings)
    return place


def test_the_plug_in_lends_a_box_and_takes_it_back(shelf):
    done = run(shelf, "borrow.py")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^borrowed is running until \S+Z\nreturned: borrowed\n$", done.stdout)


def test_the_plug_in_has_no_fourth_box(shelf):
    for _ in range(3):
        up = run(shelf, "-m", "cloudgpu", "up", "--provider", "shelf", "--new", "--no-wait", "--yes", "--no-guard")
        assert up.returncode == 0, up.stderr
    done = run(shelf, "borrow.py")
    assert done.returncode == 4, done.stderr
    assert done.stdout.splitlines()[0] == "Every box is lent."
    assert done.stdout.count("has one until") == 3


def test_the_plug_in_passes_the_suite_of_every_provider(shelf):
    (shelf / "test_shelf.py").write_text("""
from datetime import UTC, datetime

import cloudgpu_shelf
import pytest
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.testing import HasPricesContract, ProviderContract


class TestShelf(ProviderContract, HasPricesContract):
    cannot_happen = {"lose_reply": "the shelf is a file: a launch is no call over a network"}

    def sell_out(self, provider, item):
        provider._boxes = ()

    @pytest.fixture
    def factory(self):
        return cloudgpu_shelf.make

    @pytest.fixture
    def settings(self, tmp_path):
        boxes = [f"box-{number}" for number in range(20)]
        return ProviderSettings("lab", {"boxes": boxes}, tmp_path / "shelf", lambda: datetime.now(UTC))
""")
    done = run(shelf, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shelf.py")
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d\d passed", done.stdout)


def test_each_program_is_the_file_that_the_page_names():
    for name, blocks in PROGRAMS.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        if name.endswith(".ipynb"):
            cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
            assert ["".join(cell["source"]) + "\n" for cell in cells] == blocks
        else:
            assert blocks == [text]
    assert len(PROGRAMS) == 7


def test_the_page_says_of_each_error_whether_the_same_call_may_be_repeated():
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| .* \| (yes|no) \|$", PAGE, re.MULTILINE)
    classes = {name for name in cloudgpu.__all__ if isinstance(getattr(cloudgpu, name), type)} - {"Cloudgpu"}
    assert {name for name, *_ in rows} == classes
    for name, code, repeat in rows:
        kind = getattr(cloudgpu, name)
        assert (int(code), repeat == "yes") == (kind.exit_code, kind.retryable), name
