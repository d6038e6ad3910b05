"""What a snapshot of a directory takes and leaves, on real directories, beside what the real git says."""

from __future__ import annotations

import inspect
import os
import shutil
import socket
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from cloudgpu.access.jobs import survey as module
from cloudgpu.access.jobs.survey import in_units, survey
from cloudgpu.core.jobs.snapshot import LeftOut, SnapshotLink
from cloudgpu.errors import InvalidRequest

GIT = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"}
NUMBERS = count()
PARTS = st.sampled_from("a b c.py d.log build".split())
PATHS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
LINES = st.sampled_from(
    [
        *"a b *.py *.log build/ /a /a/ a/* a/** **/b !b !a/b !*.py !/a !build/ !build * !*/ b/c.py **/a/b".split(),
        *"/*/b c.* ? [ab] !d.log a/ !a/".split(),
    ]
)
IGNORES = st.dictionaries(
    st.sampled_from(["", "a/", "a/b/", "build/"]), st.lists(LINES, min_size=1, max_size=4), max_size=3
)


def fill(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def taken(root: Path, **more) -> list[str]:
    return sorted(one.path for one in survey(root, **more).files)


def git(root: Path, *argv: str) -> bytes:
    return subprocess.run(["git", "-C", root, *argv], env=GIT, check=True, stdout=subprocess.PIPE).stdout


@settings(max_examples=60)
@given(st.lists(PATHS, min_size=1, max_size=12), IGNORES, st.sampled_from(["", "a", "build"]), st.integers(0, 3))
def test_what_is_taken_is_what_git_has_or_would_add(tmp_path_factory, paths, ignores, start, added):
    """`start` is where in the repository the job's directory is: the files above it count, too."""
    root = tmp_path_factory.getbasetemp() / f"tree{next(NUMBERS)}"
    try:
        git(Path("/"), "init", "-q", str(root))
        for path in sorted(paths, key=len, reverse=True):
            if not (root / path).exists():
                try:
                    fill(root, {path: "x"})
                except (FileExistsError, NotADirectoryError):
                    continue
        for where, lines in ignores.items():
            if (root / where).is_dir():
                fill(root, {f"{where}.gitignore": "\n".join(lines)})
        files = [path for path in sorted(set(paths)) if (root / path).is_file()]
        if files[:added]:
            git(root, "add", "-f", "--", *files[:added])
        here = root / start if (root / start).is_dir() else root
        told = git(here, "ls-files", "-co", "-z", "--exclude-standard", ".").split(b"\0")
        if here == root or git_enters(root, here):
            assert taken(here) == sorted(os.fsdecode(one) for one in told if one)
    finally:
        shutil.rmtree(root)


def git_enters(root: Path, here: Path) -> bool:
    """Say whether the directory itself is not ignored: if it is, git takes nothing of it."""
    done = subprocess.run(["git", "-C", root, "check-ignore", "-q", "--no-index", here], env=GIT, check=False)
    return done.returncode == 1


def test_where_git_is_not_installed_what_it_tracks_does_not_count(tmp_path, monkeypatch):
    git(tmp_path, "init", "-q")
    fill(tmp_path, {".gitignore": "*.csv", "labels.csv": "", "data/other.csv": "", "data/third.csv": ""})
    git(tmp_path, "add", "-f", "labels.csv", "data/other.csv")
    assert taken(tmp_path) == [".gitignore", "data/other.csv", "labels.csv"]
    monkeypatch.setenv("PATH", "/nonexistent")
    assert taken(tmp_path) == [".gitignore"]


def test_the_exclude_file_of_the_repository_counts(tmp_path):
    git(tmp_path, "init", "-q")
    fill(tmp_path, {".git/info/exclude": "*.tmp\n", "a.tmp": "", "a.py": "", "keep.tmp": "", ".gitignore": "!keep.tmp"})
    assert taken(tmp_path) == [".gitignore", "a.py", "keep.tmp"]


def test_a_cloudgpuignore_at_the_top_replaces_the_files_of_git(tmp_path):
    fill(tmp_path, {".gitignore": "model.bin\n", "model.bin": "m", "notes.txt": "n", "a/b.txt": "", "a/c.py": ""})
    fill(tmp_path, {".cloudgpuignore": "notes.txt\n", "a/.cloudgpuignore": "*.py\n", "a/.gitignore": "b.txt"})
    assert taken(tmp_path) == [
        ".cloudgpuignore",
        ".gitignore",
        "a/.cloudgpuignore",
        "a/.gitignore",
        "a/b.txt",
        "model.bin",
    ]
    assert survey(tmp_path).ignore_file == ".cloudgpuignore"


def test_a_python_environment_stays_out_without_an_ignore_file_until_it_is_included(tmp_path):
    fill(tmp_path, {"train.py": "", ".venv/pyvenv.cfg": "", "env/conda-meta/history": "", "env/bin/tool": ""})
    (tmp_path / ".venv/bin").mkdir()
    (tmp_path / ".venv/bin/python3").symlink_to(sys.executable)
    assert taken(tmp_path) == ["train.py"]
    assert {one.path for one in survey(tmp_path).omissions.largest} == {".venv", "env"}
    assert taken(tmp_path, include=["env/**"]) == ["env/bin/tool", "env/conda-meta/history", "train.py"]


def test_git_itself_stays_out_at_any_depth_and_also_as_the_file_of_a_worktree(tmp_path):
    fill(tmp_path, {".git/config": "", "sub/.git": "gitdir: elsewhere", "sub/a.py": "", ".gitattributes": ""})
    assert taken(tmp_path) == [".gitattributes", "sub/a.py"]
    assert survey(tmp_path).omissions.count == 0


def test_secrets_stay_out_and_are_named_although_git_tracks_them(tmp_path):
    git(tmp_path, "init", "-q")
    fill(tmp_path, {".env": "TOKEN=1", "id_map.py": "", "a/key.pem": "k", ".aws/config": "c", "train.py": ""})
    git(tmp_path, "add", "-f", ".")
    found = survey(tmp_path)
    assert [one.path for one in found.files] == ["train.py"]
    assert found.omissions.secrets == (".aws", ".env", "a/key.pem", "id_map.py")


def test_an_include_takes_a_secret_by_its_very_path_and_never_by_a_glob(tmp_path):
    fill(
        tmp_path, {"id_map.py": "", ".env": "", ".aws/config": "", ".aws/credentials": "", "train.py": "", "x/.env": ""}
    )
    assert taken(tmp_path, include=["id_map.py", "./.aws/config"]) == [".aws/config", "id_map.py", "train.py"]
    assert taken(tmp_path, include=["**/*"]) == ["train.py"]
    assert taken(tmp_path, include=[".env"]) == [".env", "train.py"]
    with pytest.raises(InvalidRequest, match="looks like a secret") as refused:
        survey(tmp_path, include=["id_*"])
    assert "--secret" in refused.value.next


def test_an_include_brings_back_what_is_ignored_also_in_ignored_directories(tmp_path):
    fill(tmp_path, {".gitignore": "data/\n*.pt\n", "data/a/small.csv": "", "data/a/big.csv": "", "data/b.csv": ""})
    fill(tmp_path, {"m.pt": "", "n/m.pt": "", "n/.gitignore": "o", "n/o": "", "train.py": "", "data/.env": ""})
    always = [".gitignore", "n/.gitignore", "train.py"]
    for include, more in [
        (["data/a/small.csv"], ["data/a/small.csv"]),
        (["data/*.csv"], ["data/b.csv"]),
        (["data/**/*.csv"], ["data/a/big.csv", "data/a/small.csv", "data/b.csv"]),
        (["data"], ["data/a/big.csv", "data/a/small.csv", "data/b.csv"]),
        (["data/a/", "*.pt"], ["data/a/big.csv", "data/a/small.csv", "m.pt"]),
        (["**/*.pt"], ["m.pt", "n/m.pt"]),
        (["n"], ["n/m.pt", "n/o"]),
    ]:
        assert taken(tmp_path, include=include) == sorted([*always, *more]), include


@pytest.mark.parametrize("glob", ["dta/*.csv", "*.onnx", "", "!a", "/etc/passwd", "../a", "[a", "#x"])
def test_an_include_that_brings_nothing_is_refused(tmp_path, glob):
    fill(tmp_path, {"data/a.csv": "", "a": ""})
    with pytest.raises(InvalidRequest, match="--include") as refused:
        survey(tmp_path, include=[glob])
    assert (refused.value.field, refused.value.value) == ("include", glob)


def test_directories_that_the_caller_names_stay_out_also_the_own_home(tmp_path):
    fill(tmp_path, {"results/a": "123", "home/keys/k": "", "src/results/b": "", "a.py": ""})
    found = survey(tmp_path, exclude_dirs=["results", tmp_path / "home", "/elsewhere", "../up"])
    assert sorted(one.path for one in found.files) == ["a.py", "src/results/b"]
    assert found.omissions.largest == (LeftOut("results", 3, "excluded"), LeftOut("home", 0, "excluded"))
    with pytest.raises(InvalidRequest, match="directory of the job itself"):
        survey(tmp_path, exclude_dirs=["."])


def test_results_that_are_a_link_to_a_large_disk_stay_out_and_are_no_fault(tmp_path):
    fill(tmp_path, {"a.py": ""})
    (tmp_path / "results").symlink_to("/")
    assert taken(tmp_path, exclude_dirs=["results"]) == ["a.py"]


def test_the_plan_gets_the_largest_that_stay_out_with_the_sums_of_directories(tmp_path, monkeypatch):
    fill(tmp_path, {".gitignore": "*.bin\nvenv/\n", "1.bin": b"1" * 30, "venv/a/b": b"1" * 40, "venv/c": b"1" * 2})
    found = survey(tmp_path).omissions
    assert found.largest == (LeftOut("venv", 42, "ignored"), LeftOut("1.bin", 30, "ignored"))
    monkeypatch.setattr(module, "MAX_COUNTED", 1)
    walk = module._Walk(str(tmp_path), module.read_includes([]), frozenset(), entries_to_count=1)
    walk.run()
    assert [one.at_least for one in walk.left_out if one.path == "venv"] == [True]


def test_links_inside_stay_links_and_absolute_ones_become_relative(tmp_path):
    fill(tmp_path, {"a/b.txt": "", "c.txt": ""})
    (tmp_path / "a" / "up").symlink_to("../c.txt")
    (tmp_path / "a" / "absolute").symlink_to(tmp_path / "c.txt")
    (tmp_path / "dir").symlink_to("a/")
    (tmp_path / "later").symlink_to("results/last")
    assert set(survey(tmp_path).links) == {
        SnapshotLink("a/up", "../c.txt"),
        SnapshotLink("a/absolute", "../c.txt"),
        SnapshotLink("dir", "a/"),
        SnapshotLink("later", "results/last"),
    }


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "a/../../outside", "here/../outside", "/nowhere"])
def test_a_link_out_of_the_directory_is_refused_with_the_way_out(tmp_path, target):
    """The fourth is inside by its text: `here` leads to the directory itself, and from there it goes up."""
    root = fill(tmp_path / "root", {"a/b.txt": ""})
    (root / "here").symlink_to(".")
    (root / "odd").symlink_to(target)
    with pytest.raises(InvalidRequest, match=r"odd is a link to .* outside") as refused:
        survey(root)
    assert "/odd to .gitignore" in refused.value.next
    fill(root, {".gitignore": "/odd\n"})
    assert [one.path for one in survey(root).links] == ["here"]


