"""Sets values in the text of config.toml and leaves every other line, comments too, as it was.

tomlkit makes the edit. Both texts are parsed to check it: if more than the one value differs, nothing is changed, and
the user is told what to write.
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
    from tomlkit.items import Array

KeyPath = tuple[str, ...]  # `("owner",)`, `("accounts", "local", "watts")`


def set_value(text: str, path: KeyPath, value: object) -> str:
    """Return the text with the key at `path` set to `value`; the same text where it has that value already.

    Raises InvalidRequest for a file that is laid out in a way that this cannot edit safely, or that has a value where
    a table of the path has to be; and for a value that is no text, number, truth value or list of tables of these.
    """
    table_path = path[:-1]
    line, expected = _setting_line(path, value)
    table = tomllib.loads(text)
    _check_tables(table, path)
    if value_at(table, path) == expected:
        return text
    header = f"[{'.'.join(table_path)}]"
    if value_at(table, table_path) is None:
        text = f"{text.rstrip()}\n\n{header}\n".lstrip()
    _set_at(table, path, expected)
    manual_remedy = f"Set it by hand: {f'under {header}, ' * bool(table_path)}{line.rstrip()}"
    return _edit_and_check(
        text,
        lambda document: _set_in_document(document, path, line),
        table,
        f"{'.'.join(path)} cannot be set",
        manual_remedy,
    )


def _setting_line(path: KeyPath, value: object) -> tuple[str, object]:
    """Return the line that sets a key, and the value that TOML reads from it; raise InvalidRequest for other types."""
    try:
        line = f"{path[-1]} = {toml_literal(None if isinstance(value, bytes) else value)}\n"  # else a list of numbers
        return line, tomllib.loads(line)[path[-1]]
    except (TypeError, tomllib.TOMLDecodeError):
        name = ".".join(path)
        raise InvalidRequest(
            f"{name} cannot be set to a value of the type {type(value).__name__}, {value!r}.",
            field=f"config.toml: {name}",
            value=repr(value),
            next="Give a text, a number, true or false, or a list of tables of these.",
        ) from None


def _check_tables(table: Mapping[str, Any], path: KeyPath) -> None:
    """Raise InvalidRequest where a file has a value in the place of a table of the path."""
    for depth in range(1, len(path)):
        value, name = value_at(table, path[:depth]), ".".join(path[:depth])
        if value is not None and not isinstance(value, Mapping):
            raise InvalidRequest(
                f"{name} in config.toml is {value!r}, and {'.'.join(path)} needs the table [{name}] there.",
                field=f"config.toml: {name}",
                value=repr(value),
                next=f"Take {name} out of config.toml, and run the same again.",
            )


def remove_value(text: str, path: KeyPath) -> str:
    """Return the text without the key at `path` and its comment; the same text if it has no such key.

    Raises InvalidRequest for a file that is laid out in a way that this cannot edit safely.
    """
    manual_remedy = f"Take {path[-1]} out by hand, under [{'.'.join(path[:-1])}]."
    return _remove_at(text, path, f"{'.'.join(path)} cannot be taken out", manual_remedy)


def remove_table(text: str, path: KeyPath) -> str:
    """Return the text without the table at `path`, its subtables and their comments; the same text if it has none.

    Raises InvalidRequest for a file that is laid out in a way that this cannot edit safely.
    """
    name = f"[{'.'.join(path)}]"
    changed = _remove_at(text, path, f"{name} cannot be taken out", f"Take {name} out by hand.")
    return changed if changed == text else f"{changed.rstrip()}\n".lstrip()


def rename_table(text: str, path: KeyPath, new_key: str) -> str:
    """Return the text with the table at `path`, and its subtables, renamed: `new_key` replaces the last key.

    Raises InvalidRequest for a file that is laid out in a way that this cannot edit safely.
    """
    table = tomllib.loads(text)
    parent = value_at(table, path[:-1])
    parent[new_key] = parent.pop(path[-1])
    parent_pattern = r"\s*\.\s*".join(map(re.escape, path[:-1]))
    key = rf"(?:{re.escape(path[-1])}|\"{re.escape(path[-1])}\")"
    header = re.compile(rf"^(\s*\[\[?\s*{parent_pattern}\s*\.\s*){key}(?=\s*[\].])", re.MULTILINE)
    old_name, new_name = ".".join(path), ".".join((*path[:-1], new_key))
    manual_remedy = f"Rename [{old_name}] to [{new_name}] by hand, and run the same again."
    return _edit_and_check(
        header.sub(rf"\g<1>{new_key}", text), None, table, f"[{old_name}] cannot be renamed", manual_remedy
    )


def value_at(table: Mapping[str, Any], path: KeyPath) -> Any:
    """Return the value at `path` of a parsed file; None where there is none."""
    value: Any = table
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def toml_literal(value: object) -> str:
    """Return a text, a number, a boolean, a table or a list of these as TOML."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml_key(key)} = {toml_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[\n" + "".join(f"  {toml_literal(item)},\n" for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:f}" if isinstance(value, Decimal) else repr(value)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_literal(key)


