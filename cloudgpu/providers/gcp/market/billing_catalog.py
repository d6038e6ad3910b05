"""Asks the Cloud Billing Catalog for its SKUs, page by page; errors in our own words.

`services.skus.list` (https://cloud.google.com/billing/docs/reference/rest/v1/services.skus/list), with Google's own
client. It sends a call once: a refused call is sent again here, when Google says when.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from cloudgpu.errors import AuthFailed, CloudgpuError, InvalidRequest, MissingExtra, ProviderUnavailable, RateLimited

COMPUTE = "services/6F81-5844-456A"  # Compute Engine: https://cloud.google.com/skus
ENDPOINT = "CLOUDGPU_GCP_ENDPOINT"
PAGE = 5000  # the most that the method gives at once
SENDS = 5  # of one page, where Google says that it is busy
LONGEST_WAIT_S, DEFAULT_WAIT_S = 60.0, 2.0
TIMEOUT_S = 20.0  # a page is long, and only `catalog refresh` waits for it
MAX_PAGES = 500


def skus(pause: Callable[[float], None]) -> Iterator[Any]:
    """Yield every SKU of Compute Engine; `pause` waits so many seconds.

    Raises MissingExtra, AuthFailed, InvalidRequest for an endpoint that is none, and ProviderUnavailable for an
    answer that is none, a page that comes again or more pages than there can be.
    """
    client = _client()
    token, seen = "", set[str]()
    for _ in range(MAX_PAGES):
        page = _page(client, token, pause)
        yield from page.skus
        token = page.next_page_token
        if not token:
            return
        if token in seen:
            break
        seen.add(token)
    raise _unavailable("gives the same page again and again, so its list has no end")


def _client() -> Any:
    try:
        import google.auth
        from google.auth.credentials import AnonymousCredentials
        from google.auth.exceptions import GoogleAuthError
        from google.cloud.billing_v1 import CloudCatalogClient
    except ModuleNotFoundError as error:
        message = f"The price list of gcp needs {error.name}, which is not installed."
        raise MissingExtra(message, field="--provider", value="gcp", next="Run: pip install 'cloudgpu[gcp]'") from error
    endpoint = os.environ.get(ENDPOINT)
    if endpoint:  # somebody's own server: no credential of the user is sent there
        options = {"api_endpoint": endpoint.rstrip("/")}
        try:
            nobody = AnonymousCredentials()  # type: ignore[no-untyped-call]
            return CloudCatalogClient(credentials=nobody, transport="rest", client_options=options)
        except ValueError as error:
            message = f"{ENDPOINT} is not an address: {error}."
            raise InvalidRequest(message, field=ENDPOINT, value=endpoint, next="Correct or unset it.") from error
    try:
        credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-billing.readonly"])
    except GoogleAuthError as error:
        message = "There are no Google credentials, and Google gives its price list to no stranger."
        remedy = "Run: gcloud auth application-default login"
        raise AuthFailed(message, field="credentials", next=remedy) from error
    return CloudCatalogClient(credentials=credentials, transport="rest")


def _page(client: Any, token: str, pause: Callable[[float], None]) -> Any:
    """Return one page; a busy Google is asked again after the wait that it names, a failing one soon."""
    send = 0
    while True:
        send += 1
        try:
            request = {"parent": COMPUTE, "page_size": PAGE, "page_token": token, "currency_code": "USD"}
            return next(iter(client.list_skus(request=request, retry=None, timeout=TIMEOUT_S).pages))
        except Exception as error:
            fault = _fault(error)
            if send == SENDS or not _passes(fault):
                raise fault from error
            pause(_wait(fault, send))


def _passes(error: CloudgpuError) -> bool:
    return isinstance(error, RateLimited) or error.value in ("500", "502", "503", "504")


def _wait(error: CloudgpuError, send: int) -> float:
    asked = error.retry_after if isinstance(error, RateLimited) else None
    return min(LONGEST_WAIT_S, DEFAULT_WAIT_S * 2 ** (send - 1) if asked is None else asked)


def _fault(error: Exception) -> CloudgpuError:
    """Return what an exception of Google's client means to us; its code decides, never its wording."""
    from google.api_core.exceptions import GoogleAPICallError

    if not isinstance(error, GoogleAPICallError):
        return _unavailable(f"did not answer with a price list ({type(error).__name__})")
    code = int(error.code or 0)
    if code in (401, 403):
        message = f"Google refuses these credentials its price list ({code})."
        remedy = "Enable the Cloud Billing API for the project of your credentials: cloudbilling.googleapis.com"
        return AuthFailed(message, field="credentials", value=str(code), next=remedy)
    if code == 429:  # noqa: PLR2004  (too many requests)
        headers = getattr(error.response, "headers", None) or {}
        return RateLimited(
            "Google's price list gets too many requests.", retry_after=_seconds(headers.get("Retry-After"))
        )
    return _unavailable(f"answered with the status {code}", str(code))


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.replace(".", "", 1).isdigit() else None


def _unavailable(says: str, value: str | None = None) -> ProviderUnavailable:
    return ProviderUnavailable(f"Google's price list {says}.", field="provider", value=value)
