"""Talks to Azure Resource Manager through its SDKs, and in plain JSON where no SDK has the call.

There is one client per service. Errors are those of `cloudgpu.errors`, and waits go by the account's clock. Plain JSON
calls go through the same client as all others.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from importlib import import_module
from typing import Any, Self
from urllib.parse import urlsplit

from cloudgpu.errors import AnswerTimeout, InvalidRequest
from cloudgpu.parallel import send_heartbeat
from cloudgpu.providers.azure import ids
from cloudgpu.providers.azure.credentials import credential
from cloudgpu.providers.azure.errors import CallContext, translated
from cloudgpu.providers.azure.ids import AzureOptions, Sku, azure_options
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.patience import CallTimeouts
from cloudgpu.providers.shared.account import CloudAccount, translated_errors
from cloudgpu.providers.shared.calls import FIRST_REPORT_AFTER_S, count_request, linked_pages
from cloudgpu.providers.shared.errors import missing_sdk_error, unanswered_error

_SLOW_READ_CALL = "GET skus"  # all sizes of a region in one answer: `az vm list-skus` is known for taking long
_READ_METHODS, _LOGIN_PATH = ("GET", "HEAD"), "/oauth2/v2.0/token"
_RESOURCE_TYPE = re.compile(r"/providers/[^/?]+/([A-Za-z]+)(?!.*/providers/)")


class Transport:
    """azure-core's protocol HttpTransport, over its own transport `inner`; `pause` waits before a call is sent again.

    A call that was not answered within `timeouts` raises AnswerTimeout, which azure-core does not send again.
    So does a read whose connection timed out: azure-core would try that five times.
    """

    def __init__(self, inner: Any, pause: Callable[[float], None], timeouts: CallTimeouts) -> None:
        self._inner, self._pause, self._timeouts = inner, pause, timeouts

    def open(self) -> None:
        """Open a session; `send` does so, too."""
        self._inner.open()

    def close(self) -> None:
        """Close the session."""
        self._inner.close()

    def __enter__(self) -> Self:
        """Open a session."""
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Close the session."""
        self._inner.__exit__(*error)

    def send(self, request: Any, **options: Any) -> Any:
        """Send a call and return its answer. Raises AnswerTimeout; for a read that timed out a moment ago, unsent.

        The rest of the path, after `/providers/`, stands for the service: one that is silent is not asked again.
        """
        from azure.core.exceptions import ServiceRequestError, ServiceResponseError

        path = urlsplit(request.url).path
        service = f"Azure ({path.rpartition('/providers/')[2] or path})"
        action, is_read = (
            call_name(request.method, request.url),
            request.method in _READ_METHODS or path.endswith(_LOGIN_PATH),
        )
        if is_read:
            self._timeouts.raise_if_timed_out_lately(action, service)
        is_quick = is_read and action != _SLOW_READ_CALL
        timeout_s = self._timeouts.read_s if is_quick else self._timeouts.change_s
        started_s = self._timeouts.now()
        count_request("azure", action)
        try:
            answer = self._inner.send(
                request, **{**options, "connection_timeout": self._timeouts.connect_s, "read_timeout": timeout_s}
            )
        except (ServiceRequestError, ServiceResponseError) as error:
            elapsed_s = self._timeouts.now() - started_s
            if is_read and elapsed_s >= self._timeouts.connect_s and isinstance(error, ServiceRequestError):
                raise self._timeouts.record_timeout(action, service, self._timeouts.connect_s) from error
            if elapsed_s < timeout_s:
                raise
            if is_read:
                raise self._timeouts.record_timeout(action, service, timeout_s) from error
            raise AnswerTimeout(
                f"Azure did not answer {action} within {timeout_s:g} seconds.", field="provider"
            ) from error
        self._timeouts.record_answer(action, service)
        send_heartbeat()  # tells who waits for this thread that it lives
        return answer

    def sleep(self, duration: float) -> None:
        """Wait by our clock: azure-core asks its transport for every wait."""
        send_heartbeat(duration)
        self._pause(duration)


