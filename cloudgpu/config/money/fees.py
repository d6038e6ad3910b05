"""Reads [fees] of config.toml: what comes on top of a cloud's prices, like tax and support, in percent."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from cloudgpu.config.files.user_files import number_of, setting_fault, settings_table

KEYS = ("tax_percent", "support_percent", "label")
_EXAMPLE = 'Write it like: [fees] tax_percent = "10", support_percent = "3", label = "VAT in Korea".'
_MAX = 100  # percent


@dataclass(frozen=True, slots=True)
class Fees:
    """What comes on top, in percent of the clouds' prices; None: not configured. Tax is also paid on support."""

    tax_percent: Decimal | None = None
    support_percent: Decimal | None = None
    label: str = ""

    @property
    def factor(self) -> Fraction:
        """What prices are multiplied with to be prices with fees: 1 where none are configured."""
        tax, support = self.tax_percent or Decimal(0), self.support_percent or Decimal(0)
        return (1 + Fraction(support) / 100) * (1 + Fraction(tax) / 100)

    @property
    def summary(self) -> str:
        """What of tax, support and marketplace fees is in the amounts with fees, and what is in none."""
        known = {"tax": self.tax_percent, "support": self.support_percent, "marketplace fees": None}
        inside = [f"{name} ({rate.normalize():f}%)" for name, rate in known.items() if rate is not None]
        missing = _listed([name for name, rate in known.items() if rate is None])
        label = f" [{self.label}]" if self.label else ""
        if not inside:
            return f"{missing[0].upper()}{missing[1:]} are not in it."
        return f"With {_listed(inside)}{label}, and without {missing}."


def fees_from(table: object) -> Fees:
    """Return what a [fees] table says; raise InvalidRequest with the key of the first fault."""
    given = settings_table("fees", table, KEYS, next=_EXAMPLE)
    label = given.get("label", "")
    if not isinstance(label, str) or not (label.isprintable() or not label):
        raise setting_fault("fees.label", label, "has to be one line of text", _EXAMPLE)
    return Fees(_percent("tax_percent", given), _percent("support_percent", given), label.strip())


def _percent(key: str, table: dict[str, object]) -> Decimal | None:
    if key not in table:
        return None
    percent = number_of(table[key])
    if percent is None or not 0 <= percent <= _MAX:
        raise setting_fault(f"fees.{key}", table[key], f"has to be a number from 0 to {_MAX}", _EXAMPLE)
    return percent


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
