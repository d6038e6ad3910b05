"""What a template makes in the home of somebody who works there, and what of it stays after `down`.

`test_by_command.py` compares a whole home around the template `jupyter`, with a cell that runs; `test_homes.py` of the
soak does so for each template.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from cloudgpu.core.model.launch import BootPart
from cloudgpu.providers.abilities import RemainingFiles
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


@pytest.mark.soak
def test_what_a_template_makes_is_shown_in_a_directory_of_its_own(lab, host):
    made = launched(lab, host, parts_of("jupyter"))
    shown = host.home / "cloudgpu-one-2"  # cloudgpu-one is the owner's
    assert [path.name for path in shown.iterdir()] == ["hello.ipynb"]
    assert (host.home / "hello.ipynb").read_text() == "my own notebook"
    assert json.loads((host.place / "record.json").read_text())["work"]["path"] == str(shown)
    lab.provider.terminate(made.id)
    assert not shown.exists()


@pytest.mark.soak
def test_what_the_owner_changed_or_added_stays_and_is_named(lab, host):
    script = "mkdir -p book/empty; for one in a b c; do echo $one > book/$one.ipynb; done; echo top > top.txt"
    made = launched(lab, host, [BootPart("on_start", script)])
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
    assert provider.remains(made.id) == RemainingFiles(str(shown), tuple(stays), len(stays))
    assert not host.place.exists()


def test_what_stays_of_a_machine_is_told_by_who_ended_it(lab):
    host = lab.hosts[0]
    shown, made = host.home / "cloudgpu-one", f"bigbox.{'0' * 16}"
    shown.mkdir()
    (shown / "mine.txt").write_text("added")
    host.place.mkdir()
    work = {"path": str(shown), "inode": shown.stat().st_ino}
    here = lab.provider.identity("bigbox").id.partition("/")[0]
    record = {"id": made, "name": "one", "machine": "cg-1", "wanted": "terminated", "work": work, "computer": here}
    (host.place / "record.json").write_text(json.dumps(record))
    provider = lab.provider
    provider.terminate(made)
    assert provider.remains(made) == RemainingFiles(str(shown), ("mine.txt",), 1)
    assert (shown / "mine.txt").exists()


def git(*words, cwd):
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    return subprocess.run(["git", *who, *words], cwd=cwd, check=True, capture_output=True, text=True).stdout


@pytest.mark.soak
@pytest.mark.parametrize("worked", [True, False])
def test_a_clone_that_the_owner_committed_to_stays_whole(lab, host, worked):
    before = everything(host.home)
    commit = "git -c user.name=t -c user.email=t@example.org commit --quiet -m one"
    made = launched(
        lab, host, [BootPart("on_start", f"git init -q book; cd book; echo 1 > one; git add one; {commit}")]
    )
    book = host.home / "cloudgpu-one-2" / "book"
    if worked:
        (book / "two").write_text("2")
        git("add", "two", cwd=book)
        git("commit", "-m", "two", cwd=book)
    git("status", cwd=book)  # writes the index, and nothing of the owner's
    provider = lab.provider
    provider.terminate(made.id)
    if worked:
        assert provider.remains(made.id) == RemainingFiles(str(book.parent), ("book/",), 1)
        assert git("status", "--short", cwd=book) == ""
        assert git("log", "--format=%s", cwd=book).split() == ["two", "one"]
    else:
        assert everything(host.home) == before


@pytest.mark.soak
def test_a_clone_that_the_owner_made_there_keeps_what_is_staged(lab, host):
    made = launched(lab, host, [BootPart("on_start", "mkdir book; echo 1 > book/one")])
    mine = host.home / "cloudgpu-one-2" / "mine"
    git("init", "--quiet", str(mine), cwd=host.home)
    (mine / "kept").write_text("kept")
    git("add", "kept", cwd=mine)
    provider = lab.provider
    provider.terminate(made.id)
    assert git("status", "--short", cwd=mine) == "A  kept\n"
    assert provider.remains(made.id).files == ("mine/",)


@pytest.mark.soak
def test_a_script_runs_again_after_the_owner_moved_away_what_it_had_made(lab, host):
    script = "[ -e book ] || { mkdir part; echo 1 > part/one; mv part book; }"
    made = launched(lab, host, [BootPart("on_start", script)])
    shown, elsewhere = host.home / "cloudgpu-one-2", host.home / "elsewhere"
    (shown / "book").rename(elsewhere)
    lab.provider.stop(made.id)
    (host.place / "on_start.status").unlink()
    lab.provider.start(made.id)
    wait_for((host.place / "on_start.status").exists, 90)
    ended(host)
    assert (shown / "book" / "one").read_text() == "1\n"
    lab.provider.terminate(made.id)
    assert not shown.exists()
    assert (elsewhere / "one").read_text() == "1\n"


WITH_MOUNTS = """
import sys
from pathlib import Path
from cloudgpu.providers.ssh import host, owned
owned.MOUNTS = Path(sys.argv[1])
if sys.argv[2] == "publish":
    host.publish(host.read_record())
else:
    host.remove_machine(host.read_record())
    print(host.REMAINING_FILES["files"])
"""


def with_mounts(home, verb, *mounted):
    """Run a part of the host's program in a home where, as far as /proc says, these directories are mounts."""
    lines = "".join(f"36 35 98:0 / {str(one).replace(' ', chr(92) + '040')} rw - ext4 /dev/a rw\n" for one in mounted)
    (home.parent / "mountinfo").write_text(lines)
    command = [sys.executable, "-c", WITH_MOUNTS, str(home.parent / "mountinfo"), verb]
    return subprocess.run(command, env={**os.environ, "HOME": str(home)}, capture_output=True, text=True, check=False)


def test_what_is_mounted_in_a_directory_of_the_machine_is_never_deleted(tmp_path):
    home = tmp_path / "home"
    share = home / ".cloudgpu" / "work" / "book" / "my share"
    share.mkdir(parents=True)
    (share / "file").write_text("on a server")
    (home / ".cloudgpu" / "record.json").write_text(json.dumps({"id": "one", "name": "one", "machine": "one"}))
    refused = with_mounts(home, "remove", share)
    assert f"something is mounted at {share}, and what is in it would be deleted" in refused.stderr
    assert (share / "file").exists()
    moved = home / "cloudgpu-one" / "book" / "my share"
    assert with_mounts(home, "publish", share).returncode == 0
    removed = with_mounts(home, "remove", moved)
    assert removed.stdout == "['book/my share']\n"
    assert (moved / "file").read_text() == "on a server"
    assert not (home / ".cloudgpu").exists()
