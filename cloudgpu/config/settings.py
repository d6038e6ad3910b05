"""Reads config.toml: who launches, with which account and template, for how long."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cloudgpu.config.alerts.alerts import Alerts, alerts_from, with_environment
from cloudgpu.config.files.user_files import Home, read_text, setting_error, settings_table, shown, zone_of
from cloudgpu.config.money.fees import Fees, fees_from
from cloudgpu.core.values.naming import NAME, NAME_RULE, closest_match, did_you_mean
from cloudgpu.core.values.times import duration_text, parse_duration
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.core.billing.discounts import Credit, Discount
    from cloudgpu.core.policies.description import Choices
    from cloudgpu.core.values.currency import Currency

SHIPPED_KINDS = ("aws", "azure", "gcp", "lambda", "local", "runpod", "ssh", "vast")  # providers without a plug-in
CLOUDS = ("aws", "azure", "gcp", "lambda", "runpod", "vast")  # need no table: their credentials are detected
ANY_PROVIDER = "any"  # in place of a provider's name: every cloud account
MARKETS = ("on_demand", "spot")
DEFAULTABLE_TRUSTS = ("cloud", "datacenter")  # a setting may have these; "community" has to be typed for each launch
MAX_NAME_LENGTH = 200  # characters of an owner's or project's name
# Each returns the caller's public address as plain text.
ADDRESS_SERVICES = ("https://checkip.amazonaws.com", "https://api.ipify.org", "https://ipv4.icanhazip.com")


@dataclass(frozen=True, slots=True)
class Account:
    """A configured account: its name, the provider's name, and the other keys of its table."""

    name: str
    provider: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may hold a secret


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The settings in [jobs]. `notify`: the computer that watches a job shows a notification when it ends."""

    notify: bool = True


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in config.toml, with defaults for those that it leaves out.

    `lease` and `renew_until` are None where `policy` decides. `account` is the one to use where a provider has several
    (None: it has to be named each time). `market` is the text of a `core.model.offers.Market`, `trust` of a `Trust`,
    `tz` the IANA name of the zone in which days begin. `address_services` are tried in turn for this client's public
    address. `accounts` always has one of `local` and one of `provider`, unless that is `any`: every cloud account.
    `templates` has, for each template, the values of its own settings.
    """

    owner: str
    project: str = "default"
    provider: str = "local"
    account: str | None = None
    template: str = "jupyter"
    policy: str = "default"
    lease: timedelta | None = None
    renew_until: timedelta | None = None
    market: str = "on_demand"
    trust: str = "datacenter"
    desktop: str = "rtx3090"
    tz: str = "UTC"
    address_services: tuple[str, ...] = ADDRESS_SERVICES
    ledger_url: str | None = field(default=None, repr=False)  # may hold a password
    accounts: Mapping[str, Account] = field(default_factory=dict)
    templates: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)  # an address may hold a secret
    alerts: Alerts = field(default_factory=Alerts)
    currencies: Mapping[str, Currency] = field(default_factory=dict)
    fees: Fees = field(default_factory=Fees)
    discounts: tuple[Discount, ...] = ()
    credits: tuple[Credit, ...] = ()
    policies: Choices | None = None  # by project and by tag
    jobs: JobSettings = field(default_factory=JobSettings)


def load_settings(home: Home, environ: Mapping[str, str]) -> Settings:
    """Return the settings of `home`; without a config.toml, the defaults.

    CLOUDGPU_LEDGER takes precedence over `ledger`, CLOUDGPU_ALERTS and CLOUDGPU_DEADMAN over those of [alerts].

    Raises InvalidRequest for the first error, with file and key as its `field`.
    """
    text = read_text(home.config_file, "config.toml") or ""
    try:
        settings = settings_from_text(text, login=login_name(environ))
    except InvalidRequest as error:
        error.next = f"{error.next} ({home.config_file})"
        raise
    settings = replace(settings, alerts=with_environment(settings.alerts, environ))
    url = environ.get("CLOUDGPU_LEDGER")
    return replace(settings, ledger_url=url) if url else settings


def settings_from_text(text: str, *, login: str) -> Settings:
    """Return the settings in a config.toml with this text; `login` is the default of `owner`."""
    table = _parse(text) if text.strip() else {}
    _check_keys(table)
    values = {_FIELD_NAMES.get(key, key): read(key, table[key]) for key, read in _READERS.items() if key in table}
    settings = Settings(**{"owner": login, **values})
    _check_lease(settings, table)
    accounts = _accounts(table.get("accounts", {}), settings.provider)
    _check_chosen_account(settings, accounts)
    templates = _templates(table.get("templates", {}))
    kinds = {*SHIPPED_KINDS, *(account.provider for account in accounts.values())}
    settings = replace(settings, alerts=alerts_from(table.get("alerts", {})), jobs=_job_settings(table.get("jobs", {})))
    settings = replace(settings, **_money_settings(table, kinds), **_policy_choices(table))
    return replace(settings, accounts=MappingProxyType(accounts), templates=templates)


