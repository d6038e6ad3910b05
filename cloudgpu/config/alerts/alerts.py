"""Reads [alerts] of config.toml: who receives alerts, and which URL each run of the reaper calls as a heartbeat.

Addresses of receivers hold passwords and tokens: they are in no repr and no error, which name their position instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from cloudgpu.config.files.user_files import Home, read_text, setting_error, settings_table
from cloudgpu.errors import InvalidRequest

ALERTS_VARIABLE, DEADMAN_VARIABLE = "CLOUDGPU_ALERTS", "CLOUDGPU_DEADMAN"
DESKTOP = "desktop"  # in place of an address: notifications on the desktop of this computer
MAX_ADDRESS_LENGTH = 2000  # characters of one receiver's address
MAX_FACTOR, DEFAULT_PRICE_JUMP = 1000, Decimal("1.5")  # by which a price has to move to raise an alert
MONTHLY, NEVER = "monthly", "never"  # the values of `Alerts.report`
_RECEIVER = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}://[\x21-\x7e]+")
_HTTP = re.compile(r"https?://[^\s/@?#]+(?:[/?][\x21-\x7e]*)?")


@dataclass(frozen=True, slots=True)
class Alerts:
    """The settings in [alerts]. `price_jump` is the factor above 1 by which a price has to move to raise an alert.

    `to` are the receivers of the lab, `people` those of single owners. `deadman` is the heartbeat URL: a service that
    raises the alarm when no call comes. These three hold secrets. `to_file` names a file with an address per line,
    `template` one with the text. `report` is how often `watch` sends each receiver the cost report: MONTHLY or NEVER.
    """

    to: tuple[str, ...] = field(default=(), repr=False)
    to_file: str | None = None
    price_jump: Decimal = DEFAULT_PRICE_JUMP
    deadman: str | None = field(default=None, repr=False)
    template: str | None = None
    report: str = MONTHLY
    people: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)


def alerts_from(table: object) -> Alerts:
    """Return the settings of a table [alerts]; raise InvalidRequest for its first error."""
    values = settings_table("alerts", table, SETTING_READERS)
    return Alerts(**{key: SETTING_READERS[key](f"alerts.{key}", value) for key, value in values.items()})


def with_environment(alerts: Alerts, environ: Mapping[str, str]) -> Alerts:
    """Return the settings with those of CLOUDGPU_ALERTS (addresses separated by spaces) and CLOUDGPU_DEADMAN.

    They take precedence over the file, so that no secret has to be in it. Raises InvalidRequest for a wrong address.
    """
    if environ.get(ALERTS_VARIABLE):
        to = tuple(
            _receiver(ALERTS_VARIABLE, number, address)
            for number, address in enumerate(environ[ALERTS_VARIABLE].split(), start=1)
        )
        alerts = replace(alerts, to=to, to_file=None)
    if environ.get(DEADMAN_VARIABLE):
        alerts = replace(alerts, deadman=_http_address(DEADMAN_VARIABLE, environ[DEADMAN_VARIABLE]))
    return alerts


def receivers(alerts: Alerts, home: Home) -> tuple[str, ...]:
    """Return the address of every receiver of the lab, each once, those of `to_file` read now.

    Raises InvalidRequest for a file that cannot be read, that others may read, or with a line that is no address.
    """
    addresses = [*alerts.to, *(_receivers_in_file(alerts.to_file, home) if alerts.to_file else ())]
    return tuple(dict.fromkeys(addresses))


def all_receivers(alerts: Alerts, home: Home) -> tuple[str, ...]:
    """Return every receiver's address, each once, of the lab and of single owners; raise as `receivers`."""
    personal = (address for addresses in alerts.people.values() for address in addresses)
    return tuple(dict.fromkeys([*receivers(alerts, home), *personal]))


def file_of(key: str, name: str, home: Home) -> Path:
    """Return the file that a key of [alerts] names, from the home's directory on; InvalidRequest for `~nobody`."""
    try:
        return home.root / Path(name).expanduser()
    except RuntimeError:
        problem = f"is {name}, and this computer knows no home directory of that user"
        raise setting_error(f"alerts.{key}", name, problem, "Write the full path.") from None


def _receivers_in_file(name: str, home: Home) -> list[str]:
    path = file_of("to_file", name, home)
    text = read_text(path, name)
    if text is None:
        raise setting_error(
            "alerts.to_file", name, f"names {path}, which is not there", "Make it, one address per line, mode 0600."
        )
    if path.stat().st_mode & 0o077:
        raise setting_error(
            "alerts.to_file", name, f"names {path}, which others than you may read", f"Run: chmod 600 {path}"
        )
    lines = (line.strip() for line in text.splitlines())
    addresses = [line for line in lines if line and not line.startswith("#")]
    return [_receiver(name, number, line) for number, line in enumerate(addresses, start=1)]


def _receivers(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(address, str) for address in value):
        remedy = f'Write it like {key.rpartition(".")[2]} = ["ntfy://ntfy.example.org/lab", "{DESKTOP}"]'
        raise setting_error(key, None, "has to be a list of texts", remedy)
    return tuple(_receiver(f"config.toml: {key}", number, address) for number, address in enumerate(value, start=1))


def _people(key: str, value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        remedy = 'Write it like [alerts.people] and below it ada = ["mailto://..."]'
        raise setting_error(key, None, "has to be a table of owners", remedy)
    return {owner: _receivers(f"{key}.{owner}", addresses) for owner, addresses in value.items()}


def _receiver(where: str, number: int, text: str) -> str:
    text = text.strip()
    if text == DESKTOP or (_RECEIVER.fullmatch(text) and len(text) <= MAX_ADDRESS_LENGTH):
        return text
    raise InvalidRequest(  # the text itself may hold a password
        f"{where}: address {number} is not a receiver that cloudgpu can read.",
        field=where,
        value=None,
        next=f"Write it as apprise does, like mailto://... or ntfy://..., without blanks (%20), or {DESKTOP}.",
    )


def _deadman(key: str, value: object) -> str:
    return _http_address(f"config.toml: {key}", value if isinstance(value, str) else "")


def _http_address(where: str, text: str) -> str:
    if not _HTTP.fullmatch(text.strip()) or len(text) > MAX_ADDRESS_LENGTH:
        raise InvalidRequest(
            f"{where} has to be an http or https address.",
            field=where,
            value=None,
            next='Write it like deadman = "https://hc-ping.com/YOUR-ID"',
        )
    return text.strip()


def _path(key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise setting_error(key, None, "has to be the name of a file", "Name it from CLOUDGPU_HOME, or from the root.")
    return value.strip()


def _report_interval(key: str, value: object) -> str:
    if value in (MONTHLY, NEVER):
        return str(value)
    problem, remedy = f'has to be "{MONTHLY}" or "{NEVER}"', f'Write it like report = "{NEVER}"'
    raise setting_error(key, value, problem, remedy)


def _factor(key: str, value: object) -> Decimal:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    factor = Decimal(str(value)) if is_number else Decimal(0)
    if not factor.is_finite() or not 1 < factor <= MAX_FACTOR:
        raise setting_error(
            key, value, f"has to be a number above 1, up to {MAX_FACTOR}", "Write it like price_jump = 1.5"
        )
    return factor


# By key of [alerts]: each takes the key and its value, and returns the value of the field of `Alerts`.
SETTING_READERS: dict[str, Callable[[str, object], Any]] = {
    "to": _receivers,
    "to_file": _path,
    "price_jump": _factor,
    "deadman": _deadman,
    "template": _path,
    "report": _report_interval,
    "people": _people,
}
