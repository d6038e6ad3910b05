"""Finds faults in config.toml's tables of accounts, and machines whose account or host it does not name any more.

It says why such machines cannot be asked, and the ways out. It asks no provider. Imports next to nothing: `ls` uses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module

from cloudgpu.config.settings import CLOUDS, Settings
from cloudgpu.control.session.base import SessionBase
from cloudgpu.core.events.account_names import hosts_in
from cloudgpu.core.model.identity import BY_REGION
from cloudgpu.core.model.machine import Machine, has_retained_resources
from cloudgpu.core.values.naming import tag_value
from cloudgpu.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Absent:
    """An account, or a host of one, that config.toml does not name: `why` and `way` are sentences."""

    name: str
    why: str
    way: str


def absences(session: SessionBase, machines: Sequence[Machine], known: Sequence[bool | None]) -> list[Absent | None]:
    """Return for each of these machines what of it the settings do not name any more; None where they do.

    Only for machines of this owner that may be there: a colleague's account need not be in these settings. And not
    where an account here has said that it is the one, whatever it is called: `known` is what `reachable` says of them.
    """
    return [None if here else absence(session, row) for row, here in zip(machines, known, strict=True)]


def absence(session: SessionBase, machine: Machine) -> Absent | None:
    """Return what of a machine the settings do not name, by its names alone."""
    mine = machine.owner in (session.settings.owner, tag_value(session.settings.owner), "", None)
    if (
        not mine
        or machine.identity is None
        or (machine.terminated_at is not None and not has_retained_resources(machine))
    ):
        return None
    names = session.names()
    account = names.account(machine.account)
    if account in CLOUDS and account == machine.provider:
        return None  # its own name stands for it, with or without a table
    found = session.settings.accounts.get(account)
    if found is None:
        table = f"[accounts.{account}]"
        kept = f"Put {table} back into config.toml: the files of its machines are under that name"
        way = kept if machine.provider == "local" else _remedy(table, account)
        return Absent(account, f"config.toml has no account {account}.", way)
    if found.provider != machine.provider:
        why = f"Account {account} in config.toml is one of {found.provider} now, not of {machine.provider}."
        return Absent(account, why, _remedy(f"the table of {machine.provider}", account))
    host = names.host(account, machine.region or "")
    if machine.identity.kind != BY_REGION or host in hosts_in(found.options):
        return None
    why = f"The host {host} is not in the settings of account {account}."
    return Absent(host, why, _remedy("it", host))


def _remedy(what: str, name: str) -> str:
    return (
        f"Put {what} back into config.toml. If it has another name now: cloudgpu init --rename {name} NEW. "
        f"If it will never answer again: cloudgpu init --forget {name}"
    )


# Who reads a table, by provider. A plug-in reads its own when it is opened, which takes more than `ls` may load.
READERS = {
    "aws": ("cloudgpu.providers.aws.ids", "aws_options"),
    "azure": ("cloudgpu.providers.azure.ids", "azure_options"),
    "gcp": ("cloudgpu.providers.gcp.options", "gcp_options"),
    "runpod": ("cloudgpu.providers.runpod.options", "runpod_options"),
    "lambda": ("cloudgpu.providers.lambdalabs.options", "lambda_options"),
    "local": ("cloudgpu.providers.local.options", "local_options"),
    "vast": ("cloudgpu.providers.vast.options", "vast_options"),
}


def table_faults(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each account of a shipped provider whose table has a fault, such as an unknown key."""
    for account in settings.accounts.values():
        if account.options and account.provider in READERS:
            module, reader = READERS[account.provider]
            try:
                getattr(import_module(module), reader)(account.name, account.options)
            except InvalidRequest as error:
                yield error.message
