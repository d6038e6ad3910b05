"""Reads YAML that people write: plain values only, each with its line in the file.

Scalars follow YAML 1.2's core schema (`on`, `no` and `2026-11-20` are text), fractions are Decimal. Tags, anchors,
aliases, duplicate keys, keys that are not text and more than one document are errors: launch templates and policies
need none of them, and aliases can make a small file fill the memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from cloudgpu.config.files.user_files import read_text, shown
from cloudgpu.core.values.naming import closest_match, did_you_mean
from cloudgpu.errors import InvalidRequest

MAX_LENGTH = 128 * 1024  # characters
MAX_DEPTH = 12  # lists and tables inside each other

_STR, _NULL, _BOOL = "tag:yaml.org,2002:str", "tag:yaml.org,2002:null", "tag:yaml.org,2002:bool"
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"


class _CoreLoader(yaml.SafeLoader):
    """YAML 1.2's core schema instead of 1.1's surprises."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  (as in its base)


_CoreLoader.add_implicit_resolver(_NULL, re.compile(r"^(?:~|null|)$"), ["~", "n", ""])
_CoreLoader.add_implicit_resolver(_BOOL, re.compile(r"^(?:true|false)$"), ["t", "f"])
_CoreLoader.add_implicit_resolver(_INT, re.compile(r"^[-+]?[0-9]{1,18}$"), list("-+0123456789"))
_CoreLoader.add_implicit_resolver(
    _FLOAT, re.compile(r"^[-+]?(?:[0-9]{1,18}\.[0-9]{0,18}|\.[0-9]{1,18})$"), list("-+.0123456789")
)


@dataclass(frozen=True, slots=True)
class Table:
    """A file's values by key. `lines` has the line of every key path: `packages`, `packages[2]`, `gpu.watts`.

    `block_lines` has the line on which the text of each `key: |` begins.
    """

    path: Path
    values: Mapping[str, Any]
    lines: Mapping[str, int]
    block_lines: Mapping[str, int]

    def error(self, key: str, problem: str, *, next: str) -> InvalidRequest:  # noqa: A002
        """Return the error for one key path; `problem` follows the key in the message: `has to be text`."""
        where = f"{self.path.name}:{self.lines.get(key, 1)}"
        end = "" if problem.endswith("?") else "."
        return InvalidRequest(
            f"{where}: {key} {problem}{end}",
            field=f"{where}: {key}",
            value=shown(self._at(key)),
            next=f"{next} ({self.path})",
        )

    def _at(self, key: str) -> object:
        """Return the value at a key path, None where there is none."""
        value: object = self.values
        for name in re.findall(r"[^.\[\]]+", key):
            if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
                value = value[int(name)]
            elif isinstance(value, Mapping):
                value = value.get(name)
            else:
                return None
        return value

    def check_keys(self, known_keys: Iterable[str], required: Iterable[str] = ()) -> None:
        """Raise InvalidRequest for a key that is not known, or a required one that is missing."""
        known_keys = tuple(known_keys)
        for key in self.values:
            if key not in known_keys:
                raise self.error(
                    key,
                    "is not a known key" + did_you_mean(closest_match(key, known_keys)),
                    next=f"Use one of: {', '.join(known_keys)}.",
                )
        for key in required:
            if key not in self.values:
                raise self.error(key, "is missing", next=f"Add a line that begins with {key}:")

    def text(self, key: str, default: str = "") -> str:
        """Return the text at `key`, of one or more lines."""
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise self.error(key, "has to be text", next="Put it in quotes, or under `key: |`.")
        return value

    def one_line(self, key: str, default: str = "") -> str:
        """Return the text at `key`, which has to be one printable line."""
        value = self.text(key, default)
        if not value.isprintable():
            raise self.error(
                key, "has to be one line of text", next="Write it without line breaks or control characters."
            )
        return value

    def text_list(self, key: str) -> tuple[str, ...]:
        """Return the list of non-empty one-line texts at `key`."""
        value = self.values.get(key, [])
        if not isinstance(value, list):
            raise self.error(key, "has to be a list", next="Write one `- item` on a line.")
        for number, item in enumerate(value):
            if not isinstance(item, str) or not item.strip() or not item.isprintable():
                raise self.error(f"{key}[{number}]", "has to be one line of text", next="Put it in quotes.")
        return tuple(value)

    def whole_number(self, key: str, *, minimum: int, maximum: int) -> int | None:
        """Return the whole number at `key`, from `minimum` to `maximum`, or None if the key is missing."""
        if key not in self.values:
            return None
        value: object = self.values[key]
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise self.error(
                key,
                f"has to be a whole number from {minimum:,} to {maximum:,}",
                next="Write it in digits, without a unit.",
            )
        return value

    def number(self, key: str, *, minimum: Decimal | int, maximum: Decimal | int) -> Decimal:
        """Return the exact number at `key`, from `minimum` to `maximum`."""
        value = self.values.get(key)
        if not isinstance(value, int | Decimal) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise self.error(
                key, f"has to be a number from {minimum} to {maximum}", next="Write it in digits, without a unit."
            )
        return Decimal(value)


