"""Copies by a real OpenSSH server of names that are no text, odd files, and what cannot be read on the way."""

from __future__ import annotations

import os
import socket

import pytest

from cloudgpu.access.copy.copy import copy
from cloudgpu.access.ssh.connection import connect
from cloudgpu.core.values.printable import printable
from cloudgpu.errors import InvalidRequest
from tests.access.opensshd import opensshd

BOTH_WAYS = pytest.mark.parametrize("upload", [True, False], ids=["up", "down"])
ODD = ["café", "two\nlines", "\x1b[31mred\x1b[0m", "-rf", "--help", " ", "a'b\"c\\d$e`f*?", "Makefile", "makefile"]
ODD += ["n" * 255, *map(os.fsdecode, (b"caf\xe9.txt", b"\xff\xfe"))]
E = os.fsdecode(b"\xe9")  # an e with an acute accent in Latin-1: no UTF-8


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with opensshd(tmp_path_factory.mktemp("openssh")) as server, connect(server.target, timeout=20) as connection:
        yield server, connection


@pytest.fixture
def sides(served, tmp_path):
    """Return source and target, two empty directories, and a function that copies from one to the other."""
    server, connection = served
    there, here = server.home / str(len(list(server.home.iterdir()))), tmp_path / "here"
    there.mkdir()
    here.mkdir()

    def between(upload):
        def move(name="tree", destination="", **more):
            if upload:
                return copy(connection, [f"{here}/{name}"], f"box:{there.name}/{destination}", **more)
            return copy(connection, [f"box:{there.name}/{name}"], f"{here}/{destination}", **more)

        return *((here, there) if upload else (there, here)), move

    return between


def content(root):
    """Return all below `root`: what a file holds, None for a directory."""
    return {
        os.fsencode(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")
    }


@BOTH_WAYS
def test_names_are_copied_byte_for_byte(sides, upload):
    source, target, move = sides(upload)
    inner = source / "tree" / f"dir{E}"
    (inner / f"in{E}").mkdir(parents=True)
    for name in ODD:
        (source / "tree" / name).write_bytes(os.fsencode(name))
        (inner / name).write_bytes(b"inner" + os.fsencode(name))
    done = move()
    assert (done.files, done.skipped, done.failed) == (2 * len(ODD), (), ())
    assert content(target) == content(source)
    for name in (f"caf{E}.txt", "two\nlines", "-rf"):
        move(f"tree/{name}")
        move(f"tree/{name}", f"new{E}")
        assert (target / f"new{E}").read_bytes() == (target / name).read_bytes() == os.fsencode(name)


@BOTH_WAYS
def test_links_of_such_names_to_such_names_are_followed(sides, upload):
    source, target, move = sides(upload)
    tree, real = source / "tree", source / "tree" / f"r{E}al"
    real.mkdir(parents=True)
    (real / f"fil{E}").write_text("1")
    (tree / f"link{E}").symlink_to(real.name)
    (tree / "one").symlink_to(f"{real.name}/fil{E}")
    (tree / f"lost{E}").symlink_to(f"nowh{E}re")
    done = move()
    assert content(target / "tree") == {
        b"r\xe9al": None,
        b"r\xe9al/fil\xe9": b"1",
        b"link\xe9": None,
        b"link\xe9/fil\xe9": b"1",
        b"one": b"1",
    }
    assert [path.endswith("tree/lost\\xe9'") for path in done.skipped] == [True]
    (real / f"{E}up").symlink_to("..")
    with pytest.raises(InvalidRequest, match="circle") as caught:
        move()
    assert caught.value.message.isprintable()


@BOTH_WAYS
def test_what_is_no_file_is_named_and_never_waited_for(sides, upload, monkeypatch):
    source, target, move = sides(upload)
    tree = source / "tree"
    tree.mkdir()
    os.mkfifo(tree / "p\x1bipe")
    monkeypatch.chdir(tree)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")  # its path has to be short
    (tree / "device").symlink_to("/dev/null")
    (tree / "file").write_text("x")
    done = move()
    assert content(target) == {b"tree": None, b"tree/file": b"x"}
    assert sorted(path.rsplit("/", 1)[1] for path in done.skipped) == ["device", "p\\x1bipe'", "socket"]
    for name in ("p\x1bipe", "device"):
        with pytest.raises(InvalidRequest, match="is neither a file nor a directory") as caught:
            move(f"tree/{name}")
        assert caught.value.message.isprintable()


@BOTH_WAYS
def test_a_path_that_cannot_be_copied_keeps_no_other_from_it(sides, upload):
    source, target, move = sides(upload)
    (source / "tree" / "under").mkdir(parents=True)
    for name in ("a", "taken", "z", "under/x"):
        (source / "tree" / name).write_text(name)
    (target / "tree" / "taken" / "by a directory").mkdir(parents=True)
    (target / "tree" / "under").write_text("a file")
    done = move()
    assert (done.files, [fault.value.rsplit("/", 1)[1] for fault in done.failed]) == (2, ["under", "taken"])
    assert done.bytes == len("a" + "z")  # what arrived of the others does not count
    assert content(target / "tree") == {
        b"a": b"a",
        b"z": b"z",
        b"taken": None,
        b"taken/by a directory": None,
        b"under": b"a file",
    }


@BOTH_WAYS
def test_a_directory_that_is_gone_before_it_gets_its_permissions_keeps_no_other_from_its_own(sides, upload):
    source, target, move = sides(upload)
    for name in ("a", "gone"):
        (source / "tree" / name).mkdir(parents=True)
    (source / "tree" / "file").write_text("x")
    for name in ("a", "."):
        (source / "tree" / name).chmod(0o750)

    def remove_one(done_bytes, total_bytes):
        if done_bytes == total_bytes and (target / "tree" / "gone").exists():
            (target / "tree" / "gone").rmdir()

    done = move(progress=remove_one)
    assert [fault.value.rsplit("/", 1)[1] for fault in done.failed] == ["gone"]
    assert (done.files, done.bytes) == (1, 1)
    assert [(target / "tree" / name).stat().st_mode & 0o777 for name in ("a", ".")] == [0o750, 0o750]


@BOTH_WAYS
def test_a_file_that_is_gone_or_shorter_by_its_turn_is_left_out_alone(sides, upload, monkeypatch):
    """It changes as soon as it is known what is to be copied: nothing here depends on who is faster."""
    import cloudgpu.access.copy.copy as module

    source, target, move = sides(upload)
    (source / "tree").mkdir()
    for name in ("gone", "kept", "shorter"):
        (source / "tree" / name).write_text(name)

    def laid_out(*asked, real=module.plan_copy):
        layout = real(*asked)
        (source / "tree" / "gone").unlink()
        (source / "tree" / "shorter").write_text("s")
        return layout

    monkeypatch.setattr(module, "plan_copy", laid_out)
    done = move()
    assert [fault.message.split(" cannot be read: ")[1] for fault in done.failed] == [
        "no such file or directory." if upload else "no such file.",
        "it ended after 1 of 7 bytes.",
    ]
    assert content(target / "tree") == {b"kept": b"kept"}


def test_a_name_with_control_characters_is_shown_as_a_shell_would_have_it_typed():
    assert printable("data/café 1.txt") == "data/café 1.txt"
    shown = printable(os.fsdecode(b"a\x1b]0;x\x07'\\\n\xe9") + "\u202e\U000e0001")
    assert shown == "$'a\\x1b]0;x\\x07\\'\\\\\\n\\xe9\\u202e\\U000e0001'"
    assert shown.isprintable()
