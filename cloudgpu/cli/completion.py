"""Shell completion of verbs and values: from the ledger, the settings, files and the catalogue; asks no provider.

Whatever cannot be read completes to nothing: a shell shows no errors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from cloudgpu.config.files.user_files import find_home, project_dirs, yaml_names
from cloudgpu.errors import CloudgpuError

CompletionSource = Callable[[Mapping[str, Any]], Iterable[str]]  # of the options that were typed before


def verbs(ctx: Any, incomplete: str, summaries: dict[str, str]) -> list[Any]:
    """Return the verbs that begin with `incomplete` as completion items of the parser."""
    from typer._click.shell_completion import CompletionItem  # the parser's own class: typer re-exports it nowhere

    del ctx
    matches = {
        verb: summary for verb, summary in summaries.items() if " " not in verb
    }  # a shell completes one word at a time
    matches |= {"help": "Show all verbs, or explain one.", "version": "Print the version."}
    return [CompletionItem(verb, help=summary) for verb, summary in matches.items() if verb.startswith(incomplete)]


def complete_values(verb: str, params: Iterable[Any]) -> None:
    """Let the options and arguments of a verb that take a name of ours be completed."""
    for param in params:
        source = next((SOURCES[key] for key in (f"{verb} {param.name}", *param.opts) if key in SOURCES), None)
        if source is not None:
            param._custom_shell_complete = partial(_complete, source)  # noqa: SLF001  (what the parser itself sets)


def _complete(source: CompletionSource, ctx: Any, param: Any, incomplete: str) -> list[Any]:
    from typer._click.shell_completion import CompletionItem

    del param
    try:
        return [CompletionItem(name) for name in source(ctx.params) if name.startswith(incomplete)]
    except (CloudgpuError, OSError):
        return []


def machine_names(incomplete: str) -> list[str]:
    """Return the names of living machines in the ledger; nothing when it cannot be read."""
    from cloudgpu.control.outage.opening import open_session
    from cloudgpu.control.session.session import living_machines

    try:
        machines = living_machines(open_session(os.environ).ledger.machines())
    except CloudgpuError:
        return []
    clusters = dict.fromkeys(machine.cluster_node.name for machine in machines if machine.cluster_node)
    return [name for name in (*clusters, *(machine.name for machine in machines)) if name.startswith(incomplete)]


def machine_paths(incomplete: str) -> list[str]:
    """Return `NAME:` for living machines, for the two sides of `cp`."""
    return [f"{name}:" for name in machine_names(incomplete)]


def _jobs(_: Mapping[str, Any], *, living: bool = False) -> Iterable[str]:
    """Return the names of jobs, the latest first; with `living`, only those of living jobs."""
    from cloudgpu.control.jobs.listing import job_names
    from cloudgpu.control.outage.opening import open_session

    return job_names(open_session(os.environ), living=living)


def _gpus(_: Mapping[str, Any]) -> Iterable[str]:
    """Return the GPUs of the catalogue."""
    from cloudgpu.control.catalog.names import gpu_names

    return gpu_names()


def _instance_types(typed_options: Mapping[str, Any]) -> Iterable[str]:
    """Return the instance types of the provider, and with the GPU, that were typed before."""
    from cloudgpu.control.catalog.names import instance_types

    return instance_types(typed_options.get("provider"), typed_options.get("gpu"))


def _regions(typed_options: Mapping[str, Any]) -> Iterable[str]:
    """Return the regions of the provider that was typed before."""
    from cloudgpu.control.catalog.names import region_names

    return region_names(typed_options.get("provider"))


def _files(directory: str, _: Mapping[str, Any]) -> Iterable[str]:
    """Return the `templates` or `policies`: the project's, the user's own, the shipped ones; limits are no policy."""
    names = yaml_names(directory, (*project_dirs(directory), find_home(os.environ).root / directory))
    return (name for name in names if (directory, name) != ("policies", "limits"))


def _accounts(typed_options: Mapping[str, Any]) -> Iterable[str]:
    """Return the accounts of config.toml, of the provider that was typed before."""
    from cloudgpu.config.settings import load_settings

    accounts = load_settings(find_home(os.environ), os.environ).accounts
    kind = typed_options.get("provider")
    return [name for name, account in accounts.items() if kind in {None, "any", account.provider}]


def _spot_policies(_: Mapping[str, Any]) -> Iterable[str]:
    """Return the spot policies."""
    from cloudgpu.core.spot.policies import POLICIES

    return POLICIES


SOURCES: dict[str, CompletionSource] = {  # by an option, or by a verb and its argument
    "--gpu": _gpus,
    "--instance-type": _instance_types,
    "--region": _regions,
    "--template": partial(_files, "templates"),
    "--policy": partial(_files, "policies"),
    "--account": _accounts,
    "--on": lambda _: machine_names(""),
    "run name": partial(_jobs, living=True),
    "logs name": _jobs,
    "cancel name": partial(_jobs, living=True),
    "policy names": partial(_files, "policies"),
    "policy backtest policy": partial(_files, "policies"),
    "spot backtest policy": _spot_policies,
    "spot serve policy": _spot_policies,
    "--spot-policy": _spot_policies,
}