def _set_at(table: dict[str, Any], path: KeyPath, value: object) -> None:
    for key in path[:-1]:
        table = table.setdefault(key, {})
    table[path[-1]] = value


def _remove_at(text: str, path: KeyPath, problem: str, manual_remedy: str) -> str:
    table = tomllib.loads(text)
    if value_at(table, path) is None:
        return text
    del value_at(table, path[:-1])[path[-1]]
    return _edit_and_check(
        text, lambda document: value_at(document, path[:-1]).pop(path[-1]), table, problem, manual_remedy
    )


def _edit_and_check(
    text: str,
    edit: Callable[[TOMLDocument], object] | None,
    expected: Mapping[str, Any],
    problem: str,
    manual_remedy: str,
) -> str:
    """Return the text after an edit, if it then parses as `expected`; an empty table may be gone.

    Raises InvalidRequest otherwise.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        if edit is not None:
            edit(document := tomlkit.parse(_with_final_newline(text)))
            text = _with_final_newline(document.as_string())
        if _without_empty_tables(tomllib.loads(text)) == _without_empty_tables(expected):
            return text
    except (TOMLKitError, tomllib.TOMLDecodeError):
        pass
    raise InvalidRequest(
        f"config.toml is laid out in a way in which {problem} without touching other lines.",
        field=f"config.toml: {problem.partition(' ')[0].strip('[]')}",
        value=None,
        next=manual_remedy,
    )


def _with_final_newline(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"


def _without_empty_tables(table: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in table.items() if value != {}}


def _set_in_document(document: TOMLDocument, path: KeyPath, line: str) -> None:
    """Replace the value at `path`, or add its line after the last value of its table.

    tomlkit alone would add it after the comments above the next table.
    """
    import tomlkit
    from tomlkit.items import AoT, Array, Comment, Table, Whitespace

    table: Any = value_at(document, path[:-1])
    has_header = isinstance(table, tomlkit.TOMLDocument | Table)
    old_value = table.get(path[-1])  # a list of tables has comments between them, and is left as it is
    body = document.body if table is document else table.value.body if has_header else []
    values = [item for key, item in body if key is not None and not isinstance(item, AoT | Table)]
    comments_above = [item for _, item in takewhile(lambda entry: isinstance(entry[1], Comment), body)]
    if (old_value is not None and not isinstance(old_value, AoT)) or not has_header:
        new_value: Any = tomlkit.parse(line)[path[-1]]
        if not (isinstance(old_value, Array) and isinstance(new_value, Array) and _edit_items(old_value, new_value)):
            table[path[-1]] = new_value
    elif values or path[:-1]:
        (values or [table])[-1].trivia.trail += line
    elif comments_above and isinstance([*body, (None, Whitespace(""))][len(comments_above)][1], Whitespace):
        comments_above[-1].trivia.trail += line
    elif comments_above:
        comments_above[0].trivia.indent = line
    else:
        table[path[-1]] = tomlkit.parse(line)[path[-1]]


def _edit_items(old: Array, new: Array) -> bool:
    """Change the items of a list that differ, so that comments at the others stay; return whether that was possible.

    A list without comments is replaced whole: so it gets one item on a line.
    """
    before, after = old.unwrap(), new.unwrap()
    if "#" not in old.as_string():
        return False
    if len(after) < len(before):
        removed = [index for index in range(len(before)) if [*before[:index], *before[index + 1 :]] == after]
        if removed:
            del old[removed[0]]
        return bool(removed)
    for index, item in enumerate(new):
        if index >= len(before):
            old.append(item)
        elif before[index] != after[index]:
            old[index] = item
    return True