def _money_settings(table: Mapping[str, Any], kinds: Collection[str]) -> dict[str, Any]:
    """Return the settings of [currencies], [fees], discounts and credits; imports only what the file has."""
    fields: dict[str, Any] = {}
    if "currencies" in table:
        from cloudgpu.config.money.currencies import currencies_from

        fields["currencies"] = currencies_from(table["currencies"])
    if "fees" in table:
        fields["fees"] = fees_from(table["fees"])
    if "discounts" in table or "credits" in table:
        from cloudgpu.config.money.discounts import read_credits, read_discounts

        fields["discounts"] = read_discounts("discounts", table.get("discounts", []), kinds)
        fields["credits"] = read_credits("credits", table.get("credits", []), kinds)
    return fields


def _job_settings(table: object) -> JobSettings:
    values = settings_table("jobs", table, ("notify",))
    notify = values.get("notify", True)
    if not isinstance(notify, bool):
        raise setting_error("jobs.notify", notify, "has to be true or false", next="Write: notify = false")
    return JobSettings(notify)


def _policy_choices(table: Mapping[str, Any]) -> dict[str, Any]:
    if "policies" not in table:
        return {}
    from cloudgpu.config.policies.choices import choices_from

    return {"policies": choices_from(table["policies"])}


def read_setting(key: str, value: object) -> Any:
    """Return the setting that `key = value` at the top of config.toml means; raise InvalidRequest as for the file."""
    return _READERS[key](key, value)


def login_name(environ: Mapping[str, str]) -> str:
    """Return the login name of the user who runs this process; `uid-1000` for a user without a name."""
    login = environ.get("LOGNAME") or environ.get("USER") or ""
    if login.isprintable() and 0 < len(login.strip()) <= MAX_NAME_LENGTH:
        return login.strip()
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid-{os.getuid()}"


