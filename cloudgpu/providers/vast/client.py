"""One vast account: its settings, its calls, and what it remembers of prices. Making one asks nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from cloudgpu.core.model.identity import AccountIdentity
from cloudgpu.core.model.offers import Market
from cloudgpu.errors import CloudgpuError, ProviderUnavailable
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.providers.rest.client import Answer, CloudApi, RestClient
from cloudgpu.providers.rest.once import SendOnce
from cloudgpu.providers.shared.account import CloudAccount
from cloudgpu.providers.vast.errors import refusal_of
from cloudgpu.providers.vast.options import API, VARIABLE, api_key, endpoint, key_location, vast_options

KIND = "vast"
CLOUD = "vast.ai"
# The least seconds between two calls of one action (OpenAPI files of vast.ai, 2026-08): a server of one's own has none.
INTERVALS = {"rent": 4.5, "destroy": 3.0, "get": 2.0, "list": 1.0, "change": 1.0}
Key = tuple[str, str, str]  # zone, instance type, market


class Paid(NamedTuple):
    """What a contract costs an hour, without its storage: US dollars, in decimal text."""

    market: Market
    per_hour: str


class Vast(CloudAccount):
    """One account. `asked` are prices an hour of offers that were seen, in decimal text; `paid` those of contracts."""

    def __init__(self, settings: ProviderSettings) -> None:
        super().__init__(settings)
        self.options = vast_options(settings.account, settings.options)
        self.base = endpoint()
        self.once = SendOnce(settings.home, settings.clock)
        self.asked: dict[Key, str] = {}
        self.paid: dict[str, Paid] = {}  # by the contract's id
        self.ends: dict[str, datetime | None] = {}  # when its host leaves, by the contract's id
        self.identity: AccountIdentity | None = None
        api = CloudApi(
            cloud=CLOUD,
            kind=KIND,
            base=self.base,
            login=lambda: {"Authorization": f"Bearer {api_key(self.account, self.options)}"},
            refused=self._refused,
            intervals=INTERVALS if self.base == API else {},
        )
        self.client = RestClient(api, self.patience, settings.pause)
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def ask(
        self,
        method: str,
        path: str,
        action: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        again: bool | None = None,
    ) -> dict[str, Any]:
        """Send a call and return the object that it answers. Raises as `RestClient.call`."""
        answer = self.client.call(method, path, action=action, query=query, body=body, again=again)
        if not isinstance(answer.data, dict):
            raise unreadable(f"answered {action} with something that is not an object")
        if answer.data.get("success") is False:  # a refusal under a status that says otherwise
            raise self._refused(Answer(answer.status, answer.headers, answer.data))
        return answer.data

    def _refused(self, answer: Answer) -> CloudgpuError:
        error = refusal_of(self.client.redacted, answer)
        if error.field == "credentials" and error.next:
            error.next = error.next.replace(VARIABLE, key_location(self.options))  # where the refused key is
        return error

    def lines_at(self, url: str) -> list[str]:
        """Return the lines of a text that lies elsewhere, at an address that vast.ai has given. No key goes there.

        Raises ProviderUnavailable while it is not there yet, and for an address that is not https.
        """
        parts = urlsplit(url)
        api = CloudApi(CLOUD, KIND, f"{parts.scheme}://{parts.netloc}", dict, lambda answer: _no_log_yet(answer.status))
        reader = RestClient(api, self.patience, self.pause)
        return list(reader.lines(parts.path, action="log", query=dict(parse_qsl(parts.query))))

    @contextmanager
    def only(self, token: str) -> Iterator[None]:
        """Let one thread at a time launch with a token: the others see then what the first has done."""
        with self._lock:
            mine = self._locks.setdefault(token, threading.Lock())
        with mine:
            yield


def _no_log_yet(status: int) -> ProviderUnavailable:
    return ProviderUnavailable(f"The log is not there yet ({status}).", field="provider", next="Try again in a minute.")


def unreadable(says: str) -> ProviderUnavailable:
    """Return the error for an answer that is not what vast.ai's OpenAPI files say; `says` is what vast.ai did."""
    return ProviderUnavailable(f"{CLOUD} {says}.", field="provider", value=KIND, next="Try again in a minute.")
