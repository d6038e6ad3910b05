"""Tells a sign-in service that is down or throttles from credentials that it refuses.

azure-identity raises the same ClientAuthenticationError for both, mostly without the status. So each answer that its
pipelines get is noted, and looked up when no token came of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from cloudgpu.errors import ProviderUnavailable, RateLimited, Silent

THROTTLED, BROKEN = 429, 500  # and all statuses from that on
_LINK_LOCAL = "169.254."  # a machine's own identity: nobody answers there outside Azure, which says nothing


class Watched:
    """A credential of azure-core's protocol: the one that `make` returns, given the hooks of azure-core's pipelines.

    Raises RateLimited, Silent and ProviderUnavailable where the service that gives tokens is at fault, else what the
    credential raises.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        self._noted = threading.local()
        self._inner = make(raw_request_hook=self._asked, raw_response_hook=self._answered)

    def get_token(self, *scopes: str, **more: Any) -> Any:
        """Return a token, as azure-core asks for it."""
        from azure.core.exceptions import ClientAuthenticationError

        self._noted.last = {}
        try:
            return self._inner.get_token(*scopes, **more)
        except ClientAuthenticationError as error:
            for host, answer in self._noted.last.items():
                fault = _fault(host, answer)
                if fault is not None:
                    raise (Silent(fault.message, field="provider") if _is_late(error) else fault) from error
            raise

    def _asked(self, request: Any) -> None:
        host = urlsplit(request.http_request.url).hostname or ""
        if not host.startswith(_LINK_LOCAL):
            self._note(host, None)

    def _answered(self, response: Any) -> None:
        self._note(urlsplit(response.http_request.url).hostname or "", response.http_response)

    def _note(self, host: str, answer: Any) -> None:
        """Keep the last answer of each host; None while it is silent."""
        if hasattr(self._noted, "last"):
            self._noted.last[host] = answer


def _is_late(error: BaseException | None) -> bool:
    """Say whether the time of a call has run out, which azure-identity wraps into an error of its own."""
    while error is not None and not isinstance(error, Silent):
        error = error.__cause__ or error.__context__
    return error is not None


def _fault(host: str, answer: Any) -> ProviderUnavailable | None:
    """Return what is wrong with a service; None where it answered as one that works."""
    status = None if answer is None else int(answer.status_code)
    if status is not None and status < BROKEN and status != THROTTLED:
        return None
    sentence = "did not answer" if status is None else f"answered with the status {status}"
    message = f"The sign-in service {host} {sentence}, so it is not known whether the Azure credentials are good."
    if status == THROTTLED:
        wait = str(answer.headers.get("Retry-After") or "")
        seconds = float(wait) if wait.isdigit() else None
        return RateLimited(message, retry_after=seconds, field="provider", next="Wait a minute and run it again.")
    return ProviderUnavailable(message, field="provider", next="Run it again in a while.")
