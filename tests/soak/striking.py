"""Kills cloudgpu, in one process, before or after a write of its ledger."""

from __future__ import annotations


def struck(session, strike):
    """Return the session: its ledger calls `strike` before and after each write; what that raises ends the command."""
    written = session.ledger.decide

    def decide(decision):
        strike()
        lines = written(decision)
        strike()
        return lines

    session.ledger.decide = decide
    return session
