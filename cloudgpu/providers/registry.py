"""Finds providers by name through the entry points `cloudgpu.providers`; loads only the one that is named.

Of that one it loads what a call needs: `lazily` is for the modules behind a provider's methods.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cloudgpu.core.values.naming import unknown_word
from cloudgpu.errors import InvalidRequest, MissingExtra
from cloudgpu.providers.base import GROUP, Factory, PriceLister, Provider, ProviderSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.metadata import EntryPoint

_OURS = "cloudgpu"
_PRICE_LISTS = {  # asked for wherever the cloud is used, or nothing is named
    "aws": "cloudgpu.providers.aws.market.pricelist",
    "azure": "cloudgpu.providers.azure.market.pricelist",
    "gcp": "cloudgpu.providers.gcp.market.pricelist",
}
_BY_NAME = {  # that answer only with a key, and are asked only where they are named
    "lambda": "cloudgpu.providers.lambdalabs.offers",
    "runpod": "cloudgpu.providers.runpod.offers",
    "vast": "cloudgpu.providers.vast.market",
}


def kinds() -> tuple[str, ...]:
    """Return the names of the installed providers, sorted; none of them is loaded."""
    return tuple(sorted({point.name for point in _points()}))


def load(kind: str) -> Factory:
    """Return the factory of a provider.

    Raises InvalidRequest for a kind that is not known or broken, MissingExtra when what it
    stands on is not installed.
    """
    point = _point(kind)
    try:
        found = point.load()
    except ModuleNotFoundError as error:
        if (error.name or _OURS).partition(".")[0] == _OURS:
            raise _broken(point, error) from error
        raise _missing(point, error) from error
    except Exception as error:  # what a plugin does while it is imported is not ours to know
        raise _broken(point, error) from error
    factory: Factory = found
    return factory


def open_provider(kind: str, settings: ProviderSettings) -> Provider:
    """Return the provider of one configured account; nothing is asked over the network."""
    return load(kind)(settings)


def price_list_kinds() -> tuple[str, ...]:
    """Return the providers whose price list is asked for where none is named, also where machines are not."""
    return tuple(_PRICE_LISTS)


def load_price_list(kind: str) -> PriceLister:
    """Return what asks a provider for its price list; raise InvalidRequest for one that has none."""
    known = _PRICE_LISTS | _BY_NAME
    if kind not in known:
        raise unknown_word(f"No price list of {kind!r} is known", kind, known, field="--provider")
    lister: PriceLister = import_module(known[kind]).price_list
    return lister


def lazily(package: str, names: str) -> list[Any]:
    """Return modules of a package by their names, with spaces between: each is loaded when something in it is used."""
    return [_Lazy(f"{package}.{name}") for name in names.split()]


class _Lazy:
    """A module by its whole name, in whose place it stands."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._module), name)


def _points() -> Sequence[EntryPoint]:
    return _points_on(tuple(sys.path))


@cache
def _points_on(_path: tuple[str, ...]) -> Sequence[EntryPoint]:
    """Return what packages on this path offer; asked once, since each asking reads every package's metadata."""
    from importlib.metadata import entry_points  # 20 ms that `--help` need not pay

    return tuple(entry_points(group=GROUP))


def _point(kind: str) -> EntryPoint:
    points = _points()
    found = {point.value: point for point in points if point.name == kind}
    if len(found) > 1:
        message = f"Two installed packages both offer a provider {kind}: {' and '.join(sorted(found))}."
        raise InvalidRequest(message, field="provider", value=kind, next="Uninstall one of them.")
    if not found:
        raise _unknown(kind, {point.name for point in points})
    return next(iter(found.values()))


def _unknown(kind: str, known: set[str]) -> InvalidRequest:
    listed = f"This installation has: {', '.join(sorted(known)) or 'none'}."
    return unknown_word(f"There is no provider {kind!r}", kind, known, field="provider", next=listed)


def _missing(point: EntryPoint, error: ModuleNotFoundError) -> MissingExtra:
    owner = point.dist.name if point.dist else _OURS
    what = f"'{_OURS}[{point.name}]'" if owner == _OURS else f"--force-reinstall {owner}"
    message = f"The provider {point.name} needs {error.name}, which is not installed."
    return MissingExtra(message, field="provider", value=point.name, next=f"Run: pip install {what}")


def _broken(point: EntryPoint, error: Exception) -> InvalidRequest:
    message = f"The provider {point.name} ({point.value}) cannot be loaded: {type(error).__name__}: {error}."
    owner = point.dist.name if point.dist else _OURS
    return InvalidRequest(message, field="provider", value=point.name, next=f"Reinstall {owner}, or report it there.")
