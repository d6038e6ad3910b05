"""Asks the Azure Retail Prices API, page by page; errors in our own words.

https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices: needs no account, gives pages
of at most 1,000 items, and names the next page by its whole address. That address is followed only to the same server.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from cloudgpu.errors import CloudgpuError, InvalidRequest, MissingExtra, ProviderUnavailable, RateLimited
from cloudgpu.parallel import beat
from cloudgpu.providers.patience import CONNECT_S, patience_s
from cloudgpu.providers.shared.errors import retry_after

DEFAULT, PATH = "https://prices.azure.com", "/api/retail/prices"
ENDPOINT = "CLOUDGPU_AZURE_ENDPOINT"
VERSION = "2023-01-01-preview"  # filters are exact about upper and lower case from here on
MAX_PAGES = 500
SENDS = 5
_PORTS = {"https": 443, "http": 80}
Item = Mapping[str, Any]


class Retail:
    """The price list's server; asks nothing before it is asked, and one that was silent nothing more."""

    def __init__(self, seconds: float | None = None) -> None:
        self.endpoint = os.environ.get(ENDPOINT, DEFAULT).rstrip("/")
        self._client = _client(self.endpoint, seconds or patience_s())
        self._is_silent = False

    def items(self, odata_filter: str) -> Iterator[Item]:
        """Yield every item that fits an OData filter.

        Raises ProviderUnavailable for an answer that is none, a page that comes again, or one at another server.
        """
        query = {"api-version": VERSION, "currencyCode": "USD", "$filter": odata_filter}
        page = self._page(f"{self.endpoint}{PATH}", query)
        seen = set[str]()
        for _ in range(MAX_PAGES):
            yield from _items(page)
            following = page.get("NextPageLink")
            if not following:
                return
            self._check_next(following, seen)
            page = self._page(following, {})
        raise _unavailable("has no end")

    def _check_next(self, link: object, seen: set[str]) -> None:
        if not isinstance(link, str) or _server(link) != _server(self.endpoint) or urlsplit(link).path != PATH:
            raise _unavailable(f"sends us on to another server: {str(link)[:80]!r}")
        if link in seen:
            raise _unavailable("gives the same page again and again, so it has no end")
        seen.add(link)

    def _page(self, url: str, query: Mapping[str, str]) -> Item:
        from azure.core.exceptions import AzureError, ServiceRequestTimeoutError, ServiceResponseTimeoutError
        from azure.core.rest import HttpRequest

        if self._is_silent:
            raise _unavailable("did not answer a moment ago")
        try:
            answer = self._client.send_request(HttpRequest("GET", url, params=dict(query)))
            status, body = answer.status_code, answer.read()
        except AzureError as error:
            self._is_silent = isinstance(error, ServiceRequestTimeoutError | ServiceResponseTimeoutError)
            raise _unavailable(f"did not answer ({type(error).__name__})") from error
        beat()
        if status != 200:  # noqa: PLR2004  (the only status of a page)
            raise _refused(status, answer.headers)
        try:
            page: Item = json.loads(body)
            page.get("Items")
        except (ValueError, AttributeError) as error:
            raise _unavailable("answered with something that is not a page of prices") from error
        return page


def _client(endpoint: str, seconds: float) -> Any:
    """Return azure-core's client: it waits where Azure says how long, and follows no redirection.

    A page has so many seconds, over all its sends.
    """
    if urlsplit(endpoint).scheme not in _PORTS or not urlsplit(endpoint).hostname:
        message = f"{ENDPOINT} is {endpoint!r}, which is not an http or https address."
        raise InvalidRequest(message, field=ENDPOINT, value=endpoint, next="Correct or unset it.")
    try:
        from azure.core import PipelineClient
        from azure.core.pipeline.policies import HeadersPolicy, RetryPolicy, UserAgentPolicy
    except ModuleNotFoundError as error:
        message = f"The price list of azure needs {error.name}, which is not installed."
        remedy = "Run: pip install 'cloudgpu[azure]'"
        raise MissingExtra(message, field="--provider", value="azure", next=remedy) from error
    again = RetryPolicy(retry_total=SENDS - 1, retry_backoff_factor=0.4, timeout=seconds)
    policies = [HeadersPolicy({"Accept": "application/json"}), UserAgentPolicy("cloudgpu"), again]
    return PipelineClient(endpoint, policies=policies, connection_timeout=CONNECT_S, read_timeout=seconds)


def _items(page: Item) -> Iterator[Item]:
    found = page.get("Items")
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise _unavailable("answered with a page that has no list of Items")
    yield from found


def _server(url: str) -> tuple[str, str | None, int | None]:
    """Return what has to be the same for two addresses to be one server; Azure writes its port out."""
    parts = urlsplit(url)
    try:
        return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # a port that is none
        return parts.scheme, None, None


def _refused(status: int, headers: Mapping[str, str]) -> CloudgpuError:
    if status == 429:  # noqa: PLR2004  (too many requests)
        return RateLimited("Azure's price list gets too many requests.", retry_after=retry_after(headers))
    return _unavailable(f"answered with the status {status}")


def _unavailable(says: str) -> ProviderUnavailable:
    return ProviderUnavailable(f"Azure's price list {says}.", field="provider", value="azure")
