from __future__ import annotations

import contextlib
import hashlib
import os
import resource

import pytest
from paramiko.sftp import CMD_OPEN

from cloudgpu.access.copy.copy import CHUNK_BYTES, copy, parse_copy_paths, part_file_name, unique_copy_id
from cloudgpu.access.copy.endpoints import MachineFiles, checked_name
from cloudgpu.access.ssh.connection import connect
from cloudgpu.access.ssh.streams import BytePathSftp
from cloudgpu.errors import InvalidRequest, Unreachable
from tests.access import anycase, sshserver

pytestmark = pytest.mark.usefixtures("no_bytecode")  # a limit on files would cut it off

BOTH_WAYS = pytest.mark.parametrize("upload", [True, False], ids=["up", "down"])


@pytest.fixture
def here(tmp_path):
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.fixture
def move(connection, server, here):
    """Return a function that copies between `here` and the machine's home, whichever side is the source."""

    def run(source, destination, upload, **more):
        if upload:
            return copy(connection, [str(here / source)], f"box:{destination}", **more)
        return copy(connection, [f"box:{source}"], f"{here}/{destination}", **more)

    return run


@pytest.fixture
def sides(server, here):
    """Return source and target directory of a copy as real paths of this computer."""
    return lambda upload: (here, server.home) if upload else (server.home, here)


def tree(root):
    """Return every path below `root` with its content, permissions and whole seconds of its time."""
    return {
        str(path.relative_to(root)): (
            path.read_bytes() if path.is_file() else None,
            path.stat().st_mode & 0o777,
            int(path.stat().st_mtime),
        )
        for path in root.rglob("*")
    }


def parts(*roots):
    return [path for root in roots for path in root.rglob(".cloudgpu-*")]


@pytest.mark.soak
@BOTH_WAYS
def test_a_file_keeps_content_permissions_and_time(move, sides, upload):
    source, target = sides(upload)
    (source / "job.sh").write_bytes(b"echo \x00\xff")
    (source / "job.sh").chmod(0o741)
    os.utime(source / "job.sh", (1_000_000_000, 1_000_000_000))
    copied = move("job.sh", "run.sh", upload)
    assert (copied.files, copied.bytes) == (1, 7)
    assert tree(target)["run.sh"] == (b"echo \x00\xff", 0o741, 1_000_000_000)


@BOTH_WAYS
def test_a_file_that_is_being_copied_can_be_opened_by_its_owner_alone(move, sides, upload):
    source, target = sides(upload)
    (source / "shared").write_bytes(b"1")
    (source / "shared").chmod(0o640)
    modes = []

    def look(done, total):
        modes.extend(part.stat().st_mode & 0o777 for part in parts(target))

    move("shared", "shared", upload, progress=look)
    assert modes == [0o600]
    assert (target / "shared").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(("mtime", "arrives"), [(-86400, 0), (2**32 + 5, 2**32 - 1)])
def test_a_time_that_sftp_cannot_say_arrives_as_the_nearest_one(move, sides, mtime, arrives):
    source, target = sides(True)
    (source / "old").write_bytes(b"1")
    os.utime(source / "old", (mtime, mtime))
    assert move("old", "old", True).files == 1
    assert (target / "old").stat().st_mtime == arrives


@BOTH_WAYS
def test_a_tree_arrives_whole_with_permissions_and_times(move, sides, upload):
    source, target = sides(upload)
    (source / "data/a b/ü").mkdir(parents=True)
    (source / "data/empty").mkdir()
    for number in range(30):
        (source / f"data/a b/{number}").write_bytes(os.urandom(number * 1000))
    (source / "data/a b/ü/quote'\"$x").write_text("odd name")
    (source / "data/a b/ü/secret").write_text("key")
    (source / "data/a b/ü/secret").chmod(0o600)
    (source / "data/empty").chmod(0o500)
    for path in [*(source / "data").rglob("*"), source / "data"]:
        os.utime(path, (1_600_000_000, 1_600_000_000))
    assert move("data", ".", upload).files == 32
    assert tree(target / "data") == tree(source / "data")
    assert parts(source, target) == []


