"""What carries the calls: azure-core's own transport, which waits by our clock and counts what it sends."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Self
from urllib.parse import urlsplit

from cloudgpu.errors import MissingExtra, Silent
from cloudgpu.parallel import beat
from cloudgpu.providers.patience import Patience
from cloudgpu.providers.shared.calls import count

_SLOW = "GET skus"  # all sizes of a region in one answer: `az vm list-skus` is known for taking long
_READS, _LOGIN = ("GET", "HEAD"), "/oauth2/v2.0/token"
_KIND = re.compile(r"/providers/[^/?]+/([A-Za-z]+)(?!.*/providers/)")


class Transport:
    """azure-core's protocol HttpTransport, over its own transport; `pause` waits before a call is sent again.

    A call that was not answered within the patience raises Silent, which azure-core does not send again. So does a read
    that was not even connected: azure-core would try that five times.
    """

    def __init__(self, inner: Any, pause: Callable[[float], None], patience: Patience) -> None:
        self._inner, self._pause, self._patience = inner, pause, patience

    def open(self) -> None:
        """Begin a session; sending does so, too."""
        self._inner.open()

    def close(self) -> None:
        """End the session."""
        self._inner.close()

    def __enter__(self) -> Self:
        """Begin a session."""
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """End the session."""
        self._inner.__exit__(*error)

    def send(self, request: Any, **how: Any) -> Any:
        """Send a call and return its answer. Raises Silent, at once for a read that was silent a moment ago."""
        from azure.core.exceptions import ServiceRequestError, ServiceResponseError

        path = urlsplit(request.url).path
        service = f"Azure ({path.rpartition('/providers/')[2] or path})"
        action, read = named(request.method, request.url), request.method in _READS or path.endswith(_LOGIN)
        if read:
            self._patience.raise_if_silent(action, service)
        quick = read and action != _SLOW
        seconds = self._patience.read_s if quick else self._patience.change_s
        begun = self._patience.now()
        count("azure", action)
        try:
            answer = self._inner.send(
                request, **{**how, "connection_timeout": self._patience.connect_s, "read_timeout": seconds}
            )
        except (ServiceRequestError, ServiceResponseError) as error:
            took = self._patience.now() - begun
            if read and took >= self._patience.connect_s and isinstance(error, ServiceRequestError):
                raise self._patience.record_silence(action, service, self._patience.connect_s) from error
            if took < seconds:
                raise
            if read:
                raise self._patience.record_silence(action, service, seconds) from error
            raise Silent(f"Azure did not answer {action} within {seconds:g} seconds.", field="provider") from error
        self._patience.record_answer(action, service)
        beat()
        return answer

    def sleep(self, duration: float) -> None:
        """Wait by our clock: azure-core asks its transport for every wait."""
        beat(duration)
        self._pause(duration)


def transport(pause: Callable[[float], None], patience: Patience) -> Transport:
    """Return a transport for every client of an account; it asks nobody before it is used."""
    try:
        from azure.core.pipeline.transport import RequestsTransport
    except ModuleNotFoundError as error:
        message = f"The provider azure needs {error.name}, which is not installed."
        remedy = "Run: pip install 'cloudgpu[azure]'"
        raise MissingExtra(message, field="provider", value="azure", next=remedy) from error
    inner = RequestsTransport(connection_timeout=patience.connect_s, read_timeout=patience.change_s)
    return Transport(inner, pause, patience)


def named(method: str, url: str) -> str:
    """Return a short name of a call for the metrics: `PUT virtualMachines`, `DELETE resourcegroups`."""
    path = url.partition("?")[0]
    found = _KIND.search(path)
    if found:
        return f"{method} {found[1]}"
    return f"{method} resourceGroups" if "/resourcegroups" in path.lower() else f"{method} other"
