"""The account's identity, credit and key, and the host keys in containers' logs."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from cloudgpu.core.model.account import PrepaidCredit
from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.values.money import Money
from cloudgpu.errors import CloudgpuError, ProviderUnavailable
from cloudgpu.parallel import send_heartbeat
from cloudgpu.providers.account_abilities import AccountFinding, Login
from cloudgpu.providers.machine.container_start import host_keys_in
from cloudgpu.providers.vast import machines
from cloudgpu.providers.vast.client import CLOUD, PROVIDER, Vast
from cloudgpu.providers.vast.errors import BILLING_PAGE
from cloudgpu.providers.vast.options import api_key, key_location

MAX_LOG_LINES = "1000"
LOG_TRIES, LOG_PAUSE_S = 12, 1.0  # a log takes about 9 s to appear (recorded command line)


def identity(vast: Vast) -> AccountIdentity:
    """Return the account of the key, by its user id; one call, cached."""
    if vast.identity is None:
        user_id = _user(vast)["id"]
        vast.identity = AccountIdentity("vast account", str(user_id), f"vast.ai account {user_id}")
    return vast.identity


def credit(vast: Vast) -> PrepaidCredit:
    """Return the remaining prepaid credit. One call.

    It is `credit`, else `balance`, of `GET /api/v0/users/current/`; the API reference has `balance`, and that it means
    prepaid credit is unverified. At zero vast.ai stops everything, and deletes it later. Raises ProviderUnavailable
    without a number.
    """
    user = _user(vast)
    amount = user.get("balance") if user.get("credit") is None else user["credit"]
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        raise ProviderUnavailable(
            f"{CLOUD} does not say what is left of the credit.",
            field="provider",
            value=PROVIDER,
            next=f"Look at {BILLING_PAGE}",
        )
    return PrepaidCredit(Money.usd(Decimal(str(amount))), vast.clock(), None, BILLING_PAGE)


def _user(vast: Vast) -> dict[str, Any]:
    user = vast.call("GET", "/api/v0/users/current/", "user")
    user_id = user.get("id")
    if isinstance(user_id, bool) or not isinstance(user_id, int) or user_id <= 0:
        message = f"{CLOUD} did not say to whom the key belongs."
        raise ProviderUnavailable(message, field="provider", value=PROVIDER, next="Give the key user_read.")
    return user


def login(vast: Vast) -> Login:
    """Return what the credential is: an API key, valid until it is revoked. Makes no call."""
    api_key(vast.account, vast.options)
    return Login(f"an API key ({key_location(vast.options)})", None, lasts=True)


def findings(vast: Vast) -> Sequence[AccountFinding]:
    """Return the account of the key as a finding. One call at most."""
    message = f"{identity(vast).display_name}, by the API key of {key_location(vast.options)}"
    return [AccountFinding("vast.ai account", is_ok=True, message=message)]


def host_keys(vast: Vast, id: str) -> Sequence[str]:  # noqa: A002
    """Return the host key in a container's log; none while it starts. Raises InstanceNotFound.

    The log is read over TLS, from the URL that vast.ai gives. Only the owner of the host could have changed it.
    """
    answer = vast.call(
        "PUT",
        f"/api/v0/instances/request_logs/{machines.number_of(id)}/",
        "logs",
        body={"tail": MAX_LOG_LINES},
        idempotent=True,
    )
    url = str(answer.get("result_url") or "")
    for tries in range(LOG_TRIES if url else 0):
        if tries:
            send_heartbeat(LOG_PAUSE_S)
            vast.pause(LOG_PAUSE_S)
        try:
            return host_keys_in("\n".join(vast.lines_at(url)))
        except CloudgpuError as error:
            if not isinstance(error, ProviderUnavailable):
                raise
    return ()
