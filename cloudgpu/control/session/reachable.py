"""Whether a machine's account is one of this home's: as accounts here last said who they are, and by config.toml.

It says why a machine cannot be asked whose account or host config.toml does not name any more, and the ways out, and
finds faults in the tables of accounts. It asks no provider. Imports next to nothing: `ls` uses it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from threading import Lock

from cloudgpu.config.settings import CLOUDS, Settings
from cloudgpu.control.session.base import SessionBase
from cloudgpu.core.events.account_names import hosts_in
from cloudgpu.core.model.identity import BY_REGION, AccountIdentity, identity_region
from cloudgpu.core.model.machine import Machine, has_retained_resources
from cloudgpu.core.values.naming import tag_value
from cloudgpu.errors import InvalidRequest

IdentitiesByAccount = dict[str, dict[str, list[str]]]  # kind and id, by account and region
_lock = Lock()


def remember(session: SessionBase, account: str, region: str | None, identity: AccountIdentity) -> None:
    """Keep what an account here said it is, for `reachable`. A full disk keeps nobody from their work."""
    region_key = identity_region(region, identity.kind)
    if session.identified.get((account, region_key)) == identity or not session.home.root.is_dir():
        return
    with _lock, suppress(OSError):
        known = remembered(session)
        by_region = known.setdefault(account, {})
        if by_region.get(region_key) != [identity.kind, identity.id]:
            by_region[region_key] = [identity.kind, identity.id]
            file = session.home.identities
            for left in file.parent.glob(f".{file.name}.*"):  # by a process that was killed, or that tells it again
                left.unlink(missing_ok=True)
            fresh = file.with_name(f".{file.name}.{os.getpid()}")
            fresh.write_text(json.dumps({"at": session.place, "accounts": known}, indent=1) + "\n", encoding="utf-8")
            fresh.replace(file)
        session.identified[account, region_key] = identity


def reachable(session: SessionBase, machines: Sequence[Machine]) -> list[bool | None]:
    """Say of each machine whether its account is one of this home's; None where that is not known without asking."""
    known = remembered(session) if machines else {}
    return [_is_here(session, machine, known) for machine in machines]


def names_here(session: SessionBase, machines: Sequence[Machine]) -> set[str]:
    """Return what the accounts of these machines are called: where they were launched, and here, as far as is known."""
    known, names = remembered(session) if machines else {}, {machine.account for machine in machines}
    wanted = [[machine.identity.kind, machine.identity.id] for machine in machines if machine.identity]
    return names | {name for name, identities in known.items() if any(one in wanted for one in identities.values())}


def is_another_account(session: SessionBase, account: str, machine: Machine) -> bool:
    """Say whether this account last said that it is another one than a machine's.

    Of hosts, all that the settings name have to have said so where they do not name the machine's own. Without a region
    the first of them was asked.
    """
    identity = machine.identity
    if identity is None:
        return False
    known, wanted = remembered(session).get(account, {}), [identity.kind, identity.id]
    if identity.kind != BY_REGION:
        return known.get("", wanted) != wanted
    by_region = _identities_by_host(session, account, known)
    host = session.names().host(account, machine.region or "")
    if by_region.get(host) is not None:
        return by_region[host] != wanted
    return bool(by_region) and all(one is not None and one != wanted for one in by_region.values())


def _identities_by_host(session: SessionBase, account: str, known: dict[str, list[str]]) -> dict[str, list[str] | None]:
    """Return what the hosts of an account last said they are, None for nothing; without a region the first was asked.

    Only those that the settings name: what another one said tells of no machine any more.
    """
    names = hosts_in(session.settings.accounts[account].options)
    return {name: known.get(name, known.get("") if name == names[0] else None) for name in names}


def _is_here(session: SessionBase, machine: Machine, known: IdentitiesByAccount) -> bool | None:
    identity = machine.identity
    accounts = [name for name, one in session.settings.accounts.items() if one.provider == machine.provider]
    if identity is None:
        return None
    wanted = [identity.kind, identity.id]
    if identity.kind == BY_REGION:
        hosts = [
            identities
            for name in accounts
            for identities in _identities_by_host(session, name, known.get(name, {})).values()
        ]
        return True if wanted in hosts else None if None in hosts else False
    identities = [known.get(name, {}).get("") for name in accounts]
    if wanted in identities:
        return True
    if not identities and machine.provider in CLOUDS:
        return None
    return None if None in identities else False


def remembered(session: SessionBase) -> IdentitiesByAccount:
    """Return what accounts said, by account and region; nothing where this home is a copy, or was moved, since."""
    here = session.place
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(session.home.identities.read_text(encoding="utf-8"))
        if found["at"] == here:
            return {str(name): dict(identities) for name, identities in found["accounts"].items()}
    return {}


@dataclass(frozen=True, slots=True)
class NotConfigured:
    """An account, or a host of one, that config.toml does not name: `why` and `way` are sentences."""

    name: str
    why: str
    way: str


def absences(
    session: SessionBase, machines: Sequence[Machine], known: Sequence[bool | None]
) -> list[NotConfigured | None]:
    """Return for each of these machines what of it the settings do not name any more; None where they do.

    Only for machines of this owner that may be there: a colleague's account need not be in these settings. And not
    where an account here has said that it is the one, whatever it is called: `known` is what `reachable` says of them.
    """
    return [None if here else absence(session, row) for row, here in zip(machines, known, strict=True)]


def absence(session: SessionBase, machine: Machine) -> NotConfigured | None:
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
        way = kept if machine.provider == "local" else _way(table, account)
        return NotConfigured(account, f"config.toml has no account {account}.", way)
    if found.provider != machine.provider:
        why = f"Account {account} in config.toml is one of {found.provider} now, not of {machine.provider}."
        return NotConfigured(account, why, _way(f"the table of {machine.provider}", account))
    host = names.host(account, machine.region or "")
    if machine.identity.kind != BY_REGION or host in hosts_in(found.options):
        return None
    why = f"The host {host} is not in the settings of account {account}."
    return NotConfigured(host, why, _way("it", host))


def _way(what: str, name: str) -> str:
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
