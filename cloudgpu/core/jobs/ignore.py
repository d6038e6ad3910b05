"""Reads ignore files as git does: which entries of a directory a pattern matches; and what `--include` adds again.

The source of the rules is git's own code (`dir.c`, `wildmatch.c`) and the page gitignore(5). A pattern is compared with
one entry, never with what is below it: the caller does not descend into an ignored directory. Here a `?`
is one character; for git it is one byte of UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cloudgpu.errors import InvalidRequest

CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t-\\r",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}


@dataclass(frozen=True, slots=True)
class Pattern:
    """One line of an ignore file. `ignores` is False for a line that begins with `!`."""

    text: str
    ignores: bool
    directories_only: bool
    by_name: bool  # without a slash, it matches entries of this name at any depth
    regex: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Rules:
    """The patterns of one ignore file, in its order: the last one that matches decides."""

    patterns: tuple[Pattern, ...]
    _names: re.Pattern[str] | None = field(repr=False, compare=False)
    _paths: re.Pattern[str] | None = field(repr=False, compare=False)

    def ignores(self, path: str, name: str, *, is_directory: bool) -> bool | None:
        """Return whether the entry is ignored, or None where no pattern matches.

        `path` is relative to the directory of the ignore file, `name` its last part.
        """
        # Most entries match nothing: one match of all patterns together shows that.
        by_name = self._names is not None and self._names.fullmatch(name) is not None
        if not by_name and (self._paths is None or self._paths.fullmatch(path) is None):
            return None
        for pattern in reversed(self.patterns):
            if pattern.directories_only and not is_directory:
                continue
            if pattern.regex.fullmatch(name if pattern.by_name else path):
                return pattern.ignores
        return None


def read_rules(text: str) -> Rules:
    """Return the rules of an ignore file. A line that can never match is left out, as git does."""
    lines = text.removeprefix("\ufeff").split("\n")
    patterns = (read_pattern(_trimmed(line.removesuffix("\r"))) for line in lines if not line.startswith("#"))
    return make_rules(pattern for pattern in patterns if pattern is not None)


def make_rules(patterns: Iterable[Pattern]) -> Rules:
    """Return the rules of these patterns; of several that match, the last decides."""
    all_patterns = tuple(patterns)
    return Rules(
        all_patterns,
        _combine(one for one in all_patterns if one.by_name),
        _combine(one for one in all_patterns if not one.by_name),
    )


def _combine(patterns: Iterable[Pattern]) -> re.Pattern[str] | None:
    texts = [f"(?:{pattern.regex.pattern})" for pattern in patterns]
    return re.compile("|".join(texts), re.DOTALL) if texts else None


def _trimmed(line: str) -> str:
    """Return the line without the spaces at its end, but for one behind a backslash."""
    bare = line.rstrip(" ")
    escapes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if escapes % 2 and len(bare) < len(line) else bare


def read_pattern(line: str) -> Pattern | None:
    """Return what one line means; None for one that matches nothing, such as an empty one or an open bracket."""
    ignores = not line.startswith("!")
    text = line if ignores else line[1:]
    directories_only = text.endswith("/")
    text = text[:-1] if directories_only else text
    by_name = "/" not in text
    regex = _regex(text.removeprefix("/")) if text else None
    if regex is None:
        return None
    return Pattern(line, ignores, directories_only, by_name, re.compile(regex, re.DOTALL))


def _wildcard_at(text: str) -> int:
    match = re.search(r"[*?\[\\]", text)
    return len(text) if match is None else match.start()


def _regex(text: str) -> str | None:
    """Return the pattern as a regular expression, or None where it can never match.

    Git compares what stands before the first wildcard by itself, so a `**` behind it counts as one at the start.
    """
    start = _wildcard_at(text)
    rest, at, parts = text[start:], 0, [re.escape(text[:start])]
    while at < len(rest):
        found = _token(rest, at)
        if found is None:
            return None
        part, at = found
        parts.append(part)
    return "".join(parts) if text else None


def _token(text: str, at: int) -> tuple[str, int] | None:
    """Return the expression of what stands here, and where the next part begins."""
    if text[at] == "*":
        return _stars(text, at)
    if text[at] == "?":
        return "[^/]", at + 1
    if text[at] == "[":
        return _bracket(text, at + 1)
    if text[at] == "\\":
        return (re.escape(text[at + 1]), at + 2) if at + 1 < len(text) else None
    return re.escape(text[at]), at + 1


def _stars(text: str, at: int) -> tuple[str, int]:
    end = at
    while end < len(text) and text[end] == "*":
        end += 1
    rest = text[end : end + 2]
    bounded = (at == 0 or text[at - 1] == "/") and (rest[:1] in {"", "/"} or rest == "\\/")
    if end - at == 1 or not bounded:
        return "[^/]*", end
    return ("(?:.*/)?", end + 1) if rest[:1] == "/" else (".*", end)


def _bracket(text: str, at: int) -> tuple[str, int] | None:
    """Return a set of characters and where it ends; None for one that has no end, or holds an unknown class."""
    negated = text[at : at + 1] in {"!", "^"}
    at += negated
    parts: list[str] = []
    last, first = "", True  # the character that a range may begin with
    while first or text[at : at + 1] != "]":
        found = _member(text, at, last)
        if found is None:
            return None
        part, last, at = found
        parts.append(part)
        first = False
    inside = "".join(parts)
    if negated:
        return f"[^/{inside}]", at + 1
    return (f"(?!/)[{inside}]" if inside else "(?!)"), at + 1


def _member(text: str, at: int, last: str) -> tuple[str, str, int] | None:
    """Return one member of a set, the character that a range may begin with next, and where the next one begins."""
    here = text[at : at + 1]
    if here == "[" and text[at + 1 : at + 2] == ":":
        return _class(text, at)
    if here == "-" and last and text[at + 1 : at + 2] not in {"", "]"}:
        end = _character(text, at + 1)
        if end is None:
            return None
        return f"{re.escape(last)}-{re.escape(end[0])}" if last <= end[0] else "", "", end[1]
    found = _character(text, at)
    return None if found is None else (re.escape(found[0]), *found)


def _character(text: str, at: int) -> tuple[str, int] | None:
    at += text[at : at + 1] == "\\"
    return (text[at], at + 1) if at < len(text) else None


def _class(text: str, at: int) -> tuple[str, str, int] | None:
    end = text.find("]", at + 2)
    if end < 0:
        return None
    if end == at + 2 or text[end - 1] != ":":
        return "\\[", "[", at + 1  # an ordinary bracket
    inside = CLASSES.get(text[at + 2 : end - 1])
    return None if inside is None else (inside, "", end + 1)


def is_ignored(chain: Sequence[tuple[int, Rules]], path: str, name: str, *, is_directory: bool) -> bool:
    """Say whether the ignore files that apply to an entry ignore it: the deepest one with a matching pattern decides.

    `chain` has, from the top down, for each file the length of its directory's path with a slash, and its rules.
    """
    for start, rules in reversed(chain):
        found = rules.ignores(path[start:], name, is_directory=is_directory)
        if found is not None:
            return found
    return False


@dataclass(slots=True)
class Included:
    """The globs of `--include`, relative to the top of the directory, as in a shell; `**/` is any directory below.

    A glob that matches a directory includes all that is in it. A secret is only included by its exact path.
    """

    globs: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    paths: frozenset[str]
    _used: set[int] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.globs)

    def includes(self, path: str, *, is_directory: bool) -> bool:
        """Return whether a glob matches this entry, and mark the glob as used."""
        matching = {at for at, one in enumerate(self.patterns) if _matches(one, path, is_directory=is_directory)}
        self._used |= matching
        return bool(matching)

    def includes_secret(self, path: str) -> bool:
        """Return whether exactly this path was given."""
        return path in self.paths

    def may_include_below(self, directory: str) -> bool:
        """Return whether a glob could match an entry below this ignored directory, so that it has to be walked."""
        return any(_could_hold(pattern.text, directory) for pattern in self.patterns)

    def names_secret_below(self, directory: str) -> bool:
        """Return whether a path below this directory was given."""
        return any(path.startswith(f"{directory}/") for path in self.paths)

    def unmatched(self) -> list[str]:
        """Return the globs that have matched nothing so far, as they were given."""
        return [glob for at, glob in enumerate(self.globs) if at not in self._used]


def read_includes(globs: Sequence[str]) -> Included:
    """Return the parsed globs. Raises InvalidRequest for one that can match nothing in the directory."""
    texts = [_relative(glob) for glob in globs]
    patterns = tuple(_pattern(glob, text) for glob, text in zip(globs, texts, strict=True))
    return Included(tuple(globs), patterns, frozenset(text.rstrip("/") for text in texts))


def check_globs_used(included: Included, secrets: Iterable[str]) -> None:
    """Raise InvalidRequest for a glob that matched nothing: it is misspelt, or matches a secret without its path."""
    for glob in included.unmatched():
        pattern = _pattern(glob, _relative(glob))
        secret = next((path for path in secrets if _matches(pattern, path, is_directory=False)), None)
        if secret is not None:
            raise InvalidRequest(
                f"--include {glob!r} means {secret}, which looks like a secret: a glob does not take it in.",
                field="include",
                value=glob,
                next="Pass it with --secret or --env-file, or name the file by its very path, without a wildcard.",
            )
        raise InvalidRequest(
            f"--include {glob!r} matches nothing in the directory.",
            field="include",
            value=glob,
            next="Write it from the top of the directory, as in 'data/*.csv' or '**/*.csv', or leave it out.",
        )


def _matches(pattern: Pattern, path: str, *, is_directory: bool) -> bool:
    return (is_directory or not pattern.directories_only) and pattern.regex.fullmatch(path) is not None


def _relative(glob: str) -> str:
    text = glob
    while text.startswith("./"):
        text = text[2:].lstrip("/")
    return text


def _pattern(glob: str, text: str) -> Pattern:
    pattern = None if text.startswith("/") or ".." in text.split("/") else read_pattern(f"/{text}")
    if pattern is None:
        raise InvalidRequest(
            f"--include {glob!r} is not a glob of paths below the directory.",
            field="include",
            value=glob,
            next="Write it from the top of the directory: --include 'data/*.csv'",
        )
    return pattern


def _could_hold(text: str, directory: str) -> bool:
    text, below = text.lstrip("/"), f"{directory}/"
    start = text[: _wildcard_at(text)]
    return start.startswith(below) or (start != text and below.startswith(start[: start.rfind("/") + 1]))
