"""Copies of a machine's files here: what a machine that means harm may name, and what a failure leaves."""

from __future__ import annotations

import hashlib

import pytest

from cloudgpu.access.jobs.copies import (
    CopiedFile,
    FileReceiver,
    Manifest,
    make_links,
    read_files,
    read_manifest,
    target_path,
)
from cloudgpu.errors import InvalidRequest


def manifest(*links, directories=()):
    return Manifest((), links, directories, (), (), ())


def test_nothing_is_made_behind_a_link_that_leads_out(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "m").symlink_to("../outside")
    with pytest.raises(InvalidRequest, match="leads out of"):
        target_path(root, "m/new/x")
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("target", ["../x", "/x", "b/l/../../x", "b/../x", "."])
def test_a_link_that_may_lead_out_is_refused(target):
    answer = {"files": [], "links": [["a", target]], "skipped": [], "unreadable": [], "directories": []}
    with pytest.raises(ValueError, match=r"a link to|below a directory"):
        read_manifest(answer)


@pytest.mark.parametrize("target", ["b/l", "../x", "../a/./y"])
def test_a_link_that_stays_inside_is_taken(target):
    answer = {"files": [], "links": [["a/m", target]], "skipped": [], "unreadable": [], "directories": []}
    assert read_manifest(answer).links == (("a/m", target),)


def test_a_link_that_is_made_through_another_one_does_not_lead_out(tmp_path):
    """As text `a/b/l/../../x` is inside. But `a/b/l` is `s`, and two directories above `s` is outside."""
    root = tmp_path / "root"
    (root / "s").mkdir(parents=True)
    (tmp_path / "x").write_text("private")
    with pytest.raises(InvalidRequest, match="would lead out of"):
        make_links(root, manifest(("a/b/l", "../../s"), ("a/b/l/m", "../../x")))
    assert [path.name for path in root.rglob("*") if path.is_symlink()] == ["l"]
    make_links(root, manifest(("a/b/l/m", "../x")))
    assert (root / "s" / "m").resolve() == root / "x"


def test_a_file_that_cannot_be_sent_as_it_cannot_be_read_is_named(tmp_path):
    (tmp_path / "here").write_text("12345")
    chunks = read_files([(5, tmp_path / "here"), (5, tmp_path / "gone")], None)
    with pytest.raises(InvalidRequest, match=r"/gone cannot be read: no such file or directory\.") as caught:
        list(chunks)
    assert "run the job again" in caught.value.next


def test_a_directory_that_this_computer_refuses_to_look_into_is_named(tmp_path):
    directory = tmp_path / ("x" * 300)
    with pytest.raises(InvalidRequest, match="x cannot be written: file name too long"):
        FileReceiver(directory, [CopiedFile("one", 1, 0o644, hashlib.sha256(b"x").hexdigest())])


def test_a_file_that_cannot_get_its_name_leaves_no_part_file(tmp_path):
    (tmp_path / "taken").write_text("by a file")
    receiver = FileReceiver(tmp_path, [CopiedFile("taken/x", 1, 0o644, hashlib.sha256(b"x").hexdigest())])
    with pytest.raises(InvalidRequest, match="cannot be written: file exists"):
        receiver.write(memoryview(b"x"))
    assert not receiver.close()
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
