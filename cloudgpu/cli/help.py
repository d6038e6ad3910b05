"""The pages of help: the short one of `cloudgpu` alone, all verbs, and the options of a verb in groups."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from cloudgpu.cli.terminal import columns, filled, is_coloured, paint, prose_columns
from cloudgpu.cli.verbs import HEADINGS, SLOGAN, VERBS

_OPTION_WIDTH = 30  # columns of an option and its value; if they are longer, the text begins on the next line
# What most people type, on the page of `cloudgpu` alone.
COMMON_VERBS = {
    "Begin": ("demo", "init", "doctor"),
    "Machines": ("up", "ls", "ssh", "exec", "tunnel", "extend", "stop", "down"),
    "Money": ("estimate", "cost", "budget", "compare"),
}


class Page:
    """Builds a page of help with the methods of the parser's formatter. Unlike that, it never breaks a word."""

    def __init__(self, width: int) -> None:
        self.width, self._indent, self._parts = width, "", list[str]()

    def write_usage(self, prog: str, args: str = "", prefix: str = "Usage: ") -> None:
        """Write how a command is called."""
        usage_start = f"{_styled(prefix.rstrip(), 'bold underline')} {prog} "
        indent = len(f"{prefix}{prog} ")
        if indent + max(map(len, args.split()), default=0) > self.width:  # a long word stands on the next line
            self._parts.append(f"{usage_start.rstrip()}\n{filled(args, self.width, ' ' * 4, ' ' * 4)}\n")
            return
        self._parts.append(usage_start + filled(args, self.width, " " * indent, " " * indent)[indent:] + "\n")

    def write_paragraph(self) -> None:
        """Write an empty line between two parts."""
        if self._parts:
            self._parts.append("\n")

    def write_text(self, text: str) -> None:
        """Write paragraphs, each filled anew."""
        indent, parts = self._indent, text.split("\n\n")
        self._parts.append(
            "\n\n".join(filled(" ".join(part.split()), self.width, indent, indent) for part in parts) + "\n"
        )

    def write_rows(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        """Write a part: its title, and what can be typed with what it means."""
        self.write_paragraph()
        self._parts.append(f"{_styled(f'{title}:', 'bold underline')}\n")
        indent = 2 + max((len(term) for term, _ in rows if len(term) <= _OPTION_WIDTH), default=0) + 2
        for term, description in rows:
            wrapped = filled(description, self.width, " " * indent, " " * indent)
            needs_own_line = len(term) + 4 > indent
            description_text = f"\n{wrapped}" if needs_own_line else wrapped[2 + len(term) :]
            self._parts.append(f"  {_styled(term, 'bold')}{description_text}\n")

    @contextmanager
    def indentation(self) -> Iterator[None]:
        """Indent what is written meanwhile."""
        self._indent += "  "
        yield
        self._indent = self._indent[2:]

    def getvalue(self) -> str:
        """Return what was written."""
        return "".join(self._parts)


def page_of(command: Any, ctx: Any) -> str:
    """Return the help of a command as wide as the terminal."""
    page = Page(prose_columns())
    command.format_help(ctx, page)
    return page.getvalue().rstrip("\n")


def front_page() -> str:
    """Return the page of `cloudgpu` alone: the common verbs, in at most 30 lines."""
    page = Page(columns())
    page.write_text(SLOGAN)
    page.write_paragraph()
    page.write_usage("cloudgpu", "VERB [OPTIONS]")
    width = max(len(verb) for verbs in COMMON_VERBS.values() for verb in verbs)
    for title, verbs in COMMON_VERBS.items():
        page.write_rows(title, [(verb.ljust(width), VERBS[verb][1]) for verb in verbs])
    page.write_paragraph()
    page.write_text("cloudgpu --help lists every verb, and cloudgpu help VERB explains one.")
    return page.getvalue()


def write_verbs(page: Page) -> None:
    """Write all verbs in parts, without importing one: a line each at 80 columns."""
    width = max(map(len, VERBS))
    starts = [*map(list(VERBS).index, HEADINGS), len(VERBS)]
    for title, (start, end) in zip(HEADINGS.values(), pairwise(starts), strict=True):
        rows = list(VERBS.items())[start:end]
        page.write_rows(title, [(verb.ljust(width), summary) for verb, (_, summary) in rows])


def write_options(command: Any, ctx: Any, page: Page, groups: Mapping[str, Sequence[str]]) -> None:
    """Write arguments and options under the titles of `groups`, which list options; those in no group come last."""
    title_of = {option: title for title, options in groups.items() for option in options}
    rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], **{title: [] for title in groups}, "Options": []}
    for param in command.get_params(ctx):
        help_record = param.get_help_record(ctx)
        if help_record is not None:
            is_argument = param.param_type_name == "argument"
            title = next((title_of[option] for option in param.opts if option in title_of), "Options")
            rows["Arguments" if is_argument else title].append(help_record)
    width = max(
        (len(term) for group_rows in rows.values() for term, _ in group_rows if len(term) <= _OPTION_WIDTH),
        default=0,
    )
    position_of = {option: number for number, option in enumerate(title_of)}
    for title, group_rows in rows.items():
        if title in groups:
            group_rows.sort(
                key=lambda row: min(position_of.get(word.rstrip(","), len(position_of)) for word in row[0].split())
            )
        if group_rows:
            page.write_rows(title, [(term.ljust(width), description) for term, description in group_rows])


def _styled(text: str, style: str) -> str:
    return paint(text, style) if is_coloured(sys.stdout) else text
