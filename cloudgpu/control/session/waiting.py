"""Makes launches wait for the removal of what they share: what bears no machine, like a key pair, a security group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudgpu.errors import ProviderUnavailable

if TYPE_CHECKING:
    from datetime import datetime

    from cloudgpu.control.session.session import Session

LOCK = "shared-things"  # whoever removes holds it, and reads then which launches are written down
_PAUSE_S = 0.2


def wait_while_cleaned(session: Session, deadline: datetime) -> None:
    """Wait until nobody removes what a launch may use. To be called between writing the launch down and sending it.

    Either the one who removes has read that line and leaves all of it alone, or the launch waits here until that is
    gone, and makes it anew. Raises ProviderUnavailable when the deadline has passed: nothing was sent.
    """
    while session.held(LOCK):
        if session.clock() >= deadline:
            raise ProviderUnavailable(
                "Another cloudgpu is removing what launches have left, and is not done.",
                field="lock",
                value=LOCK,
                next="Run the same up again.",
            )
        session.pause(_PAUSE_S)
