"""Sets values in the text of config.toml and leaves every other line, comments too, as it was.

The edit is made on lines and proved by reading both texts: where the result would differ by anything but the one
value, nothing is changed, and the user is told what to write.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from cloudgpu.errors import InvalidRequest

Path = tuple[str, ...]  # of a key: `("owner",)`, `("accounts", "local", "watts")`
_HEADER = re.compile(r"\s*\[")
_COMMENT_OR_BLANK = re.compile(r"\s*(#|$)")


def with_value(text: str, path: Path, value: object) -> str:
    """Return the text with the key at `path` set to `value`; the same text where it has that value already.

    Raises InvalidRequest for a file that is laid out in a way that this cannot edit safely.
    """
    wanted = literal(value)
    meant = tomllib.loads(f"x = {wanted}")["x"]
    table = tomllib.loads(text)
    if value_at(table, path) == meant:
        return text
    _put(table, path, meant)
    changed = _placed(text.split("\n"), path, wanted)
    try:
        if tomllib.loads(changed) == table:
            return changed
    except tomllib.TOMLDecodeError:
        pass
    key = ".".join(path)
    raise InvalidRequest(
        f"config.toml is laid out in a way in which {key} cannot be set without touching other lines.",
        field=f"config.toml: {key}",
        value=None,
        next=f"Set it by hand: under [{'.'.join(path[:-1])}], {path[-1]} = {wanted}"
        if path[:-1]
        else f"Set it by hand: {path[-1]} = {wanted}",
    )


def without_value(text: str, path: Path) -> str:
    """Return the text without the key at `path` of a table, and without its comment; the same text where it is not.

    Raises InvalidRequest for a file that is laid out in a way that this cannot edit safely.
    """
    table = tomllib.loads(text)
    if value_at(table, path) is None:
        return text
    del value_at(table, path[:-1])[path[-1]]
    lines = text.split("\n")
    old = _old(lines, _section(lines, path[:-1]) or range(0), path[-1])
    if old is not None:
        changed = "\n".join([*lines[: old.start], *lines[old.stop :]])
        if _parsed(changed) == table:
            return changed
    key = ".".join(path)
    raise InvalidRequest(
        f"config.toml is laid out in a way in which {key} cannot be taken out without touching other lines.",
        field=f"config.toml: {key}",
        value=None,
        next=f"Take {path[-1]} out by hand, under [{'.'.join(path[:-1])}].",
    )


def without_table(text: str, path: Path) -> str:
    """Return the text without the table at `path`, the tables under it, and their comments; without it, the same text.

    Raises InvalidRequest for a file that is laid out in a way that this cannot edit safely.
    """
    table = tomllib.loads(text)
    if value_at(table, path) is None:
        return text
    del value_at(table, path[:-1])[path[-1]]
    lines = text.split("\n")
    while (section := _section(lines, path, under=True)) is not None:
        del lines[section.start - 1 : section.stop]
    changed = "\n".join(lines).rstrip("\n")
    found = _parsed(changed)
    if found == table or found == _without_empty(table, path[:-1]):
        return f"{changed}\n" * bool(changed)
    key = ".".join(path)
    raise InvalidRequest(
        f"config.toml is laid out in a way in which [{key}] cannot be taken out without touching other lines.",
        field=f"config.toml: {key}",
        value=None,
        next=f"Take [{key}] out by hand.",
    )


def renamed_table(text: str, path: Path, name: str) -> str:
    """Return the text with the table at `path`, and the tables under it, called `name` there.

    Raises InvalidRequest for a file that is laid out in a way that this cannot edit safely.
    """
    table = tomllib.loads(text)
    above = value_at(table, path[:-1]) if path[:-1] else table
    above[name] = above.pop(path[-1])
    words = r"\s*\.\s*".join(map(re.escape, path[:-1]))
    key = rf"(?:{re.escape(path[-1])}|\"{re.escape(path[-1])}\")"
    header = re.compile(rf"(\s*\[\[?\s*{words}\s*\.\s*){key}(?=\s*[\].])")
    changed = "\n".join(header.sub(rf"\g<1>{name}", line, count=1) for line in text.split("\n"))
    if _parsed(changed) == table:
        return changed
    was = ".".join(path)
    raise InvalidRequest(
        f"config.toml is laid out in a way in which [{was}] cannot be renamed without touching other lines.",
        field=f"config.toml: {was}",
        value=None,
        next=f"Rename [{was}] to [{'.'.join((*path[:-1], name))}] by hand, and run the same again.",
    )


def _without_empty(table: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the table without what is empty at `path`: the last table of its kind takes its parent with it."""
    if not path or value_at(table, path) != {}:
        return table
    return {key: value for key, value in table.items() if key != path[0]} if len(path) == 1 else table


