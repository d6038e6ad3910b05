"""Requires scheduled runs of the reaper for a machine that neither its agent nor a timer can end.

Such a machine is launched and started only while scheduled runs check its account, from a computer that does not run on
a battery, or with --no-guard. What a run records about itself is made here, too.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from cloudgpu.access.files import locked, write_atomically
from cloudgpu.control.session.base import SessionBase
from cloudgpu.control.session.identity import identity_of
from cloudgpu.control.session.last_run import read_last_run
from cloudgpu.core.model.identity import COMPUTER_KINDS, QueriedAccount, Unanswered
from cloudgpu.core.model.machine import Machine, sync_subject_of
from cloudgpu.core.model.offers import Offer
from cloudgpu.core.policies.guards import ScheduledRun, depends_on_reaper, guarding_run, missing_for_guard, with_run
from cloudgpu.core.values.naming import account_sync_subject
from cloudgpu.errors import CloudgpuError, InvalidRequest

POWER_SUPPLY = Path("/sys/class/power_supply")  # of Linux: Documentation/ABI/testing/sysfs-class-power
NO_GUARD_OPTION = "--no-guard"  # the field of the error
GUARD_REMEDY = (
    "On a computer that stays on, run: cloudgpu cron install (or keep cloudgpu watch running), and try again after its "
    "first run."
)
NO_GUARD_REMEDY = f"{GUARD_REMEDY} To launch without: --no-guard"


def on_battery(root: Path | None = None, *, system: str = sys.platform) -> bool | None:
    """Say whether this computer runs on a battery or a UPS now; None where its system does not tell.

    The battery of a device (a mouse) does not count.
    """
    root = POWER_SUPPLY if root is None else root
    try:
        if not root.is_dir():
            return False if system == "linux" and root.parent.is_dir() else None  # a server's kernel may have none
        return any(_is_discharging(supply) for supply in root.iterdir())
    except OSError:  # as in a sandbox, which may forbid to look
        return None


def _is_discharging(supply: Path) -> bool:
    """Return whether a power supply is a discharging battery or UPS of the computer itself."""
    kind, scope, status = (_read_line(supply / name) for name in ("type", "scope", "status"))
    return kind in ("Battery", "UPS") and scope != "Device" and status == "Discharging"


def _read_line(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def home_id(session: SessionBase) -> str:
    """Return the id of this home: a hash of its random number, the computer, its name and the directory.

    So a copy of a home has another id.
    """
    from cloudgpu.access.computer import computer_id

    home = session.home
    identity = f"{_home_number(home.number_file)} {computer_id()} {platform.node()} {os.path.realpath(home.root)}"
    return hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _home_number(file: Path) -> str:
    """Return the random number of a home, made on first use; empty where it cannot be stored, as on a full disk."""
    if not (number := _read_line(file)) and file.parent.is_dir():
        with suppress(OSError, InvalidRequest), locked(file):
            number = _read_line(file) or _new_home_number(file)  # another process may just have made it
    return number


def _new_home_number(file: Path) -> str:
    number = secrets.token_hex(8)
    write_atomically(file, f"{number}\n".encode())
    return number


def completed_run(
    session: SessionBase,
    interval: timedelta,
    queried: Iterable[QueriedAccount],
    unanswered: Iterable[Unanswered],
    unread: Collection[str] = (),
) -> ScheduledRun:
    """Return what a scheduled run that ends now records about itself, with the cloud accounts that answered.

    `interval` is how often this computer makes one; `queried` are the accounts that it asked, `unanswered` those that
    gave no answer, `unread` those of which it could read no machine, though there may be some.
    """
    # Only whole accounts count: providers whose machines depend on runs alone list an account by one call. One machine
    # that cannot be read is named by every run; that it was the only one says that the next would not be read either.
    silent_scopes, sync_subjects = {*unread, *(gap.scope for gap in unanswered)}, set()
    for account in (queried_account for queried_account in queried if queried_account.account not in silent_scopes):
        with suppress(CloudgpuError):
            identity = identity_of(session, account.account, None)
            sync_subjects |= (
                set() if identity.kind in COMPUTER_KINDS else {account_sync_subject(account.provider, identity.id)}
            )
    return ScheduledRun(
        home_id(session), platform.node(), session.clock(), interval, on_battery(), frozenset(sync_subjects)
    )


def scheduled_runs(session: SessionBase) -> tuple[ScheduledRun, ...]:
    """Return the latest scheduled run of each home, with the one that is under way here; raise LedgerUnavailable."""
    return with_run(read_last_run(session.ledger).scheduled, session.current_run, session.clock())


def guarding_run_of_launch(session: SessionBase, offer: Offer) -> ScheduledRun | None:
    """Return the scheduled run that guards the account of a launch; None where there is none."""
    return guarding_run(scheduled_runs(session), _sync_subject_of_offer(session, offer), session.clock())


def check_launch_guarded(session: SessionBase, offer: Offer) -> None:
    """Raise InvalidRequest where no scheduled run guards the account of a launch."""
    _check_guarded(session, _sync_subject_of_offer(session, offer), offer.configuration.account)


def check_start_guarded(session: SessionBase, machines: Sequence[Machine]) -> None:
    """Raise InvalidRequest, as a launch does, where one of these stopped machines would be guarded by nothing."""
    for machine in machines:
        if depends_on_reaper(without_waiver(machine)):
            _check_guarded(session, sync_subject_of(machine), machine.account or "")


def is_guarded(session: SessionBase, machine: Machine) -> bool:
    """Say whether something would end this machine, or its user waived that with --no-guard."""
    now = session.clock()
    return (
        not depends_on_reaper(machine)
        or guarding_run(scheduled_runs(session), sync_subject_of(machine), now) is not None
    )


def without_waiver(machine: Machine) -> Machine:
    """Return a machine as if nobody had launched or started it with --no-guard."""
    guards = machine.guards
    return machine if guards is None else machine._replace(guards=guards._replace(waived=False))


def _check_guarded(session: SessionBase, sync_subject: str, account: str) -> None:
    runs, now = scheduled_runs(session), session.clock()
    if guarding_run(runs, sync_subject, now) is None:
        raise InvalidRequest(
            f"At {account} nothing on a machine can end its bill. Only scheduled runs of the reaper can, and "
            f"{missing_for_guard(runs, sync_subject, now)}.",
            field=NO_GUARD_OPTION,
            value=account,
            next=NO_GUARD_REMEDY,
        )


def _sync_subject_of_offer(session: SessionBase, offer: Offer) -> str:
    configuration = offer.configuration
    return account_sync_subject(
        configuration.provider, identity_of(session, configuration.account, configuration.region).id
    )
