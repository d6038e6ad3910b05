"""Sets values in the text of config.toml and leaves every other line, comments too, as it was.

tomlkit makes the edit, and reading both texts proves it: where the result would differ by anything but the one value,
nothing is changed, and the user is told what to write.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

Path = tuple[str, ...]  # of a key: `("owner",)`, `("accounts", "local", "watts")`


def with_value(text: str, path: Path, value: object) -> str:
    """Return the text with the key at `path` set to `value`; the same text where it has that value already.

    Raises InvalidRequest for a file that is laid out in a way that this cannot edit safely, or that has a value where
    a table of the path has to be; and for a value that is no text, number, truth value or list of tables of these.
    """
    above = path[:-1]
    line, meant = _line(path, value)
    table = tomllib.loads(text)
    _check_tables(table, path)
    if value_at(table, path) == meant:
        return text
    header = f"[{'.'.join(above)}]"
    if value_at(table, above) is None:
        text = f"{text.rstrip()}\n\n{header}\n".lstrip()
    _put(table, path, meant)
    by_hand = f"Set it by hand: {f'under {header}, ' * bool(above)}{line.rstrip()}"
    return _edited(text, lambda document: _set(document, path, line), table, f"{'.'.join(path)} cannot be set", by_hand)


def _line(path: Path, value: object) -> tuple[str, object]:
    """Return the line that sets a key, and what it means; raise InvalidRequest for what TOML has no words for."""
    try:
        line = f"{path[-1]} = {literal(None if isinstance(value, bytes) else value)}\n"  # else a list of numbers
        return line, tomllib.loads(line)[path[-1]]
    except (TypeError, tomllib.TOMLDecodeError):
        name = ".".join(path)
        raise InvalidRequest(
            f"{name} cannot be set to a value of the type {type(value).__name__}, {value!r}.",
            field=f"config.toml: {name}",
            value=repr(value),
            next="Give a text, a number, true or false, or a list of tables of these.",
        ) from None


def _check_tables(table: Mapping[str, Any], path: Path) -> None:
    """Raise InvalidRequest where a file has a value in the place of a table of the path."""
    for depth in range(1, len(path)):
        found, name = value_at(table, path[:depth]), ".".join(path[:depth])
        if found is not None and not isinstance(found, Mapping):
            raise InvalidRequest(
                f"{name} in config.toml is {found!r}, and {'.'.join(path)} needs the table [{name}] there.",
                field=f"config.toml: {name}",
                value=repr(found),
                next=f"Take {name} out of config.toml, and run the same again.",
            )


def without_value(text: str, path: Path) -> str:
    """Return the text without the key at `path` of a table, and without its comment; the same text where it is not.

    Raises InvalidRequest for a file that is laid out in a way that this cannot edit safely.
    """
    by_hand = f"Take {path[-1]} out by hand, under [{'.'.join(path[:-1])}]."
    return _without(text, path, f"{'.'.join(path)} cannot be taken out", by_hand)


def without_table(text: str, path: Path) -> str:
    """Return the text without the table at `path`, the tables under it, and their comments; without it, the same text.

    Raises InvalidRequest for a file that is laid out in a way that this cannot edit safely.
    """
    name = f"[{'.'.join(path)}]"
    changed = _without(text, path, f"{name} cannot be taken out", f"Take {name} out by hand.")
    return changed if changed == text else f"{changed.rstrip()}\n".lstrip()


def renamed_table(text: str, path: Path, name: str) -> str:
    """Return the text with the table at `path`, and the tables under it, called `name` there.

    Raises InvalidRequest for a file that is laid out in a way that this cannot edit safely.
    """
    table = tomllib.loads(text)
    above = value_at(table, path[:-1])
    above[name] = above.pop(path[-1])
    words = r"\s*\.\s*".join(map(re.escape, path[:-1]))
    key = rf"(?:{re.escape(path[-1])}|\"{re.escape(path[-1])}\")"
    header = re.compile(rf"^(\s*\[\[?\s*{words}\s*\.\s*){key}(?=\s*[\].])", re.MULTILINE)
    was, now = ".".join(path), ".".join((*path[:-1], name))
    by_hand = f"Rename [{was}] to [{now}] by hand, and run the same again."
    return _edited(header.sub(rf"\g<1>{name}", text), None, table, f"[{was}] cannot be renamed", by_hand)


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


def _without(text: str, path: Path, what: str, by_hand: str) -> str:
    table = tomllib.loads(text)
    if value_at(table, path) is None:
        return text
    del value_at(table, path[:-1])[path[-1]]
    return _edited(text, lambda document: value_at(document, path[:-1]).pop(path[-1]), table, what, by_hand)


def _edited(
    text: str, edit: Callable[[TOMLDocument], object] | None, meant: Mapping[str, Any], what: str, by_hand: str
) -> str:
    """Return the text after an edit, if it then means just that; an empty table may be gone.

    Raises InvalidRequest where it means anything else.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        if edit is not None:
            edit(document := tomlkit.parse(_ended(text)))
            text = _ended(document.as_string())
        if _filled(tomllib.loads(text)) == _filled(meant):
            return text
    except (TOMLKitError, tomllib.TOMLDecodeError):
        pass
    raise InvalidRequest(
        f"config.toml is laid out in a way in which {what} without touching other lines.",
        field=f"config.toml: {what.partition(' ')[0].strip('[]')}",
        value=None,
        next=by_hand,
    )


def _ended(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"


def _filled(table: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in table.items() if value != {}}


def _set(document: TOMLDocument, path: Path, line: str) -> None:
    """Replace the value at `path`, or add its line behind the last value of its table.

    tomlkit alone would add it behind the comments that stand above the next table.
    """
    import tomlkit
    from tomlkit.items import AoT, Comment, Table, Whitespace

    table: Any = value_at(document, path[:-1])
    has_header = isinstance(table, tomlkit.TOMLDocument | Table)
    old = table.get(path[-1])  # a list of tables has comments between them, and is left as it is
    body = document.body if table is document else table.value.body if has_header else []
    values = [item for key, item in body if key is not None and not isinstance(item, AoT | Table)]
    above = [item for _, item in takewhile(lambda one: isinstance(one[1], Comment), body)]
    if (old is not None and not isinstance(old, AoT)) or not has_header:
        table[path[-1]] = tomlkit.parse(line)[path[-1]]
    elif values or path[:-1]:
        (values or [table])[-1].trivia.trail += line
    elif above and isinstance([*body, (None, Whitespace(""))][len(above)][1], Whitespace):
        above[-1].trivia.trail += line
    elif above:
        above[0].trivia.indent = line
    else:
        table[path[-1]] = tomlkit.parse(line)[path[-1]]
