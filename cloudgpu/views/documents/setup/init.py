"""Documents of `init`."""

from typing import TypedDict

from cloudgpu.views.documents.parts import Time, Usd


class FoundCredential(TypedDict):
    """A credential that a cloud's SDK would find."""

    provider: str
    """`aws`, `gcp` or `azure`."""
    what: str
    """The name of a profile, a variable or a login."""
    where: str
    """A file, or `environment`."""


class ConfigFile(TypedDict):
    """The settings, and whether they changed; a part of documents, not one of its own."""

    file: str
    """Where `config.toml` is."""
    written: bool
    """It was written; false where there was nothing to change."""


class InitDocument(ConfigFile):
    """What was changed in `config.toml`."""

    diff: list[str]
    """The lines that changed, as `diff -U0` shows them; empty when none did."""
    credentials: list[FoundCredential]
    """What the cloud SDKs would find; never a secret."""
    missing_extras: list[str]
    """Extras of this version's providers that are not installed."""


class LostMachine(TypedDict):
    """A machine that may still run, and counts as gone."""

    name: str
    """Its name."""
    state: str
    """As it was last seen."""
    account: str
    """The account that it was launched in, in words, as its provider named it then."""


class AccountChange(TypedDict):
    """An account, or one of its hosts, and how `config.toml` changes; a part of documents, not one of its own."""

    account: str
    """The account that changes, or whose host does, by its name until now."""
    host: str | None
    """The host, by its name until now; null for the account as a whole."""
    file: str | None
    """Where `config.toml` is; null when nothing in it had to change."""
    diff: list[str]
    """The lines that changed there, as `diff -U0` shows them; empty when none did."""


class ForgetDocument(AccountChange):
    """An account, or a host, that was retired."""

    provider: str
    """Its provider."""
    forgotten_at: Time | None
    """Since when it is no longer queried; an earlier time if it was retired before."""
    machines: int
    """How many machines of it the ledger knows."""
    lost: list[LostMachine]
    """Machines that may still run there and count as gone from now on: `name`, `state` when last seen, `account`."""
    last_ended: Time | None
    """When the latest end of the `machines` was proved; null when none of them has ended."""


class RenameDocument(AccountChange):
    """An account, or a host, that was renamed."""

    new: str
    """The new name."""
    machines: list[str]
    """Its machines that may cost money, by name: not proved to be terminated, or with retained resources."""
    notes: list[str]
    """What else contains the account's name, and was not changed."""


class Finding(TypedDict):
    """What was found in an account."""

    what: str
    """What was checked."""
    ok: bool | None
    """It is as it should be; null: it could not be checked."""
    message: str
    """What was found."""
    next: str
    """What to do; empty if it is as it should be."""
    needed: bool
    """No launch is possible while it is not `ok`."""


class AccountBudget(TypedDict):
    """The account's own budget."""

    usd_per_month: Usd
    """The limit for a month."""
    emails: list[str]
    """Who is notified."""


class AccountCredit(TypedDict):
    """The balance of a prepaid account."""

    left_usd: Usd
    """How much."""
    as_of: Time
    """When that was read."""
    page: str
    """Where to pay in more."""


class InitCloudDocument(ConfigFile):
    """An account that was set up. `init azure` and `init gcp` print the same."""

    cloud: str
    """The kind of provider."""
    account: str
    """The account's name in `config.toml`."""
    where: str
    """The account as the cloud identifies it, and the identity that queried it."""
    role: str | None
    """The name of the machines' role; null where the cloud's machines need none."""
    timer_role: str | None
    """The name of the role of timers; null where the cloud has none."""
    created: list[str]
    """What was created."""
    removed: list[str]
    """What was removed, with `--remove`."""
    budget: AccountBudget | None
    """With `--budget`: `usd_per_month` and `emails` of the account's own budget."""
    findings: list[Finding]
    """What was checked in the account, if its provider checks it."""
    credit: AccountCredit | None
    """The account's balance; null if it is not prepaid, or could not be read."""
