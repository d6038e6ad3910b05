"""Asks the ledger for a layer from outside where nothing on a machine ends its bill: a scheduled run of the reaper.

Such a machine is launched and started only while a run is heard that checks its account, from a computer that does not
run on a battery, or with --no-guard. What a run says of itself is written here, too.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from cloudgpu.access.files import locked, write_whole
from cloudgpu.control.session.base import SessionBase
from cloudgpu.control.session.identity import identity_of
from cloudgpu.control.session.last_run import read_last_run
from cloudgpu.core.model.identity import COMPUTERS, QueriedAccount, Unanswered
from cloudgpu.core.model.machine import Machine, scope_of_row
from cloudgpu.core.model.offers import Offer
from cloudgpu.core.policies.guards import ScheduledRun, guarding_run, missing_for_guard, needs_runs, with_run
from cloudgpu.core.values.naming import scope_of
from cloudgpu.errors import CloudgpuError, InvalidRequest

POWER_SUPPLY = Path("/sys/class/power_supply")  # of Linux: Documentation/ABI/testing/sysfs-class-power
NO_SAFEGUARD = "--no-guard"  # the field of the error where a run is missing
GUARD_REMEDY = (
    "On a computer that stays on, run: cloudgpu cron install (or keep cloudgpu watch running), and try again after its "
    "first run."
)
NO_GUARD_REMEDY = f"{GUARD_REMEDY} To launch without: --no-guard"


def on_battery(root: Path | None = None, *, system: str = sys.platform) -> bool | None:
    """Say whether this computer draws on a battery or a UPS now; None where its system does not tell.

    A battery of a device (a mouse) is none of the computer's.
    """
    root = POWER_SUPPLY if root is None else root
    if not root.is_dir():
        return False if system == "linux" and root.parent.is_dir() else None  # a server's kernel may have none of it
    return any(_discharges(one) for one in root.iterdir())


def _discharges(supply: Path) -> bool:
    kind, scope, status = (_line(supply / name) for name in ("type", "scope", "status"))
    return kind in ("Battery", "UPS") and scope != "Device" and status == "Discharging"


def _line(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def own_home(session: SessionBase) -> str:
    """Return what tells this home from all others, on this computer and elsewhere.

    That is a number which it gets once, with the computer, its name and the directory: a copy of a home is another one.
    """
    from cloudgpu.access.computer import computer

    identity = f"{_number(session.home.number)} {computer()} {platform.node()} {os.path.realpath(session.home.root)}"
    return hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _number(file: Path) -> str:
    """Return the number of a home, made at the first sync; empty where it cannot be kept, as on a full disk."""
    if not (found := _line(file)) and file.parent.is_dir():
        with suppress(OSError, InvalidRequest), locked(file):
            found = _line(file) or _new_number(file)  # another process may just have made it
    return found


def _new_number(file: Path) -> str:
    number = secrets.token_hex(8)
    write_whole(file, f"{number}\n".encode())
    return number


def own_run(
    session: SessionBase, every: timedelta, queried: Iterable[QueriedAccount], silent: Iterable[Unanswered]
) -> ScheduledRun:
    """Return what a scheduled run that ends now says of itself: the accounts of clouds that answered it.

    `every` is how often this computer makes one; `queried` are the accounts that it asked, `silent` those that gave no
    answer.
    """
    scopes = {gap.scope for gap in silent}
    answered = [one for one in queried if one.account not in scopes]
    found = set()
    for one in answered:
        with suppress(CloudgpuError):
            identity = identity_of(session, one.account, None)
            found |= set() if identity.kind in COMPUTERS else {scope_of(one.provider, identity.id)}
    return ScheduledRun(own_home(session), platform.node(), session.clock(), every, on_battery(), frozenset(found))


def scheduled(session: SessionBase) -> tuple[ScheduledRun, ...]:
    """Return the latest scheduled runs of all homes, with the one that is under way here. Raises as the ledger."""
    return with_run(read_last_run(session.ledger).scheduled, session.own_run, session.clock())


def run_of_launch(session: SessionBase, offer: Offer) -> ScheduledRun | None:
    """Return the run that a launch relies on which needs one; None for none."""
    return guarding_run(scheduled(session), _scope(session, offer), session.clock())


def check_launch_guarded(session: SessionBase, offer: Offer) -> None:
    """Raise InvalidRequest where no run is heard that guards a launch which needs one."""
    _check(session, _scope(session, offer), offer.available.account)


def check_start_guarded(session: SessionBase, machines: Sequence[Machine]) -> None:
    """Raise InvalidRequest, as a launch does, where one of these stopped machines would be guarded by nothing."""
    for machine in machines:
        if needs_runs(without_waiver(machine)):
            _check(session, scope_of_row(machine), machine.account or "")


def is_guarded(session: SessionBase, machine: Machine) -> bool:
    """Say whether something would end this machine, or it was agreed to do without."""
    now = session.clock()
    return not needs_runs(machine) or guarding_run(scheduled(session), scope_of_row(machine), now) is not None


def without_waiver(machine: Machine) -> Machine:
    """Return a machine as if nobody had launched or started it with --no-guard."""
    found = machine.guards
    return machine if found is None else machine._replace(guards=found._replace(waived=False))


def _check(session: SessionBase, scope: str, account: str) -> None:
    runs, now = scheduled(session), session.clock()
    if guarding_run(runs, scope, now) is None:
        raise InvalidRequest(
            f"At {account} nothing on a machine can end its bill. Only scheduled runs of the reaper can, and "
            f"{missing_for_guard(runs, scope, now)}.",
            field=NO_SAFEGUARD,
            value=account,
            next=NO_GUARD_REMEDY,
        )


def _scope(session: SessionBase, offer: Offer) -> str:
    item = offer.available
    return scope_of(item.provider, identity_of(session, item.account, item.region).id)
