"""Has typer keep what it reads of a verb's function: a process of the tests runs thousands of commands, not one.

A function's parameters stay, and typer makes its own options of them each time.
"""

from __future__ import annotations

import functools
from importlib import import_module

import typer.main


def keep_parameters() -> None:
    """Keep, in this process, the parameters of each verb's function once it was read."""
    if not hasattr(typer.main.get_params_from_function, "cache_info"):
        typer.main.get_params_from_function = functools.cache(typer.main.get_params_from_function)


def read_verbs() -> None:
    """Read all verbs, for the forks of this process."""
    from cloudgpu.cli.verbs import VERBS

    keep_parameters()
    for module, _ in VERBS.values():
        typer.main.get_params_from_function(import_module(f"cloudgpu.cli.{module}").command)
