"""Reads [alerts] of config.toml: who is told of what goes wrong, and where a pass says that it was alive.

Addresses of receivers hold passwords and tokens: they are in no repr and in no error, which names their place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from cloudgpu.config.files.user_files import Home, read_text, setting_fault, settings_table
from cloudgpu.errors import InvalidRequest

ENVIRONMENT, ENVIRONMENT_DEADMAN = "CLOUDGPU_ALERTS", "CLOUDGPU_DEADMAN"
DESKTOP = "desktop"
LONGEST = 2000  # characters of one receiver's address
LARGEST_FACTOR, PRICE_JUMP = 1000, Decimal("1.5")
MONTHLY, NEVER = "monthly", "never"
_RECEIVER = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}://[\x21-\x7e]+")
_HTTP = re.compile(r"https?://[^\s/@?#]+(?:[/?][\x21-\x7e]*)?")


@dataclass(frozen=True, slots=True)
class Alerts:
    """What [alerts] says. `price_jump` is the factor at which a price that moved is news; at least a little above 1.

    `people` are the receivers of single owners. `to`, `people` and `deadman` hold secrets. `to_file` names a file with
    an address per line; `template` one with the text. `report` says whether `watch` sends each receiver the report of a
    month that is over.
    """

    to: tuple[str, ...] = field(default=(), repr=False)
    to_file: str | None = None
    price_jump: Decimal = PRICE_JUMP
    deadman: str | None = field(default=None, repr=False)
    template: str | None = None
    report: str = MONTHLY
    people: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)


def alerts_from(table: object) -> Alerts:
    """Return what a table [alerts] stands for; raise InvalidRequest for its first fault."""
    given = settings_table("alerts", table, READERS)
    return Alerts(**{key: READERS[key](f"alerts.{key}", value) for key, value in given.items()})


def with_environment(alerts: Alerts, environ: Mapping[str, str]) -> Alerts:
    """Return the settings as CLOUDGPU_ALERTS (addresses with blanks between) and CLOUDGPU_DEADMAN change them.

    They go before the file's: a secret need not stand in it. Raises InvalidRequest for what is not an address.
    """
    if environ.get(ENVIRONMENT):
        to = tuple(
            _receiver(ENVIRONMENT, number, word) for number, word in enumerate(environ[ENVIRONMENT].split(), start=1)
        )
        alerts = replace(alerts, to=to, to_file=None)
    if environ.get(ENVIRONMENT_DEADMAN):
        alerts = replace(alerts, deadman=_address(ENVIRONMENT_DEADMAN, environ[ENVIRONMENT_DEADMAN]))
    return alerts


def receivers(alerts: Alerts, home: Home) -> tuple[str, ...]:
    """Return the address of every receiver of the lab, each once, those of `to_file` read now.

    Raises InvalidRequest for a file that cannot be read, that others may read, or with a line that is no address.
    """
    found = [*alerts.to, *(_of_file(alerts.to_file, home) if alerts.to_file else ())]
    return tuple(dict.fromkeys(found))


def everybody(alerts: Alerts, home: Home) -> tuple[str, ...]:
    """Return every receiver's address, each once, of the lab and of single owners; raise as `receivers`."""
    of_people = (address for addresses in alerts.people.values() for address in addresses)
    return tuple(dict.fromkeys([*receivers(alerts, home), *of_people]))


def _of_file(name: str, home: Home) -> list[str]:
    path = home.root / Path(name).expanduser()
    text = read_text(path, name)
    if text is None:
        says = f"names {path}, which is not there"
        raise setting_fault("alerts.to_file", name, says, "Make it, one address per line, mode 0600.")
    if path.stat().st_mode & 0o077:
        says = f"names {path}, which others than you may read"
        raise setting_fault("alerts.to_file", name, says, f"Run: chmod 600 {path}")
    lines = (line.strip() for line in text.splitlines())
    kept = [line for line in lines if line and not line.startswith("#")]
    return [_receiver(name, number, line) for number, line in enumerate(kept, start=1)]


def _receivers(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        way = f'Write it like {key.rpartition(".")[2]} = ["ntfy://ntfy.example.org/lab", "{DESKTOP}"]'
        raise setting_fault(key, None, "has to be a list of texts", way)
    return tuple(_receiver(f"config.toml: {key}", number, one) for number, one in enumerate(value, start=1))


def _people(key: str, value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        way = 'Write it like [alerts.people] and below it ada = ["mailto://..."]'
        raise setting_fault(key, None, "has to be a table of owners", way)
    return {owner: _receivers(f"{key}.{owner}", addresses) for owner, addresses in value.items()}


def _receiver(where: str, number: int, text: str) -> str:
    text = text.strip()
    if text == DESKTOP or (_RECEIVER.fullmatch(text) and len(text) <= LONGEST):
        return text
    raise InvalidRequest(  # the text itself may hold a password
        f"{where}: address {number} is not a receiver that cloudgpu can read.",
        field=where,
        value=None,
        next=f"Write it as apprise does, like mailto://... or ntfy://..., without blanks (%20), or {DESKTOP}.",
    )


def _deadman(key: str, value: object) -> str:
    return _address(f"config.toml: {key}", value if isinstance(value, str) else "")


def _address(where: str, text: str) -> str:
    if not _HTTP.fullmatch(text.strip()) or len(text) > LONGEST:
        raise InvalidRequest(
            f"{where} has to be an http or https address.",
            field=where,
            value=None,
            next='Write it like deadman = "https://hc-ping.com/YOUR-ID"',
        )
    return text.strip()


def _path(key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise setting_fault(key, None, "has to be the name of a file", "Name it from CLOUDGPU_HOME, or from the root.")
    return value.strip()


def _often(key: str, value: object) -> str:
    if value in (MONTHLY, NEVER):
        return str(value)
    says, way = f'has to be "{MONTHLY}" or "{NEVER}"', f'Write it like report = "{NEVER}"'
    raise setting_fault(key, value, says, way)


def _factor(key: str, value: object) -> Decimal:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    factor = Decimal(str(value)) if number else Decimal(0)
    if not factor.is_finite() or not 1 < factor <= LARGEST_FACTOR:
        says = f"has to be a number above 1, up to {LARGEST_FACTOR}"
        raise setting_fault(key, value, says, "Write it like price_jump = 1.5")
    return factor


READERS: dict[str, Callable[[str, object], Any]] = {
    "to": _receivers,
    "to_file": _path,
    "price_jump": _factor,
    "deadman": _deadman,
    "template": _path,
    "report": _often,
    "people": _people,
}