@BOTH_WAYS
def test_a_directory_that_exists_gets_the_source_under_its_own_name_and_one_that_does_not_becomes_it(
    move, sides, upload
):
    source, target = sides(upload)
    (source / "data").mkdir()
    (source / "data/x").write_text("x")
    (target / "there").mkdir()
    move("data", "there", upload)
    move("data", "new", upload)
    move("data/x", "there/", upload)
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()) == [
        "new/x",
        "there/data/x",
        "there/x",
    ]


@BOTH_WAYS
def test_a_second_copy_replaces_what_the_first_one_wrote(move, sides, upload):
    source, target = sides(upload)
    (source / "x").write_text("a long first version")
    move("x", "y", upload)
    (source / "x").write_text("second")
    move("x", "y", upload)
    assert (target / "y").read_text() == "second"


def test_the_home_is_where_relative_paths_and_the_tilde_begin(connection, server, here):
    (here / "x").write_text("x")
    for number, place in enumerate(["", "~", "~/", ".", "~/sub", "sub", str(server.home / "sub")]):
        (server.home / "sub").mkdir(exist_ok=True)
        copy(connection, [str(here / "x")], f"box:{place}")
        landed = server.home / ("sub" if number > 3 else ".") / "x"
        assert landed.read_text() == "x"
        landed.unlink()


def test_several_sources_go_into_one_directory(connection, server, here):
    for name in "abc":
        (here / name).write_text(name)
    copy(connection, [str(here / name) for name in "abc"], "box:")
    assert sorted(path.name for path in server.home.iterdir()) == ["a", "b", "c"]
    (here / "back").mkdir()
    copy(connection, ["box:a", "box:b"], str(here / "back"))
    assert sorted(path.name for path in (here / "back").iterdir()) == ["a", "b"]


@BOTH_WAYS
def test_two_files_that_would_become_one_are_refused_before_anything_is_copied(connection, server, here, sides, upload):
    source, target = sides(upload)
    for name in ("one/data/x", "one/data/y", "two/data/x", "three/data/z"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    (target / "into").mkdir()

    def move(*names):
        if upload:
            return copy(connection, [str(here / name) for name in names], "box:into")
        return copy(connection, [f"box:{name}" for name in names], str(here / "into"))

    for names in (("one/data/x", "two/data/x"), ("one/data", "two/data")):
        with pytest.raises(InvalidRequest, match=r"two/data/x and .*one/data/x would both become .*into/"):
            move(*names)
        assert not list((target / "into").iterdir())
    copied = move("one/data", "three/data", "one/data")  # directories of one name become one
    assert (copied.files, copied.failed) == (3, ())
    assert sorted(path.name for path in (target / "into/data").iterdir()) == ["x", "y", "z"]


def test_the_content_of_a_home_goes_right_into_the_destination(connection, server, here):
    (server.home / "x").write_text("x")
    copy(connection, ["box:"], str(here))
    assert (here / "x").read_text() == "x"


@BOTH_WAYS
def test_links_are_followed_and_one_that_leads_nowhere_is_named(move, sides, upload):
    source, target = sides(upload)
    (source / "real").mkdir()
    (source / "real/x").write_text("x")
    (source / "data").mkdir()
    (source / "data/link").symlink_to("../real")
    (source / "data/file").symlink_to("../real/x")
    (source / "data/dangling").symlink_to("nowhere")
    os.mkfifo(source / "data/pipe")
    copied = move("data", "copy", upload)
    assert sorted(path.rsplit("/", 1)[1] for path in copied.skipped) == ["dangling", "pipe"]
    assert {name: what[0] for name, what in tree(target / "copy").items()} == {
        "link": None,
        "link/x": b"x",
        "file": b"x",
    }
    assert not (target / "copy/link").is_symlink()


@BOTH_WAYS
def test_a_circle_of_links_is_refused_by_name(move, sides, upload):
    source, _ = sides(upload)
    (source / "data/inner").mkdir(parents=True)
    (source / "data/inner/up").symlink_to("..")
    with pytest.raises(InvalidRequest, match="circle") as caught:
        move("data", "copy", upload)
    assert caught.value.value.endswith("data/inner/up")


@BOTH_WAYS
def test_progress_ends_at_the_total(move, sides, upload):
    source, _ = sides(upload)
    (source / "data").mkdir()
    for number in range(5):
        (source / "data" / str(number)).write_bytes(os.urandom(700_000))
    seen = []
    move("data", "copy", upload, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (3_500_000, 3_500_000)
    assert {total for _, total in seen} == {3_500_000}
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) > 5


@pytest.mark.soak
@BOTH_WAYS
def test_a_hundred_megabytes_arrive_whole(move, sides, upload):
    source, target = sides(upload)
    with (source / "big").open("wb") as file:
        for number in range(100):
            file.write(hashlib.sha256(bytes([number])).digest() * 32768)
    move("big", "copy", upload)
    with (source / "big").open("rb") as one, (target / "copy").open("rb") as other:
        assert hashlib.file_digest(one, "sha256").digest() == hashlib.file_digest(other, "sha256").digest()


@BOTH_WAYS
def test_a_lost_connection_leaves_nothing_under_the_final_name(move, sides, server, upload):
    source, target = sides(upload)
    (source / "big").write_bytes(os.urandom(20_000_000))
    (target / "copy").write_text("the old one")

    def cut(done, total):
        if done > total / 3:
            server.process.kill()

    with pytest.raises(Unreachable):
        move("big", "copy", upload, progress=cut)
    assert (target / "copy").read_text() == "the old one"


@BOTH_WAYS
def test_a_disk_that_takes_no_more_is_said_and_leaves_nothing(move, sides, server, upload, limited):
    source, target = sides(upload)
    (source / "big").write_bytes(os.urandom(3_000_000))
    with limited(server.process.pid if upload else 0), pytest.raises(InvalidRequest) as caught:
        move("big", "copy", upload)
    assert caught.value.value.endswith("copy")
    assert tree(target) == {}


@pytest.fixture
def limited():
    """Return a context in which a process (0: this one) can write no file beyond a megabyte."""

    @contextlib.contextmanager
    def limit(pid):
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
        try:
            yield
        finally:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, before)

    return limit


