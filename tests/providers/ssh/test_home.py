"""What a template makes in the home of somebody who works there, and what of it stays after `down`.

`test_by_command.py` compares a whole home around the template `jupyter`, with a cell that runs; `test_homes.py` of the
soak does so for each template.
"""

from __future__ import annotations

import json
import subprocess

import pytest

from cloudgpu.core.facts import Part
from cloudgpu.providers.base import Remains
from tests.access.sshserver import wait_for
from tests.providers.ssh.homes import everything, furnish, parts_of


@pytest.fixture
def host(lab):
    furnish(lab.hosts[0].home)
    return lab.hosts[0]


def launched(lab, host, parts, **more):
    made = lab.launch(parts=parts, jupyter=("jupyter", "lab"), **more)
    if any(part.kind == "on_start" for part in parts):
        ended(host)
    return made


def ended(host, status="0"):
    """Wait for the end of on_start."""
    file = host.place / "on_start.status"
    wait_for(lambda: file.read_text().strip() not in ("", "running"), 90)
    assert file.read_text().strip() == status, (host.place / "on_start.log").read_text()


def test_what_a_template_makes_is_shown_in_a_directory_of_its_own(lab, host):
    made = launched(lab, host, parts_of("jupyter"))
    shown = host.home / "cloudgpu-one-2"  # cloudgpu-one is the owner's
    assert [path.name for path in shown.iterdir()] == ["hello.ipynb"]
    assert (host.home / "hello.ipynb").read_text() == "my own notebook"
    assert json.loads((host.place / "record.json").read_text())["work"]["path"] == str(shown)
    lab.provider.terminate(made.id)
    assert not shown.exists()


def test_what_the_owner_changed_or_added_stays_and_is_named(lab, host):
    script = "mkdir -p book/empty; for one in a b c; do echo $one > book/$one.ipynb; done; echo top > top.txt"
    made = launched(lab, host, [Part("on_start", script)])
    shown = host.home / "cloudgpu-one-2"
    (shown / "book" / "b.ipynb").write_text("edited")
    (shown / "book" / "mine.txt").write_text("added")
    (shown / "data").mkdir()
    for one in ("a", "b"):  # Jupyter makes a copy of each notebook that it opens
        copy = shown / "book" / ".ipynb_checkpoints" / f"{one}-checkpoint.ipynb"
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(f"{one}\n")
    provider = lab.provider
    provider.terminate(made.id)
    stays = ["book/.ipynb_checkpoints/b-checkpoint.ipynb", "book/b.ipynb", "book/mine.txt", "data"]
    assert sorted(str(path.relative_to(shown)) for path in shown.rglob("*") if path.is_file()) == stays[:-1]
    assert provider.remains(made.id) == Remains(str(shown), tuple(stays), len(stays))
    assert not host.place.exists()


def git(*words, cwd):
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    return subprocess.run(["git", *who, *words], cwd=cwd, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("worked", [True, False])
def test_a_clone_that_the_owner_committed_to_stays_whole(lab, host, worked):
    before = everything(host.home)
    commit = "git -c user.name=t -c user.email=t@example.org commit --quiet -m one"
    made = launched(lab, host, [Part("on_start", f"git init -q book; cd book; echo 1 > one; git add one; {commit}")])
    book = host.home / "cloudgpu-one-2" / "book"
    if worked:
        (book / "two").write_text("2")
        git("add", "two", cwd=book)
        git("commit", "-m", "two", cwd=book)
    git("status", cwd=book)  # writes the index, and nothing of the owner's
    provider = lab.provider
    provider.terminate(made.id)
    if worked:
        assert provider.remains(made.id) == Remains(str(book.parent), ("book/",), 1)
        assert git("status", "--short", cwd=book) == ""
        assert git("log", "--format=%s", cwd=book).split() == ["two", "one"]
    else:
        assert everything(host.home) == before
