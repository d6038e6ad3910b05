"""Edits config.toml: reads what is there, drafts the change that answers make, and writes it atomically."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from cloudgpu.access.files import locked, write_atomically
from cloudgpu.access.ssh.target import fingerprint
from cloudgpu.access.ssh.user_hosts import login_key_path
from cloudgpu.config.edit import remove_value, set_value, value_at
from cloudgpu.config.files.user_files import Home, find_home, parse_finite_number, read_text, shown  # shown: cut short
from cloudgpu.config.policies.find import load_policy, policy_paths
from cloudgpu.config.settings import ANY_PROVIDER, Account, Settings, login_name, read_setting, settings_from_text
from cloudgpu.control.policies.resolve import lifetime_of
from cloudgpu.control.session.base import utc_now
from cloudgpu.control.setup.doctor import MODULES_BY_EXTRA, is_installed
from cloudgpu.core.values.naming import NAME, NAME_RULE
from cloudgpu.core.values.times import duration_text
from cloudgpu.errors import InvalidRequest, MissingExtra, WrongHostKey

CONFIG_NAME = "config.toml"
TOP_LEVEL_KEYS = ("owner", "project", "provider", "lease")
ELECTRICITY_KEYS = ("watts", "usd_per_kwh")
CLOUDS = ("aws", "azure", "gcp", "lambda", "runpod", "vast")  # what `init` can prepare an account of
HIGHEST_PORT = 65535
_HOST_OPTION = re.compile(
    r"(?P<name>[^=]*)=(?:(?P<user>[^@]*)@)?(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:\[\]]*))(?::(?P<port>.*))?"
)
_HOST_OR_USER = re.compile(r"[^\s\x00-\x1f\x7f'\"\\-][^\s\x00-\x1f\x7f'\"\\]*")


@dataclass(frozen=True, slots=True)
class ExistingSetup:
    """The existing configuration: the file's text (None: there is no file), its settings, and its parsed TOML."""

    home: Home
    text: str | None
    settings: Settings
    table: Mapping[str, Any]

    def is_clear(self, name: str) -> bool:
        """Say whether it is clear where a setting belongs; power figures need one account of this computer."""
        if name not in ELECTRICITY_KEYS:
            return True
        try:
            return bool(default_account_of(self.settings, "local"))
        except InvalidRequest:
            return False

    def current_value(self, name: str) -> str:
        """Return a setting's current value, or its default, as a user types it; empty for not known."""
        if name in ELECTRICITY_KEYS:
            current = value_at(self.table, ("accounts", default_account_of(self.settings, "local"), name))
            return "" if current is None else str(current)
        if name == "lease":
            return duration_text(lease_of(self.home, self.settings))
        return str(getattr(self.settings, name))


@dataclass(frozen=True, slots=True)
class Host:
    """An on-premises machine, as `--host` names it: `name=user@host:port`. `user` is empty where none was named."""

    name: str
    host: str
    port: int
    user: str


@dataclass(frozen=True, slots=True)
class ConfigDraft:
    """A draft of config.toml: its text `after` the change, and a diff without context lines (they may be secret)."""

    setup: ExistingSetup
    after: str
    diff: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return self.after != (self.setup.text or "")


def lease_of(home: Home, settings: Settings) -> timedelta:
    """Return how long a machine lives by settings and policy; raise InvalidRequest where they contradict."""
    policy = load_policy(settings.policy, search=policy_paths(home)).policy
    return lifetime_of(policy, settings).lease


def find_existing_setup(environ: Mapping[str, str]) -> ExistingSetup:
    """Return the existing configuration. Raises InvalidRequest for a file that cannot be read or is invalid."""
    import tomllib

    home = find_home(environ)
    text = read_text(home.config_file, CONFIG_NAME)
    settings = settings_from_text(text or "", login=login_name(environ))
    return ExistingSetup(home, text, settings, tomllib.loads(text or ""))


def parse_setup_value(name: str, text: str) -> str | Decimal:
    """Return the value of a setting, from an option or an answer, checked as in the file.

    Power figures are numbers, all other settings text. An InvalidRequest names the option.
    """
    option = f"--{name.replace('_', '-')}"
    if name in ELECTRICITY_KEYS:
        return _parse_figure(option, text)
    try:
        read_setting(name, text)
        if name == "provider":
            _check_kind(text.strip())
    except InvalidRequest as error:
        message = error.message.replace(f"{CONFIG_NAME}: {name}", option)
        raise InvalidRequest(message, field=option, value=error.value, next=error.next) from None
    return text.strip()


