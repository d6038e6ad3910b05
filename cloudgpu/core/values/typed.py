"""Parses typed GPUs, memory and prices; an error names the option, the value and an example."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import TypeVar

from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.errors import InvalidRequest

Member = TypeVar("Member", bound=StrEnum)
MAX_GPUS = 64  # more than any machine on offer has
MAX_GPU_GIB = 10_000  # more than any GPU on offer has
MAX_USD_PER_HOUR = 100_000  # more expensive than any machine on offer


def check_keywords(verb: str, keywords: Mapping[str, object], parameters: Mapping[str, object]) -> None:
    """Raise TypeError, like a call with an unknown keyword, for a keyword that the method `verb` does not take."""
    if unknown := keywords.keys() - parameters:
        raise TypeError(f"{verb}() got an unexpected keyword argument {min(unknown)!r}")


def parse_member(kind: type[Member], text: str, noun: str, field: str) -> Member:
    """Return the enum member of this text; raise InvalidRequest, which suggests a similar one, for any other text."""
    if text in list(kind):
        return kind(text)
    raise unknown_word(f"{text!r} is not a valid {noun}", str(text), kind, field=field)  # a library call may pass any


def parse_gpu(text: str | None) -> tuple[str | None, int | None]:
    """Return the name and count of `NAME` or `NAME:COUNT`; raise InvalidRequest for anything else."""
    if text is None:
        return None, None
    if not isinstance(text, str):  # from a caller of the library
        raise _invalid_gpu(text)
    model, colon, count = text.partition(":")
    is_count = count.isascii() and count.isdecimal() and len(count) < 4  # noqa: PLR2004  (MAX_GPUS has two digits)
    if not model.strip() or (colon and not (is_count and 1 <= int(count) <= MAX_GPUS)):
        raise _invalid_gpu(text)
    return model.lower(), int(count) if count else None


def _invalid_gpu(value: object) -> InvalidRequest:
    return InvalidRequest(
        f"{value!r} names no GPU: it is NAME or NAME:COUNT with a count of 1 to {MAX_GPUS}.",
        field="--gpu",
        value=str(value),
        next="For example --gpu v100 or --gpu a100:8",
    )


def parse_memory(text: str | None) -> float | None:
    """Return GiB of GPU memory: `40`, `40gb`, `40GiB`; raise InvalidRequest for anything else."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,5}(?:\.[0-9]{1,3})?)(?:g|gb|gib)?", text.strip(), re.IGNORECASE)
    if match and 0 < float(match[1]) <= MAX_GPU_GIB:
        return float(match[1])
    raise InvalidRequest(
        f"{text!r} is not an amount of GPU memory: it is GiB per GPU, above zero.",
        field="--min-memory",
        value=text,
        next="For example --min-memory 24",
    )


def parse_price(text: str | None) -> Money | None:
    """Return a price per hour in USD, above zero; raise InvalidRequest for anything else."""
    if text is None:
        return None
    try:
        amount = Decimal(text.removeprefix("$"))
        if amount.is_finite() and 0 < amount <= MAX_USD_PER_HOUR:
            return Money.usd(amount)
    except InvalidOperation:
        pass
    raise InvalidRequest(
        f"{text!r} is not a price per hour: it is an amount in USD above zero.",
        field="--max-price",
        value=text,
        next="For example --max-price 1.50",
    )
