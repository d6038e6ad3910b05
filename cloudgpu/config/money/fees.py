"""Reads [fees] of config.toml: tax and support, which are added to a cloud's prices, in percent."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from cloudgpu.config.files.user_files import parse_finite_number, setting_error, settings_table

KEYS = ("tax_percent", "support_percent", "label")
_EXAMPLE = 'Write it like: [fees] tax_percent = "10", support_percent = "3", label = "VAT in Korea".'
_MAX_PERCENT = 100


@dataclass(frozen=True, slots=True)
class Fees:
    """Fees added to the clouds' prices, in percent; None: not configured. Tax is charged on support, too."""

    tax_percent: Decimal | None = None
    support_percent: Decimal | None = None
    label: str = ""

    @property
    def factor(self) -> Fraction:
        """The factor that adds the fees to a price: 1 where none are configured."""
        tax, support = self.tax_percent or Decimal(0), self.support_percent or Decimal(0)
        return (1 + Fraction(support) / 100) * (1 + Fraction(tax) / 100)

    @property
    def summary(self) -> str:
        """A sentence that says which of tax, support and marketplace fees are included in amounts, and which not."""
        percents = {"tax": self.tax_percent, "support": self.support_percent, "marketplace fees": None}
        included = [f"{name} ({percent.normalize():f}%)" for name, percent in percents.items() if percent is not None]
        excluded = _join_with_and([name for name, percent in percents.items() if percent is None])
        label = f" [{self.label}]" if self.label else ""
        if not included:
            return f"{excluded[0].upper()}{excluded[1:]} are not in it."
        return f"With {_join_with_and(included)}{label}, and without {excluded}."


def fees_from(table: object) -> Fees:
    """Return what a [fees] table says; raise InvalidRequest with the key of the first error."""
    values = settings_table("fees", table, KEYS, next=_EXAMPLE)
    label = values.get("label", "")
    if not isinstance(label, str) or not (label.isprintable() or not label):
        raise setting_error("fees.label", label, "has to be one line of text", _EXAMPLE)
    return Fees(_percent("tax_percent", values), _percent("support_percent", values), label.strip())


def _percent(key: str, table: dict[str, object]) -> Decimal | None:
    if key not in table:
        return None
    percent = parse_finite_number(table[key])
    if percent is None or not 0 <= percent <= _MAX_PERCENT:
        raise setting_error(f"fees.{key}", table[key], f"has to be a number from 0 to {_MAX_PERCENT}", _EXAMPLE)
    return percent


def _join_with_and(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
