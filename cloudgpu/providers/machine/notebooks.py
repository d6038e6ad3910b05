"""A template's Jupyter command as it runs on a machine: by the environment that the first start makes. Pure."""

from __future__ import annotations

from cloudgpu.providers.machine.given import HERE

_PIP = "jupyterlab>=4.4,<5"
_MODULES = {"lab": "jupyterlab", "notebook": "notebook", "server": "jupyter_server"}


def jupyter_command(words: tuple[str, ...]) -> list[str]:
    """Return a template's Jupyter command as it runs there; any other command as it is."""
    module, rest = _module(words)
    return [f"{HERE}/jupyter", module, *rest] if module else list(words)


def pip(words: tuple[str, ...]) -> str:
    """Return what pip installs for a Jupyter command: names without spaces, separated by one."""
    module, _ = _module(words)
    return "" if not module else f"{_PIP} notebook" if module == "notebook" else _PIP


def _module(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the module that a Jupyter command runs and its options; an empty one for any other command."""
    program, *rest = words or ("",)
    if program.startswith("jupyter-"):
        program, rest = "jupyter", [program.removeprefix("jupyter-"), *rest]
    if program != "jupyter":
        return "", ()
    if rest and rest[0] in _MODULES:
        return _MODULES[rest[0]], tuple(rest[1:])
    return "jupyter", tuple(rest)
