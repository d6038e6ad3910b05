"""Writes a report as HTML, Markdown or JSON: completely or not at all, private, and never over any other file."""

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
    from cloudgpu.views.documents.money.report import ReportDocument

STDOUT = "-"
REPORT_KIND: Literal["cloudgpu report"] = "cloudgpu report"  # the value of the document's first key
_MARKERS = (
    f"<!-- {REPORT_KIND} -->".encode(),
    f'"kind": "{REPORT_KIND}"'.encode(),
)  # every written report has one of them
_HEAD_BYTES = 200  # the marker is within the first so many bytes
_PRIVATE_MODE = 0o600  # a report has names of people and their costs


class ReportFormat(StrEnum):
    """The formats of a report."""

    HTML = "html"
    MARKDOWN = "md"
    JSON = "json"


def parse_report_format(name: str) -> ReportFormat:
    """Return the format with this name. Raises InvalidRequest for an unknown name."""
    return parse_member(ReportFormat, name, "form of a report", "--format")


def render_report(document: ReportDocument, report_format: ReportFormat) -> str:
    """Return the report as text in a format."""
    if report_format is ReportFormat.HTML:
        from cloudgpu.views.report.html import to_html

        return to_html(document)
    if report_format is ReportFormat.MARKDOWN:
        from cloudgpu.views.report.markdown import to_markdown

        return to_markdown(document)
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def default_report_path(document: ReportDocument) -> Path:
    """Return the default file of a report, in the current directory, named by its month or day."""
    from cloudgpu.views.report.html import file_name

    return Path(file_name(document, zone_of(document["tz"])))


def write_report(text: str, path: Path) -> None:
    """Write a report that only its owner may read, completely or not at all; it may replace an earlier report.

    Raises InvalidRequest for an existing file that is not a report, and if the file cannot be written.
    """
    try:
        _check_replaceable(path)
        _write_atomically(text, path)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidRequest(
            f"{path} cannot be written: {why.lower()}.",
            field="--to",
            value=str(path),
            next="Name a file in an existing directory that you can write to, or - for stdout.",
        ) from error


def _write_atomically(text: str, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_MODE), "w", encoding="utf-8"
        ) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _check_replaceable(path: Path) -> None:
    """Raise InvalidRequest for an existing file that is neither a report nor empty."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        what = "a directory" if stat.S_ISDIR(status.st_mode) else "no file"
        raise InvalidRequest(f"{path} is {what}.", field="--to", value=str(path), next="Name a file, or - for stdout.")
    with path.open("rb") as file:
        first_bytes = file.read(_HEAD_BYTES)
    if first_bytes and not any(marker in first_bytes for marker in _MARKERS):
        raise InvalidRequest(
            f"{path} exists and is not a report of cloudgpu, so it was not replaced.",
            field="--to",
            value=str(path),
            next="Name another file, or remove that one.",
        )