def test_links_in_a_circle_are_kept_and_not_followed(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "top").symlink_to("..")
    assert {one.path for one in survey(tmp_path).links} == {"a", "b", "c/top"}


def test_pipes_and_sockets_stay_out(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "socket"))
        found = survey(tmp_path)
    assert found.files == ()
    assert {(one.path, one.why) for one in found.omissions.largest} == {("pipe", "special"), ("socket", "special")}


def test_directories_without_files_are_kept_and_ignored_ones_are_not(tmp_path):
    fill(tmp_path, {".gitignore": "*.log\ncache/\n", "logs/a.log": "", "cache/x": "", "full/a": ""})
    (tmp_path / "data" / "raw").mkdir(parents=True)
    (tmp_path / "full" / "empty").mkdir()
    assert sorted(survey(tmp_path).directories) == ["data/raw", "full/empty", "logs"]


def test_a_directory_that_is_too_large_is_refused_before_a_file_is_opened(tmp_path, monkeypatch):
    for name, size in (("data/raw/a.bin", 30), ("data/raw/b.bin", 19), ("data/c.bin", 2), ("src/a.py", 1)):
        path = fill(tmp_path, {name: ""}) / name
        os.truncate(path, size << 30)
    with pytest.raises(
        InvalidRequest, match=r"has 55\.8 GB .* more than 10\.7 GB: data/raw/a.bin \(32\.2 GB\)"
    ) as refused:
        survey(tmp_path)
    assert ".gitignore" in refused.value.next
    assert "--data" in refused.value.next
    assert survey(tmp_path, max_bytes=52 << 30).total_bytes == 52 << 30


