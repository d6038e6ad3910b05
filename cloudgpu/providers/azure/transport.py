"""What carries the calls: azure-core's own transport, which waits by our clock and counts what it sends."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Self

from cloudgpu.errors import MissingExtra
from cloudgpu.providers.calls import count

CONNECT_S, READ_S = 5, 60
_KIND = re.compile(r"/providers/[^/?]+/([A-Za-z]+)(?!.*/providers/)")


class Transport:
    """azure-core's protocol HttpTransport, over its own transport; `pause` waits before a call is sent again."""

    def __init__(self, inner: Any, pause: Callable[[float], None]) -> None:
        self._inner, self._pause = inner, pause

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
        """Send a call and return its answer."""
        count("azure", named(request.method, request.url))
        return self._inner.send(request, **how)

    def sleep(self, duration: float) -> None:
        """Wait by our clock: azure-core asks its transport for every wait."""
        self._pause(duration)


def transport(pause: Callable[[float], None]) -> Transport:
    """Return a transport for every client of an account; it asks nobody before it is used."""
    try:
        from azure.core.pipeline.transport import RequestsTransport
    except ModuleNotFoundError as error:
        message = f"The provider azure needs {error.name}, which is not installed."
        way = "Run: pip install 'cloudgpu[azure]'"
        raise MissingExtra(message, field="provider", value="azure", next=way) from error
    return Transport(RequestsTransport(connection_timeout=CONNECT_S, read_timeout=READ_S), pause)


def named(method: str, url: str) -> str:
    """Return a short name of a call for the metrics: `PUT virtualMachines`, `DELETE resourcegroups`."""
    path = url.partition("?")[0]
    found = _KIND.search(path)
    if found:
        return f"{method} {found[1]}"
    return f"{method} resourceGroups" if "/resourcegroups" in path.lower() else f"{method} other"
