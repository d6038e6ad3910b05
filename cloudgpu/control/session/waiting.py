"""Makes launches wait for the removal of what they share, and says when to stop waiting for a proof.

Launches share what bears no machine: a key pair, a security group. A cloud that takes each question and answers none is
not waited for long.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cloudgpu.errors import CloudgpuError, ProviderUnavailable, Silent

if TYPE_CHECKING:
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


GIVEN_UP_AFTER = timedelta(seconds=10)  # after the first question of a proof that was not answered


class Silence:
    """How long rounds of questions have gone without an answer to one of them. An error is an answer."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.word = ""  # what was not answered first
        self._silent = False  # in this round
        self._since: datetime | None = None

    def note(self, fault: CloudgpuError) -> str:
        """Note what was said in place of an answer in this round; return its sentence without the full stop."""
        word = fault.message.removesuffix(".")
        if isinstance(fault, Silent):
            self._silent, self.word = True, self.word or word
        return word

    @property
    def is_now(self) -> bool:
        """Whether a question of this round was not answered."""
        return self._silent

    def lasts(self) -> bool:
        """End the round; say whether the silence has lasted so long that it is given up."""
        silent, self._silent = self._silent, False
        now = self._session.clock()
        self._since = (self._since or now) if silent else None
        return self._since is not None and now - self._since >= GIVEN_UP_AFTER
