"""Markdown pages as the checks need them: lines, code, links, headings, tables, each with its line number."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SHELL = ("sh", "bash", "shell")
_FENCE = re.compile(r"^\s*(```+|~~~+)\s*(\w*)")
_SPAN = re.compile(r"(`+)(.+?)\1")
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?)\s*$")


@dataclass(frozen=True, slots=True)
class Line:
    """One line; `fence` is the language of the code block it stands in, None in prose."""

    number: int
    text: str
    fence: str | None


@dataclass(frozen=True, slots=True)
class Code:
    """A piece of code; `typed` says that a reader is meant to type it, so that it has to be right as a whole."""

    number: int
    text: str
    typed: bool


@dataclass(frozen=True, slots=True)
class Page:
    """A file of the documentation; `name` is its path from the root, with slashes."""

    name: str
    path: Path
    lines: tuple[Line, ...]

    def prose(self) -> Iterator[Line]:
        """Yield the lines outside code blocks."""
        return (line for line in self.lines if line.fence is None)

    def code(self) -> Iterator[Code]:
        """Yield the lines of code blocks and the inline code of prose."""
        for line in self.lines:
            if line.fence is None:
                for span in _SPAN.finditer(line.text):
                    yield Code(line.number, span[2].strip(), typed=True)
            elif line.fence in SHELL:
                yield Code(line.number, line.text, typed=True)
            elif line.text.startswith("$ "):
                yield Code(line.number, line.text[2:], typed=True)
            else:
                yield Code(line.number, line.text, typed=False)

    def links(self) -> Iterator[tuple[int, str]]:
        """Yield the line and target of every link in prose."""
        for line in self.prose():
            for found in _LINK.finditer(_SPAN.sub(lambda span: "x" * len(span[0]), line.text)):
                yield line.number, found[1]

    def anchors(self) -> set[str]:
        """Return what `#...` may name here, as GitHub makes it from headings."""
        made: dict[str, int] = {}
        found = set()
        for line in self.prose():
            heading = _HEADING.match(line.text)
            if heading:
                slug = _slug(heading[1])
                again = made.get(slug, 0)
                made[slug] = again + 1
                found.add(f"{slug}-{again}" if again else slug)
        return found

    def tables(self) -> Iterator[tuple[str, int, list[str], list[list[str]]]]:
        """Yield (heading above, line, head cells, rows) of every table."""
        heading, block, start = "", [], 0
        for line in (*self.prose(), Line(0, "", None)):
            if line.text.startswith("|"):
                start = start or line.number
                block.append(_cells(line.text))
                continue
            if len(block) > 1:
                yield heading, start, block[0], block[2:]
            block, start = [], 0
            found = _HEADING.match(line.text)
            heading = found[1] if found else heading


def read_page(root: Path, path: Path) -> Page:
    """Return the page at `path`; a shell script is one block of shell."""
    name, fence, lines = path.relative_to(root).as_posix(), None, []
    mark = "" if path.suffix == ".md" else "end of file"
    fence = None if path.suffix == ".md" else "sh"
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        found = _FENCE.match(text) if path.suffix == ".md" else None
        if found and fence is None:
            mark, fence = found[1], found[2]
        elif found and found[1] == mark:
            fence = None
        else:
            lines.append(Line(number, text, fence))
    return Page(name, path, tuple(lines))


def find_pages(root: Path) -> list[Page]:
    """Return every page there is: README, CONTRIBUTING, CHANGELOG, docs, examples."""
    tops = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
    paths = [*(root / name for name in tops), *sorted((root / "docs").rglob("*.md"))]
    paths += sorted((root / "examples").glob("*.sh"))
    return [read_page(root, path) for path in paths if path.exists()]


def unquoted(cell: str) -> str:
    """Return a table's cell without the backticks around it."""
    return cell.strip("`")


def _slug(heading: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.replace("`", "")).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
