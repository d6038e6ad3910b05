"""Talks to Google Cloud: one client per service, calls named as in Google's discovery documents, plain JSON values.

Every call is sent by cloudgpu's own loop: the SDK's retries, which would sleep by the wall clock and hide a second
send, are switched off. Changes are made by the `*_unary` methods, which return the operation; `operations` waits for it
(the `.result()` of the others polls Google's own host, whatever the endpoint: tried with google-cloud-compute 1.56).
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from cloudgpu.errors import AnswerTimeout, CloudgpuError, InvalidRequest, ProviderUnavailable, RateLimited
from cloudgpu.parallel import send_heartbeat
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.gcp import credentials
from cloudgpu.providers.gcp.errors import CallContext, translate_error
from cloudgpu.providers.gcp.options import ENDPOINT_VARIABLE, PROJECT_VARIABLE, GcpOptions, gcp_options, project_of
from cloudgpu.providers.shared.account import CloudAccount, translated_errors
from cloudgpu.providers.shared.calls import FIRST_REPORT_AFTER_S, count_request, linked_pages
from cloudgpu.providers.shared.errors import missing_sdk_error, unanswered_error

Raw = Mapping[str, Any]  # a resource in Google's format
PROVIDER = "gcp"  # the provider, as its accounts in config.toml and the catalogue call it
MAX_SENDS = 5  # of a read, or of a change that Google knows again by its request id
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 20.0  # before a call is sent again
PAGE_SIZE = 500  # entries of one page: Google's maximum
NOT_IMPLEMENTED = 501  # HTTP status
MAX_CONNECTIONS = 10  # that Google's client keeps for later calls; it warns of, and throws away, every further one
_ADDRESS = re.compile(r"(?:https?://)?[A-Za-z0-9.-]+(?::\d{1,5})?|https?://\[[0-9a-fA-F:.]+\](?::\d{1,5})?")
_READ_VERBS = ("get", "list", "aggregatedList", "listUsable", "test")


class Gcp(CloudAccount):
    """One account: its project, its clients, its clock. Making one sends no request."""

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(settings)
        self.options: GcpOptions = gcp_options(settings.account, settings.options)
        self.project_pins = self.pins("project")  # in which project each machine was launched
        self._lock = threading.Lock()
        self._connection_slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._clients: dict[str, Any] = {}
        self._credentials: tuple[Any, str | None] | None = None  # credentials, and the project that they name

    @property
    def endpoint(self) -> str | None:
        """Where calls go in place of Google, by CLOUDGPU_GCP_ENDPOINT; None for Google itself.

        Raises InvalidRequest for an invalid address.
        """
        address = (os.environ.get(ENDPOINT_VARIABLE) or "").rstrip("/")
        if not address or _ADDRESS.fullmatch(address):
            return address or None
        message = f"{ENDPOINT_VARIABLE} is {address!r}, which is not an address."
        raise InvalidRequest(
            message, field=ENDPOINT_VARIABLE, value=address, next="Write it like http://127.0.0.1:8080."
        )

    @property
    def who(self) -> str:
        """Whose credentials are used, as text for messages: never the credential itself."""
        return credentials.describe(self.endpoint)

    @property
    def project(self) -> str:
        """The id of the account's project; raises InvalidRequest where neither settings nor credentials name one."""
        project_id = project_of(self.options) or self.credentials()[1]
        if project_id:
            return project_id
        name = f"accounts.{self.account}.project"
        message = f"No Google Cloud project is named for account {self.account}, and its credentials name none."
        remedy = f"Set {name} in config.toml, or {PROJECT_VARIABLE}: gcloud projects list shows yours."
        raise InvalidRequest(message, field=name, next=remedy)

    def credentials(self) -> tuple[Any, str | None]:
        """Return Google's credentials and the project that they name, if any; cached. Raises AuthFailed for none."""
        with self._lock:
            if self._credentials is None:
                with self.translating_errors("credentials"):
                    _check_installed()
                    self._credentials = credentials.find_credentials(self.endpoint, self.options.quota_project)
            return self._credentials

    def credentials_for_calls(self) -> Any:
        """Return the credentials that calls are sent with. Raises AuthFailed for none."""
        return credentials.credentials_for_calls(self.credentials()[0], self.endpoint)

    def service(self, name: str) -> Any:
        """Return the client of a service of Compute Engine (`instances`), made once.

        Raises MissingExtra, AuthFailed, and InvalidRequest for an invalid endpoint.
        """
        call_credentials = self.credentials_for_calls()
        with self._lock:
            if name not in self._clients:
                self._clients[name] = self._make_client(name, call_credentials)
            return self._clients[name]

    def _make_client(self, name: str, call_credentials: Any) -> Any:
        from google.cloud import compute_v1

        client_class = getattr(compute_v1, f"{_capital(name)}Client")
        return client_class(
            credentials=call_credentials, client_options={"api_endpoint": self.endpoint} if self.endpoint else {}
        )

    def call(
        self, action: str, where: str = "", *, value: str | None = None, sends: int = MAX_SENDS, **fields: Any
    ) -> dict[str, Any]:
        """Make a call and return its answer as Google's JSON: of a list one page, of a change the operation.

        `action` is as in the discovery document (`compute.instances.get`); `fields` are the call's parameters in
        Google's spelling, its body among them (`instance_resource` is `instanceResource`). The project is the account's
        unless given. `where` is the zone or region, `value` what the call is about, for messages. `sends` is how often
        it is sent at most. A change gets a request id of its own, so that it may be sent again. Raises the error that
        the answer means, and AnswerTimeout without an answer in the time that a call has over all its sends.
        """
        started_s, is_read = self.timeouts.now(), _is_read(action)
        request = {"project": self.project, **fields}
        if not is_read:
            request.setdefault("requestId", str(uuid.uuid4()))
        # an answer may leave out its zone or region
        location: dict[str, Any] = {name: fields[name] for name in ("zone", "region") if name in fields}
        for send in range(1, sends + 1):
            try:
                return {**location, **self._send_once(action, where, value, request)}
            except AnswerTimeout:
                if is_read or send == sends or self.timeouts.is_spent(started_s, read=is_read):
                    raise
            except CloudgpuError as error:
                send_heartbeat()
                if not isinstance(error, RateLimited | ProviderUnavailable):
                    raise
                if send == sends or _is_final(error) or self.timeouts.is_spent(started_s, read=is_read):
                    raise
                seconds = _pause_s(error, send)
                if seconds >= FIRST_REPORT_AFTER_S:
                    self.notify(f"{action} {where} is sent again in {seconds:g} seconds: {error.message}")
                send_heartbeat(seconds)
                self.pause(seconds)
        raise AssertionError  # pragma: no cover  (the last send returns or raises)

    def _send_once(self, action: str, where: str, value: str | None, request: Mapping[str, Any]) -> dict[str, Any]:
        _, service, verb = action.split(".")
        client = self.service(service)
        from google.cloud import compute_v1
        from google.protobuf import json_format  # type: ignore[import-untyped]

        request_class = getattr(compute_v1, request_class_name(service, verb))
        if "request_id" not in request_class.meta.fields:
            request = {name: field for name, field in request.items() if name != "requestId"}
        message = request_class.wrap(json_format.ParseDict(request, request_class.pb()()))
        method = getattr(client, f"{_snake(verb)}_unary", None) or getattr(client, _snake(verb))
        timeout_s = self.timeouts.read_s if _is_read(action) else self.timeouts.change_s
        with (
            self._connection_slots,
            self._remembering_silence(action, where),
            self.translating_errors(action, where, value=value),
        ):
            count_request(PROVIDER, action)
            answer = method(request=message, retry=None, timeout=timeout_s)
            page = next(iter(answer.pages)) if hasattr(answer, "pages") else answer
            send_heartbeat()
            answer_json: dict[str, Any] = json_format.MessageToDict(type(page).pb(page))
        return answer_json

    @contextmanager
    def _remembering_silence(self, action: str, where: str) -> Iterator[None]:
        """Remember a read that is not answered; raise AnswerTimeout at once for one that was not a moment ago."""
        if not _is_read(action):
            yield
            return
        service = f"Google Cloud {where}".rstrip()
        self.timeouts.raise_if_timed_out_lately(action, service)
        try:
            yield
        except AnswerTimeout as error:
            raise self.timeouts.record_timeout(action, service, self.timeouts.read_s) from error
        self.timeouts.record_answer(action, service)

    def pages(self, action: str, where: str = "", **fields: Any) -> Iterator[dict[str, Any]]:
        """Yield the pages of a list, a call for each; raises ProviderUnavailable for a list without an end."""

        def read(token: str) -> dict[str, Any]:
            request: dict[str, Any] = {**fields, "maxResults": PAGE_SIZE} | ({"pageToken": token} if token else {})
            return self.call(action, where, **request)

        sentence = f"Google Cloud gives the same page of {action} again and again"
        return linked_pages(read, lambda page: page.get("nextPageToken", ""), unanswered_error(sentence, None))

    def items(self, action: str, where: str = "", **fields: Any) -> Iterator[dict[str, Any]]:
        """Yield the entries of all pages of a list, a call for each page."""
        return (item for page in self.pages(action, where, **fields) for item in page.get("items", ()))

    def translating_errors(
        self, action: str, where: str = "", *, value: str | None = None
    ) -> AbstractContextManager[None]:
        """Turn what Google's client raises inside into our own errors; `action` and `where` are named in them."""
        return translated_errors(lambda error: translate_error(error, self.call_context(action, where, value)))

    def call_context(self, action: str, where: str = "", value: str | None = None) -> CallContext:
        """Return the description of a call for its errors."""
        return CallContext(action, where, self.account, self._named_project(), self.who, self.uncorrected_time(), value)

    def _named_project(self) -> str:
        return project_of(self.options) or (self._credentials[1] if self._credentials else None) or ""