def transport(pause: Callable[[float], None], timeouts: CallTimeouts) -> Transport:
    """Return a transport for every client of an account; it sends nothing before it is used."""
    try:
        from azure.core.pipeline.transport import RequestsTransport
    except ModuleNotFoundError as error:
        raise missing_sdk_error("azure", error) from error
    inner = RequestsTransport(connection_timeout=timeouts.connect_s, read_timeout=timeouts.change_s)
    return Transport(inner, pause, timeouts)


def call_name(method: str, url: str) -> str:
    """Return a short name of a call for the metrics: `PUT virtualMachines`, `DELETE resourceGroups`."""
    path = url.partition("?")[0]
    found = _RESOURCE_TYPE.search(path)
    if found:
        return f"{method} {found[1]}"
    return f"{method} resourceGroups" if "/resourcegroups" in path.lower() else f"{method} other"


Raw = Mapping[str, Any]  # a resource as Azure describes it
PROVIDER = "azure"  # the provider, as its accounts in config.toml and the catalogue call it
ENDPOINT, DEFAULT_ENDPOINT = "CLOUDGPU_AZURE_ENDPOINT", "https://management.azure.com"
SUBSCRIPTION_VARIABLE = "AZURE_SUBSCRIPTION_ID"
MAX_SENDS = 5  # of a call that can be repeated, or that Azure asks to send again
MAX_PARALLEL = 8  # calls at the same time
POLL_S = 5.0  # between polls of an operation, where Azure does not say how long to wait
_CLIENTS: Mapping[str, tuple[str, str]] = {
    "authorization": ("azure.mgmt.authorization", "AuthorizationManagementClient"),
    "compute": ("azure.mgmt.compute", "ComputeManagementClient"),
    "computeschedule": ("azure.mgmt.computeschedule", "ComputeScheduleMgmtClient"),
    "consumption": ("azure.mgmt.consumption", "ConsumptionManagementClient"),
    "network": ("azure.mgmt.network", "NetworkManagementClient"),
    "quota": ("azure.mgmt.quota", "QuotaMgmtClient"),
    "resources": ("azure.mgmt.resource.resources", "ResourceManagementClient"),
}


