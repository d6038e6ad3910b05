"""Checks how README, CONTRIBUTING, docs, the changelog, the help texts and the errors are written.

Prints a table: for each page its sentences, their mean and longest number of words, and its faults. Faults are words of
`words.py`, sentences of more than LONGEST words, and spelling (codespell). A page may have as many faults as ALLOWED
says, none by default; with more the exit code is 1. Name pages to see their faults: python docs/prose.py README.md
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from generate import classes, commands
from markdown_it import MarkdownIt
from words import BANNED, CORRECT

from cloudgpu.cli.verbs import SLOGAN, VERBS

ROOT = Path(__file__).parents[1]
LONGEST = 32
HELP, ERRORS = "help", "errors"
# Made from the help texts, from docstrings and from types: the first is checked as `help`.
GENERATED = ("docs/reference/cli.md", "docs/reference/errors.md", "docs/reference/json.md")
# How many faults a page may still have. Only ever make a number smaller; a page that is not here has none.
ALLOWED: dict[str, int] = {}
CODE = "CODE"
SHORTEST = 4  # words of a text that is read though no error is raised with it
# Texts of these are not for users: they are sent to machines, or are those of developers.
UNREAD = ("cloudgpu/access/jobs/remote_", "cloudgpu/agent/", "cloudgpu/catalog/checks", "cloudgpu/catalog/make")
OFF, ON = "<!-- prose: off -->", "<!-- prose: on -->"
_PATTERNS = {re.compile(one, re.IGNORECASE): instead for one, instead in BANNED.items()}
_END = re.compile(r"""(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)[.!?]["')\]]*(?=\s+(?:["'(\[]*[A-Z0-9]|`|--?\w|cloudgpu))""")
_COMMAND = re.compile(
    r"`[^`]+`|\bcloudgpu [a-z]+(?: (?:ls|set|rm|reconcile|backtest|check|refresh)\b)?|(?<!\w)--?[a-z][\w-]*"
)
_SQL = re.compile(r"(?:SELECT|INSERT|UPDATE|DELETE|CREATE|WITH|ALTER)\b")
_WORD = re.compile(r"[^\W_][\w'./:@%$+-]*")


@dataclass(frozen=True, slots=True)
class Passage:
    """A paragraph, a list item, a heading or a cell, without markup; headings and cells are not `measured`."""

    place: str
    line: int
    text: str
    measured: bool = True

    def sentences(self) -> Iterator[tuple[int, str]]:
        """Yield each sentence with the line on which it begins."""
        start = 0
        for end in (*(found.end() for found in _END.finditer(self.text)), len(self.text)):
            sentence = self.text[start:end]
            if sentence.strip():
                begun = start + len(sentence) - len(sentence.lstrip())
                yield self.line + self.text.count("\n", 0, begun), " ".join(sentence.split())
            start = end


@dataclass(frozen=True, slots=True)
class Measure:
    """How a page is written."""

    page: str
    lengths: tuple[int, ...]
    faults: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Return the words of a sentence, on average."""
        return sum(self.lengths) / len(self.lengths) if self.lengths else 0.0


def main() -> int:
    """Print the table, and the faults of the named pages and of those that have too many; return 1 for such."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", help="pages of which to show the faults: README.md, help, errors")
    parser.add_argument("--check", action="store_true", help="print only faults beyond what is allowed")
    parser.add_argument("--root", type=Path, default=ROOT, help="where README.md and docs/ are")
    asked = parser.parse_args()
    over = False
    measures = measure(read_passages(asked.root))
    for one in measures:
        too_many = len(one.faults) > ALLOWED.get(one.page, 0)
        over = over or too_many
        if too_many or one.page in asked.pages:
            print(*one.faults, sep="\n")
        if too_many:
            print(f"{one.page}: {len(one.faults)} faults, {ALLOWED.get(one.page, 0)} are allowed")
    if not asked.check:
        print_table(measures)
    return 1 if over else 0


def print_table(measures: Iterable[Measure]) -> None:
    """Print page, sentences, words per sentence, longest, faults, allowed."""
    print(f"{'page':34} {'sentences':>9} {'words per sentence':>18} {'longest':>7} {'faults':>6} {'allowed':>7}")
    for one in measures:
        cells = f"{len(one.lengths):9} {one.mean:18.1f} {max(one.lengths, default=0):7} {len(one.faults):6}"
        print(f"{one.page:34} {cells} {ALLOWED.get(one.page, 0):7}")


def measure(passages: dict[str, list[Passage]]) -> list[Measure]:
    """Return each page's figures and faults, in the order of their lines."""
    spelling = misspelt([one for page in passages.values() for one in page])
    found = []
    for page, parts in passages.items():
        counted = [words(text) for part in parts if part.measured for _, text in part.sentences()]
        faults = [fault for part in parts for fault in (*faults_of(part), *spelling.get(part, ()))]
        found.append(Measure(page, tuple(filter(None, counted)), tuple(faults)))
    return found


def words(sentence: str) -> int:
    """Return how many words a sentence has; a piece of code is one."""
    return len(_WORD.findall(sentence))


def faults_of(passage: Passage) -> Iterator[str]:
    """Yield `place:line: what is wrong` for words that are not used here and sentences that are too long."""
    prose = passage.text.replace(CODE, "____").replace("\n", " ")
    for pattern, instead in _PATTERNS.items():
        for found in pattern.finditer(prose):
            line = passage.line + passage.text.count("\n", 0, found.start())
            yield f"{passage.place}:{line}: not '{found[0].strip()}' but {instead}"
    for line, sentence in passage.sentences():
        if passage.measured and words(sentence) > LONGEST:
            yield f"{passage.place}:{line}: {words(sentence)} words in one sentence: {sentence[:60]} ..."