def value_at(table: Mapping[str, Any], path: Path) -> Any:
    """Return what a parsed file has at `path`; None where there is nothing."""
    found: Any = table
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def literal(value: object) -> str:
    """Return a text, a number, or a list of tables of these as TOML."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[\n" + "".join(f"  {literal(item)},\n" for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:f}" if isinstance(value, Decimal) else repr(value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else literal(key)


def _put(table: dict[str, Any], path: Path, value: object) -> None:
    for key in path[:-1]:
        table = table.setdefault(key, {})
    table[path[-1]] = value


def _placed(lines: list[str], path: Path, wanted: str) -> str:
    """Return the lines with `key = wanted` in the place of its old line, else after the last line of its table."""
    section = _section(lines, path[:-1])
    line = f"{path[-1]} = {wanted}"
    if section is None:
        above = "\n".join(lines).rstrip("\n")
        return f"{above}\n\n[{'.'.join(path[:-1])}]\n{line}\n".lstrip("\n")
    old = _old(lines, section, path[-1])
    if old is not None:
        lines[old.start : old.stop] = [line + _comment(lines, old)]
    else:
        lines.insert(_after_last(lines, section), line)
    text = "\n".join(lines)
    return text if text.endswith("\n") else f"{text}\n"


def _section(lines: list[str], header: Path, *, under: bool = False) -> range | None:
    """Return the lines between a table's header and the next one; for the top, those before the first header.

    `under`: a table that lies under it, or a list of such, counts too.
    """
    start = 0
    if header:
        deeper = r"(\s*\..*?)?" if under else ""
        words = r"\s*\.\s*".join(map(re.escape, header))
        named = re.compile(
            rf"\s*\[\[?\s*{words}{deeper}\s*\]\]?\s*(#.*)?" if under else rf"\s*\[\s*{words}\s*\]\s*(#.*)?"
        )
        found = [number for number, line in enumerate(lines) if named.fullmatch(line.rstrip("\r"))]
        if not found:
            return None
        start = found[0] + 1
    ends = [number for number in range(start, len(lines)) if _HEADER.match(lines[number])]
    return range(start, ends[0] if ends else len(lines))


def _old(lines: list[str], section: range, key: str) -> range | None:
    """Return the lines of `key = value`, which may be several; None where there is no such key."""
    begins = re.compile(rf"\s*{re.escape(key)}\s*=")
    for number in section:
        if begins.match(lines[number]):
            return range(number, _end(lines, number))
    return None


def _end(lines: list[str], start: int) -> int:
    """Return the first line after a value: it ends where the lines so far are TOML."""
    for end in range(start + 1, len(lines) + 1):
        if _parsed("\n".join(lines[start:end])) is not None:
            return end
    return start + 1


def _comment(lines: list[str], old: range) -> str:
    """Return the comment behind a value of one line, with the spaces before it."""
    line = lines[old.start]
    if len(old) > 1:
        return ""
    for found in re.finditer(r"\s*#", line):
        if _parsed(line[: found.start()]) == _parsed(line):
            return line[found.start() :]
    return ""


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _after_last(lines: list[str], section: range) -> int:
    """Return where a new key goes: behind the last value; without one, behind what is said at the very top."""
    values = [number for number in section if not _COMMENT_OR_BLANK.match(lines[number])]
    if values or section.start:
        return values[-1] + 1 if values else section.start
    first_blank = next((number for number in section if not lines[number].strip()), section.stop)
    return first_blank if first_blank and _parsed("\n".join(lines[:first_blank])) == {} else 0