def _parse_figure(option: str, text: str) -> Decimal:
    """Return a power figure: watts, or USD per kWh. Raises InvalidRequest."""
    value = parse_finite_number(text.strip().removeprefix("$"))
    if value is not None and 0 <= value <= 1_000_000:  # noqa: PLR2004  (as the local provider's own limit)
        return value
    raise InvalidRequest(
        f"{option} is {shown(text)!r}, which is not a number from 0 to 1000000.",
        field=option,
        value=shown(text),
        next="For example --watts 350 or --usd-per-kwh 0.31",
    )


def _check_kind(kind: str) -> None:
    """Raise InvalidRequest for a provider that does not exist."""
    from cloudgpu.providers.registry import load

    if kind != ANY_PROVIDER:
        with suppress(MissingExtra):  # may be installed later; said at the end
            load(kind)


def read_host(setup: ExistingSetup, text: str) -> Host:
    """Return what `name=user@host:port` says; the user and the port may be left out. Raises InvalidRequest.

    Without a port it has the one that config.toml has for this host, else 22.
    """
    match = _HOST_OPTION.fullmatch(text.strip())
    if match is None:
        raise _invalid_host_error(text, "is not name=user@host:port")
    port = match["port"]
    host, user = match["six"] or match["host"] or "", match["user"]  # `six` is an IPv6 address
    if not NAME.fullmatch(match["name"]):
        raise _invalid_host_error(text, f"has the name {shown(match['name'])!r}; {NAME_RULE}")
    if not _HOST_OR_USER.fullmatch(host) or (user is not None and not _HOST_OR_USER.fullmatch(user)):
        raise _invalid_host_error(text, "has a user or an address that cannot be one")
    is_number = port is None or (port.isascii() and port.isdecimal() and len(port) <= len(str(HIGHEST_PORT)))
    if not is_number or not 1 <= int(port or 22) <= HIGHEST_PORT:
        raise _invalid_host_error(text, f"has no port from 1 to {HIGHEST_PORT}")
    current_port = (_current_entry(setup, match["name"]) or {}).get("port")
    default_port = current_port if isinstance(current_port, int) else 22
    return Host(match["name"], host, int(port or default_port), user or "")


def _invalid_host_error(text: str, problem: str) -> InvalidRequest:
    return InvalidRequest(
        f"--host {shown(text)!r} {problem}.",
        field="--host",
        value=shown(text),
        next="For example --host bigbox=ada@10.0.0.5 or --host bigbox=ada@10.0.0.5:2222",
    )


def parse_login_key(text: str, hosts: Sequence[Host]) -> str:
    """Return the private key that `--key` names for these hosts, as the file will have it; empty: SSH's default keys.

    Raises InvalidRequest without a host, and for what is no private key that SSH can use.
    """
    if not hosts:
        message = "--key is the private key that logs in to a machine of your own, and no --host names one."
        raise InvalidRequest(message, field="--key", value=shown(text), next="Add --host NAME=USER@ADDRESS.")
    if not text.strip():
        return ""
    try:
        path = login_key_path(text.strip())
    except InvalidRequest as error:
        raise InvalidRequest(error.message, field="--key", value=shown(text), next=error.next) from None
    return text.strip() if text.strip().startswith("~") else str(path)


def known_host_key(setup: ExistingSetup, host: Host) -> str | None:
    """Return the public host key that the file has for this host, or None."""
    return (_current_entry(setup, host.name) or {}).get("host_key")


def matches_fingerprint(key: str, fingerprints: Sequence[str], host: Host) -> bool:
    """Say whether one of the given fingerprints is this key's; raise WrongHostKey when some are given and none is."""
    if not fingerprints:
        return False
    actual = fingerprint(key)
    if actual in fingerprints:
        return True
    raise WrongHostKey(
        f"{host.name} at {host.host}:{host.port} shows a host key with another fingerprint, {actual}.",
        field="--fingerprint",
        value=fingerprints[0] if len(fingerprints) == 1 else ", ".join(fingerprints),
        next="Nothing was written. Compare on the machine itself: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
    )


def draft_settings(
    setup: ExistingSetup,
    values: Mapping[str, str | Decimal],
    hosts: Sequence[tuple[Host, str]] = (),
    *,
    login_key: str | None = None,
) -> ConfigDraft:
    """Return the file with these settings, this computer's power figures, and these own hosts with their host keys.

    `login_key` is the private key that logs in to these hosts; empty: SSH's default keys, None: the key as it was.

    Raises InvalidRequest where the file would be invalid, as with a lease longer than `renew_until`.
    """
    text = setup.text or ""
    for name in TOP_LEVEL_KEYS:
        if name in values:
            text = set_value(text, (name,), values[name])
    for name in ELECTRICITY_KEYS:
        if name in values:
            text = set_value(text, ("accounts", default_account_of(setup.settings, "local"), name), values[name])
    if hosts:
        text = _with_hosts(setup, text, hosts, login_key)
    return make_draft(setup, text)


