"""Faults in the tables of accounts in config.toml, found without a provider. Imports next to nothing: `ls` uses it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.config.settings import Settings

# Who reads a table, by provider. A plug-in reads its own when it is opened, which takes more than `ls` may load.
READERS = {
    "aws": ("cloudgpu.providers.aws.ids", "aws_options"),
    "azure": ("cloudgpu.providers.azure.ids", "azure_options"),
    "gcp": ("cloudgpu.providers.gcp.options", "gcp_options"),
    "local": ("cloudgpu.providers.local.options", "local_options"),
}


def table_faults(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each account of a shipped provider whose table has a fault, such as an unknown key."""
    for account in settings.accounts.values():
        if account.options and account.provider in READERS:
            module, reader = READERS[account.provider]
            try:
                getattr(import_module(module), reader)(account.name, account.options)
            except InvalidRequest as fault:
                yield fault.message
