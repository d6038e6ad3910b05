"""Readers of the values in an account's table of config.toml, for `registry.read_table`.

A reader is called with the account's name, the key and its TOML value. It returns the checked value, and raises
InvalidRequest (see `registry.setting_error`) for one that is not valid.
"""

from __future__ import annotations

import re
from typing import Any

from cloudgpu.providers.registry import Reader, setting_error


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
