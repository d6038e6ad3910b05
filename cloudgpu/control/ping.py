"""How far regions are: the round trip of a TCP connection to each one's public endpoint, side by side."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from statistics import median

from cloudgpu.core.model.account import Region
from cloudgpu.parallel import Pool

TRIES = 3
WAIT_S = 3.0
AT_ONCE = 32
Connect = Callable[[str, int], None]
Ping = float | str  # seconds, or why there is no answer


def pings(regions: Sequence[Region], *, now: Callable[[], float] = time.perf_counter) -> dict[str, Ping]:
    """Return by region's name the round trip in seconds, the median of three connections; or why there is none.

    Opens connections and says nothing on them. Every host name is resolved before its time is taken.
    """
    with Pool(AT_ONCE) as pool:
        found = pool.map(lambda region: _ping(region, now), regions)
        return dict(zip((region.name for region in regions), found, strict=True))


def _ping(region: Region, now: Callable[[], float]) -> Ping:
    try:
        family, _, _, _, address = socket.getaddrinfo(region.host, region.port, type=socket.SOCK_STREAM)[0]
        return median(_round_trip(family, (str(address[0]), region.port), now) for _ in range(TRIES))
    except OSError as error:
        return f"{region.host} port {region.port}: {error.strerror or error}"


def _round_trip(family: int, address: tuple[str, int], now: Callable[[], float]) -> float:
    """Return how long the three-way handshake took: one round trip to that place."""
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        connection.settimeout(WAIT_S)
        begun = now()
        connection.connect(address)
        return now() - begun