def test_the_parts_that_a_refusal_names_are_where_the_bytes_are():
    found = [module.FileEntry(f"data/{letter}/x", 10, 0o644, 0, 0, 0) for letter in "abcd"]
    assert module.largest_entries([*found, module.FileEntry("s.py", 1, 0o644, 0, 0, 0)]) == [
        ("data/", 40),
        ("s.py", 1),
    ]


def test_bytes_are_shown_in_decimal_units():
    assert [in_units(size) for size in (0, 999, 1000, 3_210_000, 48_100_000_000)] == [
        "0 bytes",
        "999 bytes",
        "1.0 kB",
        "3.2 MB",
        "48.1 GB",
    ]


SURVEYS = """
import sys
from pathlib import Path
from cloudgpu.access.jobs.survey import survey
from cloudgpu.errors import InvalidRequest
try:
    survey(Path(sys.argv[1]))
except InvalidRequest as error:
    print(error.message)
"""


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root cannot give up its rights here")
def test_a_directory_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    drop = "-dac_override,-dac_read_search"
    given_up = ["setpriv", f"--bounding-set={drop}", f"--inh-caps={drop}"] if os.geteuid() == 0 else []
    argv = [*given_up, sys.executable, "-c", SURVEYS, tmp_path]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert "closed cannot be read: permission denied" in done.stdout


@pytest.mark.parametrize(("name", "why"), [("missing", "no such file"), ("file", "is not a directory")])
def test_a_workdir_that_is_none_is_refused(tmp_path, name, why):
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequest, match=why) as refused:
        survey(tmp_path / name)
    assert refused.value.field == "workdir"


@pytest.mark.soak
def test_a_tree_deeper_than_pythons_stack_is_walked(tmp_path):
    """The stack is made short, for pytest cannot remove a tree that is deeper than the usual one."""
    fill(tmp_path, {"d/" * 300 + "f": ""})
    depth = len(inspect.stack())
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 150)
    try:
        found = taken(tmp_path)
    finally:
        sys.setrecursionlimit(before)
    assert found == ["d/" * 300 + "f"]
