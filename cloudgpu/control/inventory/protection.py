"""If the provider refuses an end: stop the machine instead, and report its protection and the remedy.

A protection against deletion mostly lets a machine be stopped. Then at least its compute is not billed any more.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Literal

from cloudgpu.control.inventory.stop_proof import is_stopped, request_until_confirmed
from cloudgpu.control.pricing.price_history import pin_to_the_end
from cloudgpu.control.team.authorization import by
from cloudgpu.core.events.machine_lines import action_refused, requested
from cloudgpu.core.events.observations import not_before
from cloudgpu.core.model.machine import Machine, command_name, not_none
from cloudgpu.errors import CloudgpuError, EndRefused, LedgerUnavailable
from cloudgpu.providers.abilities import Pausable
from cloudgpu.providers.base import Provider

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.core.events.log import Draft


def stop_instead(session: Session, machine: Machine, refusal: EndRefused) -> EndRefused:
    """Stop a machine whose end was refused; return the refusal, with the machine's state in its message.

    The caller holds the machine's lock. Raises LedgerUnavailable.
    """
    machine = session.ledger.append_to(machine, [_line(session, machine, "terminate", refusal)])
    outcome, lifts = _stop_and_wait(session, machine, refusal)
    refusal.message = f"{machine.name} was not ended: {refusal.message} {outcome}"
    ways = list(dict.fromkeys(one for one in (refusal.lifts, lifts) if one))
    way = f"Run: {' && '.join(ways)}" if ways else (refusal.next or "").rstrip(".")
    refusal.next = f"{way}; then: cloudgpu down {command_name(machine)}"
    return refusal


def note(session: Session, machine: Machine, what: Literal["stop", "terminate"], refusal: EndRefused) -> None:
    """Write that an end (or a stop) was refused, and what lifts that, so that owners hear of it until it is over."""
    session.ledger.append([_line(session, machine, what, refusal)])


def _line(session: Session, machine: Machine, what: Literal["stop", "terminate"], refusal: EndRefused) -> Draft:
    return action_refused(machine.id, what, refusal, not_before(machine, session.clock()))


def with_remedy(error: CloudgpuError) -> str:
    """Return a fault as one text; of a refused end with the way out, as nobody may be there to ask for it."""
    return f"{error.message} {error.next}" if isinstance(error, EndRefused) and error.next else error.message


def stop_anyway(provider: Provider, instance: str, refusal: EndRefused) -> EndRefused:
    """Ask to stop a machine whose end was refused while the ledger cannot be written; return the refusal."""
    try:
        if isinstance(provider, Pausable):
            provider.stop(instance)
            refusal.message += " It was asked to stop instead."
    except CloudgpuError as second:
        refusal.message += f" It could not be stopped either: {second.message}"
    return refusal


def _stop_and_wait(session: Session, machine: Machine, refusal: EndRefused) -> tuple[str, str]:
    """Stop it and prove that; return how that went, and the command that lifts what keeps it from its stop."""
    provider = session.provider_of(machine)
    if machine.state in ("stopped", "deallocated") and not machine.billed:
        return "It is stopped; its disk still costs money.", ""
    if not isinstance(provider, Pausable) or machine.stoppable is False:
        return "It cannot be stopped either, so it runs on and is billed.", ""
    session.report(f"{machine.name}: {refusal.message} Stopping it instead")
    now = not_before(machine, session.clock())
    session.ledger.append(
        [
            requested(
                "stop", machine.id, "its end was refused", now, host=platform.node(), who=by(session, machine, "stop")
            )
        ]
    )
    try:
        machine = request_until_confirmed(
            session, machine, is_stopped, lambda: provider.stop(not_none(machine.provider_id)), seen_running=True
        )
    except LedgerUnavailable:
        raise
    except EndRefused as second:
        note(session, machine, "stop", second)
        return f"It cannot be stopped either, so it runs on and is billed: {second.message}", second.lifts
    except CloudgpuError as second:
        return f"Stopping it instead failed, so it may run on and be billed: {second.message}", ""
    pin_to_the_end(session, machine)
    return "It was stopped instead; its disk still costs money.", ""
