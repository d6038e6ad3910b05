"""What the tables and the notes of `estimate` have in common: amounts in one currency, and the marks of prices."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.cli.render import Amounts, confidence_mark, dollars

if TYPE_CHECKING:
    from cloudgpu.views.documents.market.estimate import AttachedPrice, Estimate, EstimateDocument

DEAR = Decimal(1000)  # dollars: from here on without cents
_MARKS = "+<?~!"  # the first that a line has is shown
_STAND_INS = {"memory bandwidth": "bw", "dense tensor TFLOPs": "tf", "FP32 TFLOPs": "fp"}


class Rounded(Amounts):
    """Shows amounts of a thousand dollars or more without cents, and no sign of the dollar in a table."""

    def __call__(self, text: str | None, more: int | None = None) -> str:
        """Return an amount of a table; a missing one is `?`, never zero."""
        dear = self.currency is None and text is not None and Decimal(text) >= DEAR
        return super().__call__(text, -2 if dear else more).replace("$", "")

    def with_code(self, text: str | None, more: int | None = None) -> str:
        """Return an amount as prose has it."""
        return super().with_code(text, more) if self.currency else dollars(text)


def finite(document: EstimateDocument) -> bool:
    """Say whether the work ends, so that it costs something in all."""
    return document["estimates"][0]["expected"] is not None


def rests(one: Estimate) -> str:
    """Return the mark of hours by a stand-in for the speed, as `gpus` has it."""
    return "" if one["times_as_fast"] is None else _STAND_INS.get(one["times_as_fast"]["basis"], "")


def short(one: Estimate) -> str:
    """Return the type as people know it."""
    return str(one["instance_type"]).removeprefix("Standard_")


def marks(one: Estimate) -> str:
    """Return `m` for too little memory, and the one mark that says most against the prices of an offer."""
    every = trust(one) + "".join(mark(resource) for resource in one["attached_costs"])
    return ("" if one["fits"] else "m") + next((mark for mark in _MARKS if mark in every), "")


def mark(resource: AttachedPrice) -> str:
    """Return the mark of what is paid beside a machine.

    A derived price and the age of one are no mark: a sentence below the table has both.
    """
    if resource["usd"] is None:
        return "+"
    if resource["at_most"] and resource["low_usd"] is None:
        return "<"
    return "?" if resource["basis"] == "recalled" else ""


def trust(one: Estimate) -> str:
    """Return the mark of the machine's price."""
    return confidence_mark(one["provider"], one["price"]["basis"], old=one["old"])