def _parse(text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except RecursionError:
        error_text = "Tables nested too deeply"
    except ValueError as error:  # TOMLDecodeError, and a number of thousands of digits
        error_text = str(error)
    line_match = re.search(r"at line (\d+), column", error_text)
    line = line_match[1] if line_match else text.rstrip().count("\n") + 1 if "end of document" in error_text else None
    where = f"line {line}" if line else "an unknown line"
    problem = re.sub(r" ?\(at .*\)", "", error_text, flags=re.DOTALL).rstrip(".")
    raise InvalidRequest(
        f"config.toml is not valid TOML: {shown(problem)}, at {where}.",
        field=f"config.toml: {where}",
        value=None,  # a line of this file may hold a secret
        next='Write one `key = value` on a line, text in quotes, for example: lease = "8h".',
    )


def _check_keys(table: Mapping[str, Any]) -> None:
    known_keys = (
        *_READERS,
        "accounts",
        "alerts",
        "credits",
        "currencies",
        "discounts",
        "fees",
        "jobs",
        "policies",
        "templates",
    )
    for key in table:
        if key not in known_keys:
            name, suggestion = str(shown(key)), closest_match(key, known_keys)
            may_be_account = suggestion is None and isinstance(table[key], dict)
            account = f"An account's settings are below [accounts.{name}]. " if may_be_account else ""
            remedy = f"{account}Settings: {', '.join(known_keys)}."
            raise setting_error(name, name, f"is not a setting{did_you_mean(suggestion)}", next=remedy)


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise setting_error(key, value, "has to be text", next=f'Write it in quotes: {key} = "..."')
    if not value.strip() or not value.isprintable() or len(value) > MAX_NAME_LENGTH:
        problem = f"has to be one line of 1 to {MAX_NAME_LENGTH} characters"
        raise setting_error(key, value, problem, next=f"Correct {key}, or leave it out.")
    return value.strip()


def _name(key: str, value: object) -> str:
    text = _text(key, value)
    if not NAME.fullmatch(text):
        raise setting_error(key, value, f"is {shown(text)!r}, which is not a name", next=f"For {key}, {NAME_RULE}.")
    return text


def _duration(key: str, value: object) -> timedelta:
    text = _text(key, value)
    try:
        return parse_duration(text)
    except ValueError:
        problem = f"is {shown(text)!r}, which is not a duration from a second to ten years"
        raise setting_error(key, value, problem, next=f'Write it like {key} = "90m", "8h", "1h30m" or "3d".') from None


def _market(key: str, value: object) -> str:
    text = _text(key, value)
    if text not in MARKETS:
        problem = f"is {shown(text)!r}, which is not a market{did_you_mean(closest_match(text, MARKETS))}"
        raise setting_error(key, value, problem, next=f"Use one of: {', '.join(MARKETS)}.")
    return text


def _trust(key: str, value: object) -> str:
    text = _text(key, value)
    if text in DEFAULTABLE_TRUSTS:
        return text
    problem = f"is {shown(text)!r}, which is not a trust{did_you_mean(closest_match(text, DEFAULTABLE_TRUSTS))}"
    remedy = f"Use one of: {', '.join(DEFAULTABLE_TRUSTS)}."
    if text == "community":
        problem = "cannot be 'community': a stranger's computer is used only where that is typed"
        remedy = f"{remedy} For one launch: --trust community"
    raise setting_error(key, value, problem, next=remedy)


def _zone(key: str, value: object) -> str:
    text = _text(key, value)
    zone_of(text, field=f"config.toml: {key}")
    return text


def _urls(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(url, str) and _URL.fullmatch(url) for url in value):
        raise setting_error(
            key,
            None,
            "has to be a list of http or https addresses",
            next=f'Write it like {key} = ["https://api.ipify.org"], or [] to ask nobody.',
        )
    return tuple(value)


_URL = re.compile(r"https?://[^\s/@]+(?:/\S*)?")
# By key at the top of config.toml: each takes the key and its value, and returns the value of the field of `Settings`.
_READERS: dict[str, Callable[[str, object], Any]] = {
    "owner": _text,
    "project": _text,
    "provider": _name,
    "account": _name,
    "template": _name,
    "policy": _name,
    "lease": _duration,
    "renew_until": _duration,
    "market": _market,
    "trust": _trust,
    "desktop": _name,
    "tz": _zone,
    "ledger": _text,
    "address_services": _urls,
}
_FIELD_NAMES = {"ledger": "ledger_url"}  # fields of `Settings` that are not named as their keys


def _check_lease(settings: Settings, table: Mapping[str, Any]) -> None:
    """Raise InvalidRequest for a lease longer than `renew_until`; with only one of them, the policy's reader checks."""
    lease, renew_until = settings.lease, settings.renew_until
    if lease is None or renew_until is None or lease <= renew_until:
        return
    raise setting_error(
        "lease",
        table["lease"],
        f"leaves a lease ({duration_text(lease)}) longer than renew_until "
        f"({duration_text(renew_until)}): a machine could not live to the end of its lease",
        next="Make renew_until at least as long as lease; without a line, the policy says how long each is.",
    )


def _templates(table: object) -> Mapping[str, Mapping[str, str]]:
    templates = settings_table("templates", table, next="Write: [templates.NAME]")
    return MappingProxyType({name: _template(name, values) for name, values in templates.items()})


def _template(name: str, table: object) -> Mapping[str, str]:
    """Return the values of one template's settings; whether it has such settings is checked when it is loaded."""
    key = f"templates.{shown(name)}"
    _name(key, name)
    values = settings_table(key, table)
    for setting, value in values.items():
        path = f"{key}.{shown(setting)}"
        if not isinstance(value, str):
            raise setting_error(path, value, "has to be text", next=f'Write it in quotes: {shown(setting)} = "..."')
        if not value.isprintable() or len(value) > MAX_NAME_LENGTH:
            problem = f"has to be one line of at most {MAX_NAME_LENGTH} characters"
            raise setting_error(path, value, problem, next="Correct it, or leave it out.")
    return MappingProxyType(values)


def _accounts(table: object, provider: str) -> dict[str, Account]:
    tables = settings_table("accounts", table, next="Write: [accounts.NAME]")
    accounts = {name: _account(name, options) for name, options in tables.items()}
    for kind in SHIPPED_KINDS:
        _check_name_not_taken(kind, accounts)
    for kind in ("local",) if provider == ANY_PROVIDER else ("local", provider):
        if all(account.provider != kind for account in accounts.values()):
            _check_name_not_taken(kind, accounts)
            accounts[kind] = Account(kind, kind)
    return accounts


def _check_name_not_taken(kind: str, accounts: Mapping[str, Account]) -> None:
    """Raise InvalidRequest for an account with the name of another provider: `--account aws` has to mean aws."""
    account = accounts.get(kind)
    if account is not None and account.provider != kind:
        raise setting_error(
            f"accounts.{kind}",
            kind,
            f"bears the name of another provider than its own, {account.provider}",
            next=f"Give this account of {account.provider} another name.",
        )


def _account(name: str, table: object) -> Account:
    key = f"accounts.{shown(name)}"
    _name(key, name)
    values = settings_table(key, table)
    if "provider" not in values and name not in SHIPPED_KINDS:
        raise setting_error(
            key, None, "names no provider", next=f'Add provider = "KIND" under [{key}]. The kinds: cloudgpu up --help'
        )
    provider = _name(f"{key}.provider", values.get("provider", name))
    if ANY_PROVIDER in (name, provider):
        raise setting_error(
            f"{key}.provider" if provider == ANY_PROVIDER else key,
            ANY_PROVIDER,
            "cannot be `any`, which means all cloud accounts",
            next="Name one provider.",
        )
    options = {option: value for option, value in values.items() if option != "provider"}
    return Account(name, provider, MappingProxyType(options))


def _check_chosen_account(settings: Settings, accounts: Mapping[str, Account]) -> None:
    """Raise InvalidRequest for a chosen account that does not exist."""
    name = settings.account
    if name is not None and name not in accounts:
        problem = f"is {name!r}, which is not an account{did_you_mean(closest_match(name, accounts))}"
        known = ", ".join(sorted(accounts))
        raise setting_error("account", name, problem, next=f"Add [accounts.{name}], or use: {known}.")