def request_class_name(service: str, verb: str) -> str:
    """Return the SDK's class name for the request of a call: `instances`, `insert` gives InsertInstanceRequest."""
    is_list = verb.startswith(("list", "aggregatedList"))
    plural_suffix = "es" if service.endswith("sses") else "s"
    return f"{_capital(verb)}{_capital(service if is_list else service.removesuffix(plural_suffix))}Request"


def _capital(word: str) -> str:
    return word[0].upper() + word[1:]


def _snake(word: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in word)


def _is_final(error: CloudgpuError) -> bool:
    """Say whether the same call would be refused again: a server that does not have it (501) will not have it soon."""
    return getattr(error.__cause__, "code", None) == NOT_IMPLEMENTED


def _is_read(action: str) -> bool:
    return action.rpartition(".")[2].startswith(_READ_VERBS)


def _pause_s(error: CloudgpuError, send: int) -> float:
    """Return how many seconds to wait after a refused send: as long as Google says, at most 20."""
    requested_s = error.retry_after if isinstance(error, RateLimited) else None
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (send - 1) if requested_s is None else requested_s)


def _check_installed() -> None:
    """Raise MissingExtra where Google's SDK is not installed."""
    try:
        import google.auth
        import google.cloud.compute_v1  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing_sdk_error(PROVIDER, error) from error