def read_named_yaml(directory: Path, name: str) -> Table | None:
    """Return the table of the file NAME.yaml in a directory, or None when there is no file; raise as `read_yaml`.

    Raises InvalidRequest, too, where there is a NAME.yml, also beside it: a lab's limits in it would limit nothing, and
    nobody would know.
    """
    path, other_file = directory / f"{name}.yaml", directory / f"{name}.yml"
    if other_file.exists():
        raise InvalidRequest(
            f"{other_file.name} is not read: its name has to end in .yaml ({other_file}).",
            field=other_file.name,
            value=str(other_file),
            next=f"Rename it to {path}, or remove it.",
        )
    return read_yaml(path)


def read_yaml(path: Path) -> Table | None:
    """Return the table that the file holds, or None when there is no file.

    Raises InvalidRequest, with `file:line` in `field`, for anything but a plain table of at most 128 KiB.
    """
    text = read_text(path, path.name)
    return None if text is None else parse_yaml(text, path)


@lru_cache(maxsize=64)  # every run of the reaper parses the same texts
def parse_yaml(text: str, path: Path) -> Table:
    """Return the table in `text`, which callers must not change (it is cached); errors name the file `path`."""
    if len(text) > MAX_LENGTH:
        raise YamlFileError(path, 1, f"is larger than {MAX_LENGTH // 1024} KiB")
    try:
        _check_events(text, path)
        node = yaml.compose(text, _CoreLoader)
    except yaml.MarkedYAMLError as error:
        raise YamlFileError(
            path,
            _line(error.problem_mark or error.context_mark),
            f"is not valid YAML: {error.problem or error.context}",
        ) from None
    except yaml.YAMLError as error:  # a control character: it has a position and no line
        position = getattr(error, "position", 0)
        raise YamlFileError(
            path, text.count("\n", 0, position) + 1, "holds a character that YAML does not allow"
        ) from None
    if not isinstance(node, yaml.MappingNode):
        raise YamlFileError(path, 1, "holds no `key: value` lines")
    lines: dict[str, int] = {}
    block_lines: dict[str, int] = {}
    for key, value in node.value:
        if isinstance(value, yaml.ScalarNode) and value.style == "|":
            block_lines[str(key.value)] = _line(value.start_mark) + 1
    return Table(path, _table(node, path, "", lines), lines, block_lines)


def _line(mark: Any) -> int:
    return 1 if mark is None else int(mark.line) + 1


class YamlFileError(InvalidRequest):
    """A file is no YAML that is read: on this line, and what is wrong there, a clause about the file."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        where = f"{path.name}:{line}"
        super().__init__(
            f"{where}: the file {problem}.", field=where, value=None, next=f"Correct line {line} of {path}."
        )
        self.line, self.problem = line, problem


def _check_events(text: str, path: Path) -> None:
    """Raise InvalidRequest for a parser event (tag, alias, second document) that plain data does not need."""
    depth = documents = 0
    for event in yaml.parse(text, _CoreLoader):
        line = _line(event.start_mark)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise YamlFileError(path, line, "uses an anchor or alias (& or *), and neither is read")
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
            raise YamlFileError(path, line, "uses a tag (!), and none is read")
        if depth > MAX_DEPTH:
            raise YamlFileError(path, line, f"nests more than {MAX_DEPTH} deep")
        if documents > 1:
            raise YamlFileError(path, line, "holds a second document (---)")


def _table(node: yaml.MappingNode, path: Path, prefix: str, lines: dict[str, int]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = _line(key_node.start_mark)
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _STR or not key_node.value.isprintable():
            raise YamlFileError(path, line, "has a key that is not text")
        key = key_node.value
        if key in table:
            raise YamlFileError(
                path, line, f"says {shown(key)} a second time; the first is on line {lines[prefix + key]}"
            )
        lines[prefix + key] = line
        table[key] = _value(value_node, path, prefix + key, lines)
    return table


def _value(node: yaml.Node, path: Path, name: str, lines: dict[str, int]) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _table(node, path, f"{name}.", lines)
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            lines[f"{name}[{number}]"] = _line(item.start_mark)
        return [_value(item, path, f"{name}[{number}]", lines) for number, item in enumerate(node.value)]
    return _SCALARS[node.tag](node.value)


_SCALARS: dict[str, Callable[[str], Any]] = {
    _STR: str,
    _NULL: lambda _text: None,
    _BOOL: lambda text: text == "true",
    _INT: int,
    _FLOAT: Decimal,
}