class Azure(CloudAccount):
    """One account: its subscription, its clients, its clock. Makes no network call by itself."""

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(settings)
        self.options: AzureOptions = azure_options(settings.account, settings.options)
        # the subscription that each machine was launched in, recorded in files
        self.launch_subscriptions = self.pins("subscription")
        self.endpoint = os.environ.get(ENDPOINT, "").rstrip("/") or None
        self._lock = threading.RLock()
        # the sizes of each region and when they were read; `skus` writes and reads it
        self.sku_cache: dict[str, tuple[datetime, Mapping[str, Sku]]] = {}
        self._clients: dict[str, Any] = {}
        self._transport: Any = None
        self._credential: Any = None

    def _wait_before_send(self, delay_s: float) -> None:
        """Wait before the SDK sends a call again, or polls an operation again."""
        if delay_s >= FIRST_REPORT_AFTER_S:
            self.notify(f"Azure is asked again in {delay_s:g} seconds, as it says.")
        self.pause(delay_s)

    @property
    def subscription(self) -> str:
        """The subscription's id: of the settings, else of the environment. Raises InvalidRequest for none."""
        subscription_id = self.options.subscription or os.environ.get(SUBSCRIPTION_VARIABLE, "")
        if ids.SUBSCRIPTION.fullmatch(subscription_id):
            return subscription_id
        problem = (
            f"{SUBSCRIPTION_VARIABLE} is {subscription_id[:80]!r}, which is not an id"
            if subscription_id
            else "no subscription is named"
        )
        raise InvalidRequest(
            f"Account {self.account} of azure: {problem}.",
            field=f"accounts.{self.account}.subscription",
            value=subscription_id[:80] or None,
            next="See yours: az account show --query id; then set subscription in config.toml, "
            f"or {SUBSCRIPTION_VARIABLE}.",
        )

    @property
    def compute(self) -> Any:
        """The client of Microsoft.Compute: machines, disks, sizes, images."""
        return self.client("compute")

    @property
    def network(self) -> Any:
        """The client of Microsoft.Network."""
        return self.client("network")

    @property
    def resources(self) -> Any:
        """The client of resource groups, tags and providers."""
        return self.client("resources")

    def client(self, service: str) -> Any:
        """Return the client of a service, made once: a name of `_CLIENTS`. Raises AuthFailed, InvalidRequest."""
        with self._lock:
            if service not in self._clients:
                self._clients[service] = self._make_client(service)
            return self._clients[service]

    def _make_client(self, service: str) -> Any:
        module, name = _CLIENTS[service]
        endpoint = self._checked_endpoint()
        try:
            client_class = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            raise missing_sdk_error(PROVIDER, error) from error
        return client_class(
            self.credential,
            self.subscription,
            base_url=endpoint,
            credential_scopes=[f"{endpoint}/.default"],
            transport=self._shared_transport(),
            retry_total=MAX_SENDS - 1,
            timeout=self.timeouts.change_s,  # of a call, over all its sends
            polling_interval=POLL_S,
        )

    def _checked_endpoint(self) -> str:
        """Return the endpoint. Raises InvalidRequest unless it is https: the SDK sends a token over that alone."""
        endpoint = self.endpoint or DEFAULT_ENDPOINT
        parts = urlsplit(endpoint)
        if parts.scheme == "https" and parts.hostname:
            return endpoint
        message = f"{ENDPOINT} is {endpoint[:80]!r}, which is not an https address."
        raise InvalidRequest(message, field=ENDPOINT, value=endpoint[:80], next="Correct or unset it.")

    @property
    def credential(self) -> Any:
        """The credential that signs the calls, made once; it sends nothing before it is used."""
        with self._lock:
            if self._credential is None:
                try:
                    self._credential = credential(self.options.tenant, self.endpoint, self._shared_transport())
                except ModuleNotFoundError as error:
                    raise missing_sdk_error(PROVIDER, error) from error
            return self._credential

    def _shared_transport(self) -> Any:
        with self._lock:
            if self._transport is None:
                self._transport = transport(self._wait_before_send, self.timeouts)
            return self._transport

    def calling(
        self, action: str, region: str = "", *, value: str | None = None, field: str | None = None
    ) -> AbstractContextManager[None]:
        """Turn what the SDK raises inside into errors of `cloudgpu.errors`, which name `action` and, if any, `region`.

        `value` is what the user named. `field` is the option that named it, unless it is a machine: a resource that
        Azure does not find raises InvalidRequest for that field then.
        """
        return translated_errors(
            lambda error: translated(
                error, CallContext(action, region, self.account, self.uncorrected_time(), value, field)
            )
        )


def get_json(azure: Azure, action: str, path: str, version: str, **query: str) -> Mapping[str, Any]:
    """Return what a GET answers; `action` is the permission that it takes. One call."""
    return _get(azure, action, path, {"api-version": version, **query})


def get_values(azure: Azure, action: str, path: str, version: str, **query: str) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of `value` in a list's answers, a call per page. Raises ProviderUnavailable without an end."""

    def read(link: str) -> Mapping[str, Any]:
        return _get(azure, action, link) if link else get_json(azure, action, path, version, **query)

    endless_error = unanswered_error(f"Azure gives the same page of {action} again and again", None)
    for page in linked_pages(read, lambda page: str(page.get("nextLink") or ""), endless_error):
        yield from page.get("value", ())


def _get(azure: Azure, action: str, url: str, parameters: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    client = azure.resources  # first: it says so where the SDK is not installed
    from azure.core.rest import HttpRequest

    with azure.calling(action, ""):
        response = client.send_request(HttpRequest("GET", url, params=parameters))
        response.raise_for_status()
        found: Mapping[str, Any] = response.json()
    return found
