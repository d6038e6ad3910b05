"""The table of calls that our model of Google Cloud answers: by the discovery document's id, one function each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.clouds.gcp.model import Model
from tests.clouds.rest import Call, Request


@dataclass
class Asked:
    """A call that is being answered, with the model that answers it; `silent` are the scopes that say nothing.

    `denied` are permissions that the caller lacks.
    """

    model: Model
    call: Call
    request: Request
    silent: list[str]
    denied: set[str]

    @property
    def body(self) -> dict[str, Any]:
        """The request's body."""
        return self.call.body or {}

    @property
    def where(self) -> dict[str, str]:
        """The parameters of its path."""
        return self.call.where


Handler = Callable[[Asked], dict[str, Any]]
HANDLERS: dict[str, Handler] = {}


def answers(*actions: str) -> Callable[[Handler], Handler]:
    """Put a function into the table for these calls."""

    def keep(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(actions, handler))
        return handler

    return keep