def with_account(setup: ExistingSetup, name: str, table: Mapping[str, object]) -> ConfigDraft:
    """Return the file with these keys in an account's table; a key whose value is None is removed. Others stay."""
    text = setup.text or ""
    for key, value in table.items():
        path = ("accounts", name, key)
        text = remove_value(text, path) if value is None else set_value(text, path, value)
    return make_draft(setup, text)


def make_draft(setup: ExistingSetup, text: str) -> ConfigDraft:
    """Return the draft that changes the file to this text; raise InvalidRequest where that is invalid."""
    _check_config(setup, text)
    current_lines = (setup.text or "").splitlines()
    diff = tuple(difflib.unified_diff(current_lines, text.splitlines(), CONFIG_NAME, CONFIG_NAME, lineterm="", n=0))
    return ConfigDraft(setup, text, diff)


def default_account_of(settings: Settings, kind: str, remedy: str = "") -> str:
    """Return which account of a provider is meant; raise InvalidRequest where there are several without a default.

    `remedy` is for the error, where the verb has an option that names an account.
    """
    named = [name for name, account in settings.accounts.items() if account.provider == kind]
    if not named or kind in named:
        return kind
    if len(named) == 1:
        return named[0]
    raise InvalidRequest(
        f"There are {len(named)} accounts of {kind}, and init cannot know which one is meant.",
        field="accounts",
        value=", ".join(sorted(named)),
        next=remedy or f"Write it into config.toml by hand, under [accounts.{min(named)}].",
    )


def _hosts_in_config(setup: ExistingSetup) -> list[dict[str, Any]]:
    """Return the on-premises hosts in config.toml, each as its TOML table."""
    table = value_at(setup.table, ("accounts", default_account_of(setup.settings, "ssh"), "hosts"))
    return [entry for entry in table if isinstance(entry, dict)] if isinstance(table, list) else []


def _current_entry(setup: ExistingSetup, host: str) -> dict[str, Any] | None:
    return next((entry for entry in _hosts_in_config(setup) if entry.get("name") == host), None)


def _with_hosts(setup: ExistingSetup, text: str, hosts: Sequence[tuple[Host, str]], login_key: str | None) -> str:
    entries = {str(existing.get("name")): existing for existing in _hosts_in_config(setup)}
    for host, host_key in hosts:
        new_entry = {"name": host.name, "host": host.host, "port": host.port, "user": host.user, "host_key": host_key}
        entry = dict(entries.get(host.name, {}))
        if login_key is not None:
            entry.pop("key", None)
            new_entry["key"] = login_key
        entries[host.name] = entry | {name: value for name, value in new_entry.items() if value != ""}
    account = default_account_of(setup.settings, "ssh")
    text = set_value(text, ("accounts", account, "provider"), "ssh") if account == "ssh" else text
    return set_value(text, ("accounts", account, "hosts"), list(entries.values()))


def _check_config(setup: ExistingSetup, text: str) -> None:
    """Raise InvalidRequest for an invalid text. Accounts that init can write are opened, too: that checks them."""
    settings = settings_from_text(text, login=setup.settings.owner)
    lease_of(setup.home, settings)
    for account in settings.accounts.values():
        if account.provider in ("local", "ssh", *CLOUDS):
            _check_account(setup.home, account)


def _check_account(home: Home, account: Account) -> None:
    from cloudgpu.providers.base import ProviderSettings
    from cloudgpu.providers.registry import kinds, open_provider

    if account.provider in kinds():
        directory = home.provider_dir(account.provider, account.name)
        with suppress(MissingExtra):
            open_provider(account.provider, ProviderSettings(account.name, dict(account.options), directory, utc_now))


def write(draft: ConfigDraft) -> None:
    """Write the file atomically, mode 0600; a link stays a link.

    Raises InvalidRequest when somebody else changed the file meanwhile, or it cannot be written.
    """
    setup = draft.setup
    replace_config(
        setup.home.config_file, setup.text, draft.after, "meanwhile", "Nothing was written. Run the same again."
    )


def replace_config(file: Path, before: str | None, after: str, when: str, remedy: str) -> None:
    """Write the text `after` atomically, mode 0600, unless the file has another text than `before`; a link stays one.

    Raises InvalidRequest, with this remedy, where somebody has changed the file, and what `write_atomically` raises.
    """
    with locked(file):
        if read_text(file, CONFIG_NAME) != before:
            message = f"{CONFIG_NAME} was changed by somebody else {when}."
            raise InvalidRequest(message, field=CONFIG_NAME, value=str(file), next=remedy)
        write_atomically(file.resolve(), after.encode())


def missing_extras() -> tuple[str, ...]:
    """Return the extras that are not installed, of the providers that this version has."""
    from cloudgpu.providers.registry import kinds

    return tuple(
        extra for extra, modules in MODULES_BY_EXTRA.items() if extra in kinds() and not all(map(is_installed, modules))
    )
