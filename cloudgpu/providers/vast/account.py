"""Who the account is, what is left of its credit, how its key lasts, and the host keys that containers say."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from cloudgpu.core.model.account import PrepaidCredit
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.values.money import Money
from cloudgpu.errors import CloudgpuError, ProviderUnavailable
from cloudgpu.parallel import beat
from cloudgpu.providers.account_abilities import Finding, Login
from cloudgpu.providers.machine.container_start import host_keys_in
from cloudgpu.providers.vast import machines
from cloudgpu.providers.vast.client import CLOUD, KIND, Vast
from cloudgpu.providers.vast.errors import BILLING
from cloudgpu.providers.vast.options import api_key, key_location

LOG_LINES = "1000"
LOG_TRIES, LOG_PAUSE_S = 12, 1.0  # a log takes about 9 s to be there (recorded command line)


def identity(vast: Vast) -> AccountIdentity:
    """Return which account the key is of, by its user's number. Asked once, and kept."""
    if vast.identity is None:
        number = _user(vast)["id"]
        vast.identity = AccountIdentity("vast account", str(number), f"vast.ai account {number}")
    return vast.identity


def credit(vast: Vast) -> PrepaidCredit:
    """Return what is left to spend. One call.

    By `credit`, else `balance`, of `GET /api/v0/users/current/`: its API reference has `balance`; that this is what is
    left of what was paid in is our belief. At zero vast.ai stops everything, and deletes it later. Raises
    ProviderUnavailable where it says no number.
    """
    user = _user(vast)
    found = user.get("credit", user.get("balance"))
    if isinstance(found, bool) or not isinstance(found, int | float):
        message = f"{CLOUD} does not say what is left of the credit."
        raise ProviderUnavailable(message, field="provider", value=KIND, next=f"Look at {BILLING}")
    return PrepaidCredit(Money.usd(Decimal(str(found))), vast.clock(), None, BILLING)


def _user(vast: Vast) -> dict[str, Any]:
    user = vast.ask("GET", "/api/v0/users/current/", "user")
    number = user.get("id")
    if isinstance(number, bool) or not isinstance(number, int) or number <= 0:
        message = f"{CLOUD} did not say whose key it is."
        raise ProviderUnavailable(message, field="provider", value=KIND, next="Give the key user_read.")
    return user


def login(vast: Vast) -> Login:
    """Return what the credential is: an API key, which lasts until it is taken back. Asks nobody."""
    api_key(vast.account, vast.options)
    return Login(f"an API key ({key_location(vast.options)})", None, lasts=True)


def findings(vast: Vast) -> Sequence[Finding]:
    """Return what was looked at: whose the key is. One call at most."""
    says = f"{identity(vast).words}, by the API key of {key_location(vast.options)}"
    return [Finding("vast.ai account", good=True, says=says)]


def host_keys(vast: Vast, id: str) -> Sequence[str]:  # noqa: A002
    """Return the host key that a container has said in its log; none yet while it starts. Raises InstanceNotFound.

    The log is read over TLS by vast.ai's word, so that nobody between can change it; the host's owner can.
    """
    answer = vast.ask(
        "PUT", f"/api/v0/instances/request_logs/{machines.number_of(id)}/", "logs", body={"tail": LOG_LINES}, again=True
    )
    url = str(answer.get("result_url") or "")
    for number in range(LOG_TRIES if url else 0):
        if number:
            beat(LOG_PAUSE_S)
            vast.pause(LOG_PAUSE_S)
        try:
            return host_keys_in("\n".join(vast.lines_at(url)))
        except CloudgpuError as error:
            if not isinstance(error, ProviderUnavailable):
                raise
    return ()
