"""One vast account: its settings, its calls, and cached prices. Creating it makes no call."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import CloudgpuError, ProviderUnavailable
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.rest.client import Answer, CloudApi, RestClient
from cloudgpu.providers.rest.once import SendOnce
from cloudgpu.providers.shared.account import CloudAccount
from cloudgpu.providers.vast.errors import error_of_answer
from cloudgpu.providers.vast.options import API_URL, KEY_VARIABLE, api_key, endpoint, key_location, vast_options

PROVIDER = "vast"
CLOUD = "vast.ai"  # its name in messages
LISTED_WITHIN = timedelta(minutes=10)  # after a launch, until a listing shows its contract (unverified)
# Minimum seconds between two calls of one action (OpenAPI files of vast.ai, 2026-08); none at another endpoint.
MIN_INTERVALS_S = {"rent": 4.5, "destroy": 3.0, "get": 2.0, "list": 1.0, "change": 1.0}
PriceKey = tuple[str, str, str]  # zone, instance type, market


class ContractPrice(NamedTuple):
    """The price of a contract in USD an hour, as decimal text, without storage."""

    market: Market
    per_hour: str


class Vast(CloudAccount):
    """One account. A contract is a rented machine.

    `offer_prices` are prices of offers of the last searches, in USD an hour as decimal text.
    """

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(settings)
        self.options = vast_options(settings.account, settings.options)
        self.base_url = endpoint()
        self.launch_records = SendOnce(settings.home, settings.clock)
        self.offer_prices: dict[PriceKey, str] = {}
        self.contract_prices: dict[str, ContractPrice] = {}  # by the contract's id
        self.host_leaves_at: dict[str, datetime | None] = {}  # when the host leaves vast.ai, by the contract's id
        self.identity: AccountIdentity | None = None
        api = CloudApi(
            cloud=CLOUD,
            provider=PROVIDER,
            base_url=self.base_url,
            auth_headers=lambda: {"Authorization": f"Bearer {api_key(self.account, self.options)}"},
            error_of_answer=self._error_of_answer,
            intervals_s=MIN_INTERVALS_S if self.base_url == API_URL else {},
        )
        self.client = RestClient(api, self.timeouts, settings.pause)

    def call(
        self,
        method: str,
        path: str,
        action: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        idempotent: bool | None = None,
    ) -> dict[str, Any]:
        """Send a call and return the JSON object of the answer. Raises as `RestClient.call`."""
        answer = self.client.call(method, path, action=action, query=query, body=body, idempotent=idempotent)
        if not isinstance(answer.data, dict):
            raise unreadable_error(f"answered {action} with something that is not an object")
        if answer.data.get("success") is False:  # an error with a status of success
            raise self._error_of_answer(Answer(answer.status, answer.headers, answer.data))
        return answer.data

    def _error_of_answer(self, answer: Answer) -> CloudgpuError:
        error = error_of_answer(self.client.redact, answer)
        if error.field == "credentials" and error.next:
            error.next = error.next.replace(
                KEY_VARIABLE, key_location(self.options)
            )  # where the rejected key is stored
        return error

    def lines_at(self, url: str) -> list[str]:
        """Return the lines of a text at a URL that vast.ai gave. The key is not sent there.

        Raises ProviderUnavailable while the text does not exist yet, InvalidRequest for a URL without https.
        """
        url_parts = urlsplit(url)
        api = CloudApi(
            CLOUD, PROVIDER, f"{url_parts.scheme}://{url_parts.netloc}", dict, lambda answer: _no_log_yet(answer.status)
        )
        log_client = RestClient(api, self.timeouts, self.pause)
        signed_path = f"{url_parts.path}?{url_parts.query}"  # as it is given: a signature is of the whole query
        return list(log_client.lines(signed_path, action="log"))


def _no_log_yet(status: int) -> ProviderUnavailable:
    return ProviderUnavailable(
        f"The log does not exist yet ({status}).", field="provider", next="Try again in a minute."
    )


def unreadable_error(action: str) -> ProviderUnavailable:
    """Return the error for an answer that contradicts vast.ai's OpenAPI files; `action` continues the sentence."""
    return ProviderUnavailable(f"{CLOUD} {action}.", field="provider", value=PROVIDER, next="Try again in a minute.")
