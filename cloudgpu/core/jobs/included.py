"""What `--include` brings back into a snapshot although an ignore file leaves it out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cloudgpu.core.jobs.ignore import Pattern, literal_start, read_pattern
from cloudgpu.errors import InvalidRequest


@dataclass(slots=True)
class Included:
    """Globs that begin at the top of the directory, as a shell reads them; `**/` is any directory below.

    A glob that means a directory brings all that is in it. A secret needs its very path: no glob takes it in.
    """

    globs: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    paths: frozenset[str]
    _met: set[int] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.globs)

    def takes(self, path: str, *, is_directory: bool) -> bool:
        """Say whether a glob means this entry, and remember that it meant one."""
        met = {at for at, one in enumerate(self.patterns) if _means(one, path, is_directory=is_directory)}
        self._met |= met
        return bool(met)

    def takes_secret(self, path: str) -> bool:
        """Say whether this very path was named."""
        return path in self.paths

    def may_hold(self, directory: str) -> bool:
        """Say whether a glob could mean an entry below this directory: it is worth a walk although it is ignored."""
        return any(_could_hold(pattern.text, directory) for pattern in self.patterns)

    def names_secret_below(self, directory: str) -> bool:
        """Say whether a path below this directory was named."""
        return any(path.startswith(f"{directory}/") for path in self.paths)

    def unmet(self) -> list[str]:
        """Return the globs that have meant nothing so far, as they were given."""
        return [glob for at, glob in enumerate(self.globs) if at not in self._met]


def read_includes(globs: Sequence[str]) -> Included:
    """Return what these globs mean. Raises InvalidRequest for one that can match nothing in the directory."""
    texts = [_relative(glob) for glob in globs]
    patterns = tuple(_pattern(glob, text) for glob, text in zip(globs, texts, strict=True))
    return Included(tuple(globs), patterns, frozenset(text.rstrip("/") for text in texts))


def check_globs_used(included: Included, secrets: Iterable[str]) -> None:
    """Raise InvalidRequest for a glob that brought nothing: it is misspelt, or it means a secret without its path."""
    for glob in included.unmet():
        pattern = _pattern(glob, _relative(glob))
        secret = next((path for path in secrets if _means(pattern, path, is_directory=False)), None)
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


def _means(pattern: Pattern, path: str, *, is_directory: bool) -> bool:
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
    start = literal_start(text)
    return start.startswith(below) or (start != text and below.startswith(start[: start.rfind("/") + 1]))
