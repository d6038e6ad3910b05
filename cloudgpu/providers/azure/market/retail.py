"""Reads the Azure Retail Prices API, page by page; its errors are those of `cloudgpu.errors`.

https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices: needs no account, gives pages
of at most 1,000 items, and names the next page by its URL, which is followed only to the same server.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from cloudgpu.errors import CloudgpuError, InvalidRequest, ProviderUnavailable, RateLimited
from cloudgpu.parallel import send_heartbeat
from cloudgpu.providers.patience import MAX_CONNECT_S, patience_s
from cloudgpu.providers.shared.calls import linked_pages
from cloudgpu.providers.shared.errors import missing_sdk_error, retry_after

DEFAULT_ENDPOINT, PATH = "https://prices.azure.com", "/api/retail/prices"
ENDPOINT = "CLOUDGPU_AZURE_ENDPOINT"
VERSION = "2023-01-01-preview"  # filters are exact about upper and lower case from here on
MAX_SENDS = 5
_PORTS = {"https": 443, "http": 80}
Item = Mapping[str, Any]  # an item of the price list, or a page of it, as JSON


class RetailPrices:
    """The price list's server; after a timeout, no further call is sent. Makes no call by itself."""

    def __init__(self, timeout_s: float | None = None) -> None:
        self.endpoint = os.environ.get(ENDPOINT, DEFAULT_ENDPOINT).rstrip("/")
        self._client = _client(self.endpoint, timeout_s or patience_s())
        self._has_timed_out = False

    def items(self, odata_filter: str) -> Iterator[Item]:
        """Yield every item that matches an OData filter.

        Raises ProviderUnavailable for an invalid answer, a repeated page, or a next page on another server.
        """
        query = {"api-version": VERSION, "currencyCode": "USD", "$filter": odata_filter}

        def read(link: str) -> Item:
            return self._page(link, {}) if link else self._page(f"{self.endpoint}{PATH}", query)

        endless_error = _unavailable_error("gives the same page again and again, so it has no end")
        for page in linked_pages(read, self._next_link, endless_error):
            yield from _items(page)

    def _next_link(self, page: Item) -> str:
        link = page.get("NextPageLink") or ""
        if link and (
            not isinstance(link, str) or _origin(link) != _origin(self.endpoint) or urlsplit(link).path != PATH
        ):
            raise _unavailable_error(f"sends us on to another server: {str(link)[:80]!r}")
        return link

    def _page(self, url: str, query: Mapping[str, str]) -> Item:
        from azure.core.exceptions import AzureError, ServiceRequestTimeoutError, ServiceResponseTimeoutError
        from azure.core.rest import HttpRequest

        if self._has_timed_out:
            raise _unavailable_error("did not answer a moment ago")
        try:
            answer = self._client.send_request(HttpRequest("GET", url, params=dict(query)))
            status, body = answer.status_code, answer.read()
        except AzureError as error:
            self._has_timed_out = isinstance(error, ServiceRequestTimeoutError | ServiceResponseTimeoutError)
            raise _unavailable_error(f"did not answer ({type(error).__name__})") from error
        send_heartbeat()
        if status != 200:  # noqa: PLR2004  (the only status of a page)
            raise _refusal_error(status, answer.headers)
        try:
            page: Item = json.loads(body)
            page.get("Items")
        except (ValueError, AttributeError) as error:
            raise _unavailable_error("answered with something that is not a page of prices") from error
        return page


def _client(endpoint: str, timeout_s: float) -> Any:
    """Return azure-core's client: it waits where Azure says how long, and follows no redirection.

    A page has `timeout_s`, over all its sends.
    """
    if urlsplit(endpoint).scheme not in _PORTS or not urlsplit(endpoint).hostname:
        message = f"{ENDPOINT} is {endpoint!r}, which is not an http or https address."
        raise InvalidRequest(message, field=ENDPOINT, value=endpoint, next="Correct or unset it.")
    try:
        from azure.core import PipelineClient
        from azure.core.pipeline.policies import HeadersPolicy, RetryPolicy, UserAgentPolicy
    except ModuleNotFoundError as error:
        raise missing_sdk_error("azure", error, what="The price list of", field="--provider") from error
    retry_policy = RetryPolicy(retry_total=MAX_SENDS - 1, retry_backoff_factor=0.4, timeout=timeout_s)
    policies = [HeadersPolicy({"Accept": "application/json"}), UserAgentPolicy("cloudgpu"), retry_policy]
    return PipelineClient(endpoint, policies=policies, connection_timeout=MAX_CONNECT_S, read_timeout=timeout_s)


def _items(page: Item) -> Iterator[Item]:
    found = page.get("Items")
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise _unavailable_error("answered with a page that has no list of Items")
    yield from found


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port of a URL, to compare servers: Azure's links name the default port."""
    parts = urlsplit(url)
    try:
        return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # an invalid port
        return parts.scheme, None, None


def _refusal_error(status: int, headers: Mapping[str, str]) -> CloudgpuError:
    if status == 429:  # noqa: PLR2004  (too many requests)
        return RateLimited("Azure's price list gets too many requests.", retry_after=retry_after(headers))
    return _unavailable_error(f"answered with the status {status}")


def _unavailable_error(problem: str) -> ProviderUnavailable:
    return ProviderUnavailable(f"Azure's price list {problem}.", field="provider", value="azure")