@BOTH_WAYS
@pytest.mark.parametrize(
    ("source", "destination", "named"),
    [
        ("missing", "x", "missing"),
        ("file", "no/such/place/x", "no/such/place/x"),
        ("file", "nodir/", "nodir/"),
        ("dir", "target_file", "target_file"),
    ],
)
def test_errors_name_the_path(move, sides, upload, source, destination, named):
    origin, target = sides(upload)
    (origin / "file").write_text("x")
    (origin / "dir").mkdir()
    (target / "target_file").write_text("x")
    with pytest.raises(InvalidRequest) as caught:
        move(source, destination, upload)
    assert caught.value.value.endswith(named)


@BOTH_WAYS
def test_a_pipe_at_the_destination_is_not_replaced_by_a_file(move, sides, upload):
    origin, target = sides(upload)
    (origin / "file").write_text("x")
    os.mkfifo(target / "pipe")
    with pytest.raises(InvalidRequest, match="pipe is a device, a pipe or a socket") as caught:
        move("file", "pipe", upload)
    assert (caught.value.field, (target / "pipe").is_fifo(), parts(origin, target)) == ("DESTINATION", True, [])


@BOTH_WAYS
def test_a_pipe_in_a_directory_that_is_copied_to_stays_a_pipe(move, sides, upload):
    origin, target = sides(upload)
    for directory in (origin / "data", target / "data"):
        directory.mkdir()
    (origin / "data" / "one").write_text("x")
    (origin / "data" / "two").write_text("y")
    os.mkfifo(target / "data" / "one")
    copied = move("data", ".", upload)
    named = "box:./data/one" if upload else f"{target}/./data/one"
    assert [error.message for error in copied.failed] == [
        f"{named} cannot be written: it is a device, a pipe or a socket."
    ]
    assert ((target / "data" / "one").is_fifo(), (target / "data" / "two").read_text()) == (True, "y")
    assert parts(target) == []


