"""Reads and checks an account's table of config.toml: one reader per key.

A reader is called with the account's name, the key and its TOML value. It returns the checked value, and raises
InvalidRequest (see `setting_error`) for one that is not valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from cloudgpu.core.values.naming import closest_match, did_you_mean
from cloudgpu.errors import InvalidRequest

Reader = Callable[[str, str, object], Any]


def read_table(kind: str, account: str, table: Mapping[str, Any], readers: Mapping[str, Reader]) -> dict[str, Any]:
    """Return the checked value of each key; raise InvalidRequest for the first unknown key or wrong value.

    `kind` is the provider's name, for the message.
    """
    for key in table:
        if key not in readers:
            kind_with_article = f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
            problem = f"is not an option of {kind_with_article} account" + did_you_mean(
                closest_match(key, readers), "."
            )
            raise setting_error(account, key, None, problem, f"Options: {', '.join(readers)}.")
    return {key: read(account, key, table[key]) for key, read in readers.items() if key in table}


def text(account: str, key: str, value: object) -> str:
    """Read a printable text that is not empty."""
    if isinstance(value, str) and value.strip() and value.isprintable():
        return value.strip()
    raise setting_error(account, key, value, "has to be text.", f'Write it in quotes: {key} = "..."')


def key_file(account: str, key: str, value: object) -> str:
    """Read the whole path of a file that holds a key; what could be the key itself is refused without being shown."""
    path = text(account, key, value)
    if path.startswith(("/", "~/")):
        return path
    problem = "has to be the whole path of a file; the key itself does not belong into config.toml."
    raise setting_error(account, key, None, problem, f'Write it like {key} = "~/keys/cloud".')


def flag(account: str, key: str, value: object) -> bool:
    """Read true or false."""
    if isinstance(value, bool):
        return value
    raise setting_error(account, key, value, "has to be true or false.", f"Write it like {key} = true, without quotes.")


def whole_number(what: str, lowest: int, highest: int) -> Reader:
    """Return the reader of a whole number within limits. `what` is its noun with an article: "a port"."""

    def read(account: str, key: str, value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest:
            return value
        problem = f"is {value!r}, which is not {what}."
        raise setting_error(account, key, value, problem, f"Write a number from {lowest} to {highest}.")

    return read


port = whole_number("a port", 1, 65535)  # reads a TCP port


def matching(pattern: re.Pattern[str], what: str, example: str) -> Reader:
    """Return the reader of a text that has to match `pattern`. `what` is its noun with an article: "a region"."""

    def read(account: str, key: str, value: object) -> str:
        if isinstance(value, str) and pattern.fullmatch(value):
            return value
        noun = what.partition(" ")[2]
        raise setting_error(
            account, key, value, f"is {value!r}, which is not a valid {noun}.", f"Write it like {example}."
        )

    return read


def several(read_item: Reader, what: str, example: str) -> Reader:
    """Return the reader of a list, each item by `read_item`. `what` is their noun in the plural: "regions"."""

    def read(account: str, key: str, value: object) -> tuple[Any, ...]:
        if isinstance(value, list):
            return tuple(read_item(account, key, item) for item in value)
        raise setting_error(
            account, key, value, f"has to be a list of {what}.", f'Write it like {key} = ["{example}"].'
        )

    return read


def setting_error(account: str, key: str, value: object, problem: str, remedy: str) -> InvalidRequest:
    """Return the error for a key or a value of an account's table; `problem` completes "config.toml: KEY ..."."""
    name = f"config.toml: accounts.{account}.{key}"
    value_text = None if value is None else str(value)[:80]
    return InvalidRequest(f"{name} {problem}", field=name, value=value_text, next=remedy)
