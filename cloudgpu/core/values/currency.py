"""Currencies by ISO 4217, each with the dated rate at which dollars are converted to it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import TypedDict

from cloudgpu.core.values.money import Money
from cloudgpu.core.values.naming import unknown_word

# ISO 4217, list one: active codes of countries' currencies, without funds, metals and test codes.
CODES = frozenset(
    "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF "
    "CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG "
    "HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA "
    "MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD "
    "RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX "
    "USD UYU UZS VED VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG".split()
)
# Decimal places of the currencies that do not have two, by the same list.
_DECIMAL_PLACES = dict.fromkeys("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF".split(), 0)
_DECIMAL_PLACES |= dict.fromkeys("BHD IQD JOD KWD LYD OMR TND".split(), 3)
_EXACT_ARITHMETIC = Context(prec=80)  # digits; no product of an amount and a rate has more


class CurrencyRecord(TypedDict):
    """A `Currency` as a part of a JSON document."""

    code: str
    per_usd: str
    as_of: str
    source: str


@dataclass(frozen=True, slots=True)
class Currency:
    """A currency with its rate: one US dollar is `per_usd` of it, as of a day, according to `source`.

    `source` is empty where the user typed the rate.
    """

    code: str
    per_usd: Decimal
    as_of: date
    source: str = ""

    def convert(self, amount: Money) -> Decimal:
        """Return an amount in this currency, not rounded."""
        return _EXACT_ARITHMETIC.multiply(amount.dollars, self.per_usd)

    def text(self, amount: Money, extra_places: int = 0) -> str:
        """Return an amount for people, rounded half-even; one that is not zero is never shown as zero."""
        smallest = Decimal(1).scaleb(-_DECIMAL_PLACES.get(self.code, 2) - extra_places)
        converted = self.convert(amount)
        rounded = converted.quantize(smallest, ROUND_HALF_EVEN, _EXACT_ARITHMETIC)
        if converted and not rounded:
            return f"{'-' if converted < 0 else ''}<{smallest:f}"
        return f"{rounded:,f}"

    def to_json(self) -> CurrencyRecord:
        """Return it as a part of a JSON document: the rate, its day and its source."""
        return {
            "code": self.code,
            "per_usd": f"{self.per_usd:f}",
            "as_of": self.as_of.isoformat(),
            "source": self.source,
        }

    def __str__(self) -> str:
        source = f" ({self.source})" if self.source else ""
        return f"1 USD = {self.per_usd:f} {self.code}, rate of {self.as_of.isoformat()}{source}"


def check_code(code: str, field: str) -> str:
    """Return an ISO 4217 code in capitals; raise InvalidRequest, which suggests a similar code, for anything else."""
    capitals = code.strip().upper()
    if capitals in CODES:
        return capitals
    raise unknown_word(
        f"{code!r} is not a currency of ISO 4217",
        capitals,
        CODES,
        field=field,
        value=code,
        next="Write its three letters, like USD, EUR or KRW.",
    )
