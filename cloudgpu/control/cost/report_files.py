"""Writes a report as a page, Markdown or JSON: whole or not at all, private, and over nothing that is no report."""

from __future__ import annotations

import json
import os
import stat
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cloudgpu.config.files.user_files import zone_of
from cloudgpu.core.values.typed import parse_member
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudgpu.views.documents.money.report import ReportDocument

STDOUT = "-"
KIND: Literal["cloudgpu report"] = "cloudgpu report"  # what the document calls itself, in its first key
_MARKS = (f"<!-- {KIND} -->".encode(), f'"kind": "{KIND}"'.encode())
_HEAD_BYTES = 200  # bytes in which one of them stands
_OWN_ONLY = 0o600  # names of machines and people, and what they cost: nobody else's business


class ReportFormat(StrEnum):
    """In which form a report is written."""

    HTML = "html"
    MARKDOWN = "md"
    JSON = "json"


def parse_report_format(name: str) -> ReportFormat:
    """Return the form of this name; raise InvalidRequest for another."""
    return parse_member(ReportFormat, name, "form of a report", "--format")


def render_report(document: ReportDocument, form: ReportFormat) -> str:
    """Return the report's document in a form; each is made of the document alone."""
    return _RENDERED[form](document)


def default_file(document: ReportDocument) -> Path:
    """Return where a page goes that nobody named a file for, in the present directory: by its month, else its day."""
    from cloudgpu.views.report.html import file_name

    return Path(file_name(document, zone_of(document["tz"])))


def write_report(text: str, to: Path) -> None:
    """Write a report that only its owner may read, in the place of an earlier one at most; it is there whole or not.

    Raises InvalidRequest for a file that is no report of ours, and where it cannot be written.
    """
    try:
        _check_replaceable(to)
        _write_atomically(text, to)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidRequest(
            f"{to} cannot be written: {why.lower()}.",
            field="--to",
            value=str(to),
            next="Name a file in an existing directory that you can write to, or - for stdout.",
        ) from error


def _write_atomically(text: str, to: Path) -> None:
    part = to.with_name(f".{to.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWN_ONLY), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(to)
    finally:
        part.unlink(missing_ok=True)


def _check_replaceable(to: Path) -> None:
    """Raise InvalidRequest for what is there and no report of ours; an empty file holds nothing to lose."""
    try:
        status = to.stat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        what = "a directory" if stat.S_ISDIR(status.st_mode) else "no file"
        raise InvalidRequest(f"{to} is {what}.", field="--to", value=str(to), next="Name a file, or - for stdout.")
    with to.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head and not any(mark in head for mark in _MARKS):
        raise InvalidRequest(
            f"{to} exists and is not a report of cloudgpu, so it was not replaced.",
            field="--to",
            value=str(to),
            next="Name another file, or remove that one.",
        )


def _html(document: ReportDocument) -> str:
    from cloudgpu.views.report.html import to_html

    return to_html(document)


def _markdown(document: ReportDocument) -> str:
    from cloudgpu.views.report.markdown import to_markdown

    return to_markdown(document)


def _json(document: ReportDocument) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


_RENDERED: dict[ReportFormat, Callable[[ReportDocument], str]] = {
    ReportFormat.HTML: _html,
    ReportFormat.MARKDOWN: _markdown,
    ReportFormat.JSON: _json,
}
