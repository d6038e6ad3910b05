"""Finds providers by name through the entry points `cloudgpu.providers`; loads only the one that is named.

`read_table` checks an account's table of config.toml, by one reader per key. `lazy_modules` are the modules behind a
provider's methods, each loaded when a call needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cloudgpu.core.values.naming import closest_match, did_you_mean, unknown_word
from cloudgpu.errors import InvalidRequest, MissingExtra
from cloudgpu.providers.base import ENTRY_POINT_GROUP, Factory, PriceLister, Provider, ProviderSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.metadata import EntryPoint

Reader = Callable[[str, str, object], Any]  # of an account, a key and its value: returns the checked value
_OUR_PACKAGE = "cloudgpu"
_PRICE_LISTS = {  # read wherever the cloud is used, or no provider is named
    "aws": "cloudgpu.providers.aws.market.pricelist",
    "azure": "cloudgpu.providers.azure.market.pricelist",
    "gcp": "cloudgpu.providers.gcp.market.pricelist",
}
_PRICE_LISTS_WITH_KEY = {  # need an API key, and are read only where the provider is named
    "lambda": "cloudgpu.providers.lambdalabs.offers",
    "runpod": "cloudgpu.providers.runpod.offers",
    "vast": "cloudgpu.providers.vast.market",
}


def kinds() -> tuple[str, ...]:
    """Return the names of the installed providers, sorted; none of them is loaded."""
    return tuple(sorted({entry_point.name for entry_point in _entry_points()}))


def load(kind: str) -> Factory:
    """Return the factory of a provider.

    Raises InvalidRequest for a kind that is not known or broken, MissingExtra when its SDK is not installed.
    """
    entry_point = _entry_point(kind)
    try:
        factory: Factory = entry_point.load()
    except ModuleNotFoundError as error:
        if (error.name or _OUR_PACKAGE).partition(".")[0] == _OUR_PACKAGE:
            raise _broken_provider(entry_point, error) from error
        raise _missing_extra(entry_point, error) from error
    except Exception as error:  # a plugin may raise anything while it is imported
        raise _broken_provider(entry_point, error) from error
    return factory


def open_provider(kind: str, settings: ProviderSettings) -> Provider:
    """Return the provider of one configured account. Sends nothing."""
    return load(kind)(settings)


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


def setting_error(account: str, key: str, value: object, problem: str, remedy: str) -> InvalidRequest:
    """Return the error for a key or a value of an account's table; `problem` completes "config.toml: KEY ..."."""
    name = f"config.toml: accounts.{account}.{key}"
    value_text = None if value is None else str(value)[:80]
    return InvalidRequest(f"{name} {problem}", field=name, value=value_text, next=remedy)


def price_list_kinds() -> tuple[str, ...]:
    """Return the providers whose price lists are read where no provider is named."""
    return tuple(_PRICE_LISTS)


def load_price_list(kind: str) -> PriceLister:
    """Return the function that reads a provider's price list; raise InvalidRequest for one that has none."""
    modules = _PRICE_LISTS | _PRICE_LISTS_WITH_KEY
    if kind not in modules:
        raise unknown_word(f"No price list of {kind!r} is known", kind, modules, field="--provider")
    lister: PriceLister = import_module(modules[kind]).price_list
    return lister


def lazy_modules(package: str, names: str) -> list[Any]:
    """Return modules of a package by their names, separated by spaces: each is loaded when it is first used."""
    return [_LazyModule(f"{package}.{name}") for name in names.split()]


class _LazyModule:
    """Stands in for a module, and imports it at the first use of one of its names."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._module), name)


def _entry_points() -> Sequence[EntryPoint]:
    return _entry_points_on(tuple(sys.path))


@cache
def _entry_points_on(_path: tuple[str, ...]) -> Sequence[EntryPoint]:
    """Return the entry points of the packages on this path; cached, since it reads the metadata of every package."""
    from importlib.metadata import entry_points  # takes 20 ms, which `--help` saves

    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def _entry_point(kind: str) -> EntryPoint:
    points = _entry_points()
    point_by_value = {entry_point.value: entry_point for entry_point in points if entry_point.name == kind}
    if len(point_by_value) > 1:
        message = f"Two installed packages both offer a provider {kind}: {' and '.join(sorted(point_by_value))}."
        raise InvalidRequest(message, field="provider", value=kind, next="Uninstall one of them.")
    if not point_by_value:
        raise _unknown_provider(kind, {entry_point.name for entry_point in points})
    return next(iter(point_by_value.values()))


def _unknown_provider(kind: str, installed: set[str]) -> InvalidRequest:
    remedy = f"This installation has: {', '.join(sorted(installed)) or 'none'}."
    return unknown_word(f"There is no provider {kind!r}", kind, installed, field="provider", next=remedy)


def _missing_extra(entry_point: EntryPoint, error: ModuleNotFoundError) -> MissingExtra:
    package = entry_point.dist.name if entry_point.dist else _OUR_PACKAGE
    to_install = f"'{_OUR_PACKAGE}[{entry_point.name}]'" if package == _OUR_PACKAGE else f"--force-reinstall {package}"
    message = f"The provider {entry_point.name} needs {error.name}, which is not installed."
    return MissingExtra(message, field="provider", value=entry_point.name, next=f"Run: pip install {to_install}")


def _broken_provider(entry_point: EntryPoint, error: Exception) -> InvalidRequest:
    message = (
        f"The provider {entry_point.name} ({entry_point.value}) cannot be loaded: {type(error).__name__}: {error}."
    )
    package = entry_point.dist.name if entry_point.dist else _OUR_PACKAGE
    return InvalidRequest(
        message, field="provider", value=entry_point.name, next=f"Reinstall {package}, or report it there."
    )
