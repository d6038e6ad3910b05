"""Patterns of ignore files mean what they mean to git: our answers are compared with those of the real one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings, strategies as st

from cloudgpu.core.jobs.ignore import is_ignored, read_pattern, read_rules

GIT = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"}
NAMES = ["a", "b", "ab", "a b", "a ", ".a", "a.b", "[a]", "!a", "#a", "a-b", "]", "\\", "*", "A"]
TREE = [*NAMES, "d/a", "d/ab", "d/a.b", "d/e/a", "d/e/b", "d/e/f/a", "a.d/b", "aa/bb/cc", "ad/e/b", "da", "dx/a/b"]
FRAGMENTS = [
    *"a b d e A . - ! # / ? * ** [ ] [ab] [!a] [^b] [a-c] [c-a] [!a-c] []] [a-]".split(),
    *"[[:alpha:]] [![:alpha:].] [[:x:]]".split(),
    *"\\ \\a \\* \\[ [\\]] [a\\-c] /** **/ /**/ a/ *.b .* [[:lower:]-z] [[a] [[:a] ***".split(),
    " ",
]
LINES = st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=5).map("".join)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", root], env=GIT, check=True)
    for name in TREE:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def gits(root: Path) -> set[str]:
    """Return the files that git would add."""
    argv = ["git", "-C", root, "ls-files", "-o", "-z", "--exclude-standard"]
    told = subprocess.run(argv, env=GIT, check=True, stdout=subprocess.PIPE).stdout
    return {os.fsdecode(one) for one in told.split(b"\0") if one} - {".gitignore"}


def ours(text: str) -> set[str]:
    chain = ((0, read_rules(text)),)

    def stays(path: str) -> bool:
        parts = path.split("/")
        aboves = ["/".join(parts[: number + 1]) for number in range(len(parts))]
        return not any(
            is_ignored(chain, above, above.rpartition("/")[2], is_directory=above != path) for above in aboves
        )

    return {path for path in TREE if stays(path)}


@settings(max_examples=150)
@given(st.lists(LINES, min_size=1, max_size=4))
@example(["d/**", "!d/a"])
@example(["*", "!*/", "!d/**/a"])
@example(["d/e**/b"])
@example(["a**/b"])
@example(["a\\ "])
@example(["[a", "[[:alpha:"])
@example(["/", "!", "//", "/**", "**/"])
def test_a_pattern_means_what_it_means_to_git(repository, lines):
    text = "\n".join(lines)
    (repository / ".gitignore").write_text(text)
    assert ours(text) == gits(repository)


@pytest.mark.parametrize("text", ["\ufeffa\n", "a\r\nb\r\n", "a  \n", "a\\  \n", "#a\n\\#a\n", "\\!a", "\n\n", "d\ta"])
def test_marks_comments_and_spaces_are_read_as_git_reads_them(repository, text):
    (repository / ".gitignore").write_bytes(text.encode())
    assert ours(text) == gits(repository)


@pytest.mark.parametrize("line", ["", "!", "/", "[a", "a\\", "[[:nonsense:]]"])
def test_a_line_that_can_match_nothing_is_no_pattern(line):
    assert read_pattern(line) is None


def test_the_deepest_file_decides_and_the_last_line_in_it():
    top, below = read_rules("*.log\n"), read_rules("*.log\n!keep.log\n")
    chain = ((0, top), (len("runs/"), below))
    assert not is_ignored(chain, "runs/keep.log", "keep.log", is_directory=False)
    assert is_ignored(chain, "runs/other.log", "other.log", is_directory=False)
    assert is_ignored(chain[:1], "keep.log", "keep.log", is_directory=False)
