"""The fake provider's settings, read as strictly as a real provider reads its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from cloudgpu.core.model.offers import TrafficPrices, Trust
from cloudgpu.core.policies.guards import Agent
from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import unknown_word
from cloudgpu.errors import InvalidRequest
from cloudgpu.providers.base import ProviderSettings
from cloudgpu.testing.fake.store import Pace

TIMER_KINDS = ("tag", "moves", "fixed")
OMITTABLE_ABILITIES: Mapping[str, tuple[str, ...]] = {  # ability that an account can do without -> its methods
    "Pausable": ("stop", "start", "stop_many"),
    "Imageable": ("save_image", "terminate_keeping_disk"),
    "Taggable": ("tag",),
    "LaunchesTogether": ("launch_together",),
    "ClearsShared": ("clear_shared",),
    "HasTimer": ("timer", "why_no_timer", "timer_limit", "set_timer", "drop_timer", "timers"),
}


@dataclass(frozen=True, slots=True)
class FakeOptions:
    """The table `[accounts.NAME]` of a fake account: seconds of its own clock, prices in USD per hour on demand."""

    boot_s: float = 0.0
    stop_s: float = 0.0
    keep_s: float = 3600.0  # how long an ended machine is still listed
    lag_s: float = 0.0  # how long a fresh machine is missing from listings
    notice_s: float = 120.0  # how long before an interruption a spot machine gets notice
    image_s: float = 0.0  # how long an image takes until it can be used
    token_s: float = 86400.0  # how long a token is remembered
    prices: Mapping[str, Decimal] | None = None
    trust: Mapping[str, Trust] | None = (
        None  # by machine type or zone: whose computers those are; None: the cloud's own
    )
    traffic: TrafficPrices | None = None  # USD for a GB that a machine sends and receives; None: nothing
    host: str | None = None  # where every running machine says its SSH server answers; None: no address
    port: int = 22
    host_key: str | None = None  # the OpenSSH public line of that server; None: it has the key of the launch
    endpoint: str = "127.0.0.1:9"  # the public endpoint of every region, HOST:PORT
    reachable: bool = False  # the provider says who may connect
    tells: bool = False  # machines are asked for their activity and host keys, and the provider says who may connect
    timer: str = "tag"  # tag: follows renew-until by itself; moves: a separate timer; fixed: set at launch for good
    agent: Agent = Agent.ENDS  # what the agent on its machines can do: ends, tells or none
    credit: Decimal | None = None  # USD that were paid in; None: the account is not paid in advance
    lacks: tuple[str, ...] = ()  # abilities that this cloud does not have, of those in OMITTABLE_ABILITIES
    state_file: Path | None = None  # shared by several processes; None: in memory

    @property
    def pace(self) -> Pace:
        """How long the machines take."""
        return Pace(self.boot_s, self.stop_s)


_OPTION_NAMES = tuple(option.name for option in fields(FakeOptions))


def read_options(settings: ProviderSettings) -> FakeOptions:
    """Return the options of an account; raise InvalidRequest naming the wrong key."""
    options = {key: _read(settings, key, value) for key, value in settings.options.items()}
    return FakeOptions(**options)


def _read(settings: ProviderSettings, key: str, value: Any) -> Any:
    field = f"accounts.{settings.account}.{key}"
    if key not in _OPTION_NAMES:
        raise unknown_word(
            f"{field} is not a setting of the fake provider", key, _OPTION_NAMES, field=field, value=str(value)
        )
    reader: Callable[[Any], Any] = _READERS.get(key, _seconds)
    try:
        return reader(value)
    except (ValueError, TypeError, InvalidOperation, AttributeError) as error:
        raise InvalidRequest(
            f"{field} cannot be {value!r}: {error}", field=field, value=str(value), next="correct it in config.toml"
        ) from error


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise ValueError("it takes a number of seconds from 0")
    return float(value)


def _prices(value: Any) -> Mapping[str, Decimal]:
    prices = {name: Decimal(str(usd)) for name, usd in value.items()}
    if any(not usd.is_finite() or usd < 0 for usd in prices.values()):
        raise ValueError("a price is a number of dollars from 0")
    return prices


def _dollars(value: Any) -> Decimal:
    amount = Decimal(str(value))
    if not amount.is_finite():
        raise ValueError("it takes a number of dollars")
    return amount


def _trust(value: Any) -> Mapping[str, Trust]:
    return {name: Trust(trust) for name, trust in value.items()}


def _traffic(value: Any) -> TrafficPrices:
    prices = _prices(value)
    if prices.keys() != {"out", "into"}:
        raise ValueError("it takes the two prices out and into")
    return TrafficPrices(Money.usd(prices["out"]), Money.usd(prices["into"]))


def _port(value: Any) -> int:
    if type(value) is not int or value not in range(1, 65536):
        raise ValueError("a port is a whole number from 1 to 65535")
    return value


def _endpoint(value: Any) -> str:
    host, colon, port = str(value).rpartition(":")
    if not (host and colon and port.isdecimal()):
        raise ValueError("an endpoint is HOST:PORT")
    _port(int(port))
    return str(value)


def _yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("it takes true or false")
    return value


def _timer(value: Any) -> str:
    if value not in TIMER_KINDS:
        raise ValueError(f"it takes one of {', '.join(TIMER_KINDS)}")
    return str(value)


def _lacks(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not set(value) <= OMITTABLE_ABILITIES.keys():
        raise ValueError(f"it takes a list of {', '.join(OMITTABLE_ABILITIES)}")
    return tuple(value)


_READERS: Mapping[str, Callable[[Any], Any]] = {  # what checks the value of each key that is not in seconds
    "timer": _timer,
    "prices": _prices,
    "trust": _trust,
    "traffic": _traffic,
    "port": _port,
    "host": str,
    "host_key": str,
    "endpoint": _endpoint,
    "reachable": _yes_or_no,
    "tells": _yes_or_no,
    "agent": Agent,
    "lacks": _lacks,
    "credit": _dollars,
    "state_file": Path,
}
