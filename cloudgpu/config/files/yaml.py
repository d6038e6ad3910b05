"""YAML for data that people write: plain values only, each with the line it stands on.

Scalars follow YAML 1.2's core schema (`on`, `no` and `2026-11-20` are text), fractions are Decimal. Tags, anchors,
aliases, duplicate keys, keys that are no text and more than one document are refused: launch templates and policies
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

LARGEST = 128 * 1024  # characters
DEEPEST = 12  # lists and tables inside each other

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
    """A file's values by key. `lines` knows the line of every key path: `packages`, `packages[2]`, `gpu.watts`.

    `blocks` knows, for each text written under `key: |`, the line of the file on which the text begins.
    """

    path: Path
    values: Mapping[str, Any]
    lines: Mapping[str, int]
    blocks: Mapping[str, int]

    def fault(self, key: str, says: str, *, next: str) -> InvalidRequest:  # noqa: A002
        """Return the error for one key path; `says` goes on after its name: `has to be text`."""
        where = f"{self.path.name}:{self.lines.get(key, 1)}"
        end = "" if says.endswith("?") else "."
        return InvalidRequest(
            f"{where}: {key} {says}{end}",
            field=f"{where}: {key}",
            value=shown(self._at(key)),
            next=f"{next} ({self.path})",
        )

    def _at(self, key: str) -> object:
        """Return what stands at a key path, None where there is nothing."""
        value: object = self.values
        for name in re.findall(r"[^.\[\]]+", key):
            if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
                value = value[int(name)]
            elif isinstance(value, Mapping):
                value = value.get(name)
            else:
                return None
        return value

    def check_keys(self, known: Iterable[str], required: Iterable[str] = ()) -> None:
        """Raise InvalidRequest for a key that nobody reads, or one that is missing."""
        known = tuple(known)
        for key in self.values:
            if key not in known:
                says = "is not a known key" + did_you_mean(closest_match(key, known))
                raise self.fault(key, says, next=f"Use one of: {', '.join(known)}.")
        for key in required:
            if key not in self.values:
                raise self.fault(key, "is missing", next=f"Add a line that begins with {key}:")

    def text(self, key: str, default: str = "") -> str:
        """Return the text at `key`, of one line or many."""
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise self.fault(key, "has to be text", next="Put it in quotes, or under `key: |`.")
        return value

    def line(self, key: str, default: str = "") -> str:
        """Return the text at `key`, of one line that a terminal can show."""
        value = self.text(key, default)
        if not value.isprintable():
            raise self.fault(
                key, "has to be one line of text", next="Write it without line breaks or control characters."
            )
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of non-empty one-line texts at `key`."""
        value = self.values.get(key, [])
        if not isinstance(value, list):
            raise self.fault(key, "has to be a list", next="Write one `- item` on a line.")
        for number, item in enumerate(value):
            if not isinstance(item, str) or not item.strip() or not item.isprintable():
                raise self.fault(f"{key}[{number}]", "has to be one line of text", next="Put it in quotes.")
        return tuple(value)

    def whole(self, key: str, *, least: int, most: int) -> int | None:
        """Return the whole number at `key`, from `least` to `most`, or None without such a line."""
        if key not in self.values:
            return None
        value: object = self.values[key]
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            says = f"has to be a whole number from {least:,} to {most:,}"
            raise self.fault(key, says, next="Write it in digits, without a unit.")
        return value

    def number(self, key: str, *, least: Decimal | int, most: Decimal | int) -> Decimal:
        """Return the exact number at `key`, from `least` to `most`."""
        value = self.values.get(key)
        if not isinstance(value, int | Decimal) or isinstance(value, bool) or not least <= value <= most:
            says = f"has to be a number from {least} to {most}"
            raise self.fault(key, says, next="Write it in digits, without a unit.")
        return Decimal(value)


def read_yaml(path: Path) -> Table | None:
    """Return the table that the file holds, or None when there is no file.

    Raises InvalidRequest, with `file:line` in `field`, for what is not a plain table of at most 128 KiB.
    """
    text = read_text(path, path.name)
    return None if text is None else parse_yaml(text, path)


@lru_cache(maxsize=64)  # every pass reads the same files, and says what they say now
def parse_yaml(text: str, path: Path) -> Table:
    """Return the table that `text` holds, for readers alone; `path` is where errors say it stands."""
    if len(text) > LARGEST:
        raise _refused(path, 1, f"is larger than {LARGEST // 1024} KiB")
    try:
        _check_events(text, path)
        node = yaml.compose(text, _CoreLoader)
    except yaml.MarkedYAMLError as error:
        says = f"is not valid YAML: {error.problem or error.context}"
        raise _refused(path, _line(error.problem_mark or error.context_mark), says) from None
    except yaml.YAMLError as error:  # a control character: it has a position and no line
        position = getattr(error, "position", 0)
        raise _refused(path, text.count("\n", 0, position) + 1, "holds a character that YAML does not allow") from None
    if not isinstance(node, yaml.MappingNode):
        raise _refused(path, 1, "holds no `key: value` lines")
    lines: dict[str, int] = {}
    blocks: dict[str, int] = {}
    for key, value in node.value:
        if isinstance(value, yaml.ScalarNode) and value.style == "|":
            blocks[str(key.value)] = _line(value.start_mark) + 1
    return Table(path, _table(node, path, "", lines), lines, blocks)


def _line(mark: Any) -> int:
    return 1 if mark is None else int(mark.line) + 1


def _refused(path: Path, line: int, says: str) -> InvalidRequest:
    where = f"{path.name}:{line}"
    return InvalidRequest(f"{where}: the file {says}.", field=where, value=None, next=f"Correct line {line} of {path}.")


def _check_events(text: str, path: Path) -> None:
    """Refuse what plain data does not need, before anything is built of it."""
    depth = documents = 0
    for event in yaml.parse(text, _CoreLoader):
        line = _line(event.start_mark)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _refused(path, line, "uses an anchor or alias (& or *), and neither is read")
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
            raise _refused(path, line, "uses a tag (!), and none is read")
        if depth > DEEPEST:
            raise _refused(path, line, f"nests more than {DEEPEST} deep")
        if documents > 1:
            raise _refused(path, line, "holds a second document (---)")


def _table(node: yaml.MappingNode, path: Path, prefix: str, lines: dict[str, int]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = _line(key_node.start_mark)
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _STR or not key_node.value.isprintable():
            raise _refused(path, line, "has a key that is not text")
        key = key_node.value
        if key in table:
            raise _refused(path, line, f"says {shown(key)} a second time; the first is on line {lines[prefix + key]}")
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
