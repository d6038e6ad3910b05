"""Providers where the command line names them: what is installed, plug-ins too, looked up when it is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

PLACE = "{providers}"  # in an option's help: what is installed is put here when the help is printed


def complete_kind(incomplete: str) -> list[str]:
    """Return the installed providers that begin so."""
    return [kind for kind in _installed() if kind.startswith(incomplete)]


def name_installed(params: Sequence[Any]) -> None:
    """Put the names of the installed providers into the help of these options."""
    for param in params:
        if PLACE in (getattr(param, "help", None) or ""):
            installed = _installed() or ("none is installed",)  # a copy of the source that nobody has installed
            param.help = param.help.replace(
                PLACE, " or ".join(filter(None, (", ".join(installed[:-1]), installed[-1])))
            )


def _installed() -> tuple[str, ...]:
    from cloudgpu.control.session.accounts import provider_kinds

    return provider_kinds()


def kind_option(says: str) -> Any:
    """Return the option --provider of a verb, with this help."""
    return typer.Option(metavar="KIND", help=says, autocompletion=complete_kind)