def misspelt(passages: list[Passage]) -> dict[Passage, list[str]]:
    """Return what codespell finds, by passage."""
    lines = [(part, part.line + number, text) for part in passages for number, text in enumerate(part.text.split("\n"))]
    argv = [sys.executable, "-m", "codespell_lib", "-L", ",".join(CORRECT), "-"]
    text = "\n".join(text.replace(CODE, "") for _, _, text in lines)
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 65):  # 65: it found some
        sys.exit(f"codespell does not run, install cloudgpu[dev]: {done.stderr.strip()}")
    found: dict[Passage, list[str]] = {}
    for number, better in re.findall(r"^(\d+): .*\n\t(.+)$", done.stdout, re.MULTILINE):
        part, line, _ = lines[int(number) - 1]
        found.setdefault(part, []).append(f"{part.place}:{line}: spelling: {better}")
    return found


def read_passages(root: Path) -> dict[str, list[Passage]]:
    """Return the prose of every page, by the page's name; the changelog's latest section only."""
    found = {}
    for path in (
        root / "README.md",
        root / "CONTRIBUTING.md",
        root / "CHANGELOG.md",
        *sorted(root.glob("docs/**/*.md")),
    ):
        name = path.relative_to(root).as_posix()
        if name not in GENERATED and path.exists():
            text = path.read_text(encoding="utf-8")
            found[name] = list(markdown_passages(name, latest(text) if path.name == "CHANGELOG.md" else text))
    return {**found, HELP: list(help_passages()), ERRORS: list(error_passages())}


def latest(changelog: str) -> str:
    """Return a changelog up to its second version."""
    return "\n## ".join(changelog.split("\n## ")[:2])


def markdown_passages(name: str, text: str) -> Iterator[Passage]:
    """Yield the paragraphs, list items, headings and cells of a page; code in them is one word, CODE.

    Those between the comments OFF and ON are left out: examples of what not to write.
    """
    parser, inside, off = MarkdownIt("commonmark").enable("table"), "", False
    for token in parser.parse(text):
        if token.type == "html_block":
            off = {OFF: True, ON: False}.get(token.content.strip(), off)
        if token.type.endswith("_open"):
            inside = token.type.removesuffix("_open")
        if token.type == "inline" and not off:
            line = (token.map or [0])[0] + 1
            said = "".join(_plain(child) for child in token.children or ())
            yield Passage(name, line, said, measured=inside == "paragraph")


def _plain(token: Any) -> str:
    if token.type in ("softbreak", "hardbreak"):
        return "\n"
    return {"text": token.content, "code_inline": CODE}.get(token.type, "")


def help_passages() -> Iterator[Passage]:
    """Yield the help texts of all verbs and options; commands and options in them are one word, CODE."""
    yield from (replace(one, text=_COMMAND.sub(CODE, one.text)) for one in _help_passages())


def _help_passages() -> Iterator[Passage]:
    yield Passage(HELP, 1, SLOGAN)
    for verb, (_, summary) in VERBS.items():
        yield Passage(f"cloudgpu {verb}", 1, summary)
    for verb, command in commands().items():
        for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
            yield Passage(f"cloudgpu {verb} --help", 1, paragraph)
        for param in command.params:
            if not getattr(param, "hidden", False):
                yield Passage(f"cloudgpu {verb} {param.opts[0]}", 1, param.help or "")


def error_passages() -> Iterator[Passage]:
    """Yield the sentences and ways out of all errors that the code raises; what is filled in is one word, CODE.

    Then every other text of at least SHORTEST words: what reaches an error, a notice or a report through a name.
    """
    names = {one.__name__ for one in classes()}
    for file in sorted((ROOT / "cloudgpu").rglob("*.py")):
        tree, place = ast.parse(file.read_text(encoding="utf-8")), file.relative_to(ROOT).as_posix()
        read = set[ast.AST]()
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in names:
                nexts = [keyword.value for keyword in node.keywords if keyword.arg in ("next", "message")]
                for value in (*node.args[:1], *nexts):
                    read.update(ast.walk(value))
                    texts = (_COMMAND.sub(CODE, one) for one in _literals(value))
                    yield from (Passage(place, value.lineno, one) for one in texts)
        if not place.startswith(UNREAD):
            yield from (one for one in _text_passages(tree, place, read) if words(one.text) >= SHORTEST)


def _text_passages(tree: ast.Module, place: str, read: set[ast.AST]) -> Iterator[Passage]:
    """Yield the texts of a module that are in none of the nodes in `read`: no docstrings, SQL or lists of words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            read.add(node.value)  # a docstring
        elif isinstance(node, ast.Attribute) and node.attr == "split":
            read.add(node.value)
    for node in ast.walk(tree):
        if node in read:
            continue
        if isinstance(node, ast.JoinedStr):
            read.update(node.values)
        for text in _literals(node) if isinstance(node, (ast.Constant, ast.JoinedStr)) else ():
            if "\n" not in text and not _SQL.match(text):
                yield Passage(place, node.lineno, _COMMAND.sub(CODE, text), measured=False)


def _literals(value: ast.expr) -> Iterator[str]:
    """Yield the text of a literal; of a choice between two, both."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else CODE for part in value.values)
    elif isinstance(value, ast.IfExp):
        yield from _literals(value.body)
        yield from _literals(value.orelse)
    elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        yield "".join((*_literals(value.left), *_literals(value.right)))


if __name__ == "__main__":
    sys.exit(main())