@pytest.mark.parametrize(
    ("sources", "destination", "field"),
    [
        ([], "box:", "SOURCE"),
        (["a"], "b", "DESTINATION"),
        (["box:a"], "box:b", "SOURCE"),
        (["box:a"], "other:b", "SOURCE"),
        (["box:a", "other:b"], ".", "SOURCE"),
        (["box:a", "b"], ".", "SOURCE"),
        (["a"], "BOX:b", "NAME"),
        (["a"], "box:~other/b", "DESTINATION"),
        ([":a"], ".", "NAME"),
    ],
)
def test_what_names_no_single_machine_is_refused(sources, destination, field):
    with pytest.raises(InvalidRequest) as caught:
        parse_copy_paths(sources, destination)
    assert caught.value.field == field
    assert caught.value.next


def test_names_that_are_one_there_are_not_written_over_each_other(monkeypatch, tmp_path, here):
    """The machine's file system is as macOS's usual one: it keeps the case of a name, and finds it in any."""
    monkeypatch.setattr(sshserver, "_run", anycase.run)
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine" / "connections").touch()
    server = sshserver.Server(tmp_path / "machine").start().pin()
    for name in ("data/Makefile", "data/makefile", "data/Dir/x", "data/dir/x", "data/other"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(name)
    try:
        with connect(server.target, timeout=10) as connection:
            for _ in range(2):
                done = copy(connection, [str(here / "data")], "box:")
                assert done.files == 3
                assert sorted(fault.value.lower() for fault in done.failed) == ["box:./data/dir", "box:./data/makefile"]
    finally:
        server.kill()
    written = {name: what[0].decode() for name, what in tree(server.home / "data").items() if what[0] is not None}
    assert len(written) == 3
    assert all(f"data/{name}" == what for name, what in written.items())


def test_a_path_with_a_colon_after_a_slash_is_here():
    places = parse_copy_paths(["./a:b", "dir/c:d"], "box:")
    assert (places.machine, places.upload, places.destination) == ("box", True, ".")


@pytest.mark.parametrize("name", ["", ".", "..", "../../.bashrc", "/etc/passwd", "a/b", "a\0b"])
def test_a_machine_cannot_name_files_outside_the_destination(name):
    with pytest.raises(InvalidRequest):
        checked_name(name, "box:data")


@BOTH_WAYS
def test_two_copies_to_one_target_at_once_leave_one_of_them_whole(connection, server, move, sides, here, upload):
    source, target = sides(upload)
    for name in ("first", "second"):
        (source / name).write_bytes(name[:1].encode() * 3 * CHUNK_BYTES)
    second = []

    def copy_second(done, total):
        if not second and 0 < done < total:
            second.append(True)
            with connect(server.target, timeout=10) as other:
                paths = (str(here / "second"), "box:one") if upload else ("box:second", f"{here}/one")
                second.append(copy(other, paths[:1], paths[1]).files)

    assert move("first", "one", upload, progress=copy_second).files == 1
    assert second == [True, 1]
    assert (target / "one").read_bytes() == b"f" * 3 * CHUNK_BYTES
    assert not parts(target)


@BOTH_WAYS
def test_a_private_file_is_never_written_where_others_could_read_a_part_left_before(connection, move, sides, upload):
    source, target = sides(upload)
    (source / "key").write_bytes(b"secret")
    (source / "key").chmod(0o600)
    with unique_copy_id(connection.target.known_hosts.parent) as copy_id:  # of one that was interrupted
        part = target / part_file_name("key", copy_id)
    part.write_bytes(b"left")
    part.chmod(0o644)
    with part.open("rb") as reader:  # somebody else who opened what was left
        move("key", "key", upload)
        assert reader.read() == b"left"
    assert tree(target)["key"][:2] == (b"secret", 0o600)
    assert not parts(target)


def test_a_private_file_on_a_machine_is_private_from_the_moment_it_is_made(connection, server):
    opened = []

    class Spy(BytePathSftp):
        def _request(self, kind, *values):
            if kind == CMD_OPEN:
                opened.append(values[-1].st_mode)
            return super()._request(kind, *values)

    path = server.home / "key"
    with connection.sftp() as sftp:
        sftp.__class__ = Spy
        with MachineFiles("box", sftp).write(str(path)) as writer:
            writer.write(b"secret")
    assert opened == [0o600], "permissions set afterwards come too late"
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"secret", 0o600)
