"""Currencies by ISO 4217, and the rate with its date at which dollars are shown in one."""

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
# Places after the point where they are not two, by the same list.
_PLACES = dict.fromkeys("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF".split(), 0)
_PLACES |= dict.fromkeys("BHD IQD JOD KWD LYD OMR TND".split(), 3)
_EXACT = Context(prec=80)  # digits; no amount times no rate has more


class CurrencyRecord(TypedDict):
    """What a `Currency` says, as documents have it."""

    code: str
    per_usd: str
    as_of: str
    source: str


@dataclass(frozen=True, slots=True)
class Currency:
    """A currency with its rate: `per_usd` of it for one US dollar, as of a day, by `source`.

    `source` is empty where the rate was typed.
    """

    code: str
    per_usd: Decimal
    as_of: date
    source: str = ""

    @property
    def places(self) -> int:
        """How many digits its amounts have after the point, by ISO 4217."""
        return _PLACES.get(self.code, 2)

    def exact(self, amount: Money) -> Decimal:
        """Return an amount in this currency, not rounded."""
        return _EXACT.multiply(amount.dollars, self.per_usd)

    def text(self, amount: Money, more_places: int = 0) -> str:
        """Return an amount for people, rounded half-even; one that is not zero is never shown as zero."""
        places = self.places + more_places
        least = Decimal(1).scaleb(-places)
        exact = self.exact(amount)
        shown = exact.quantize(least, ROUND_HALF_EVEN, _EXACT)
        if exact and not shown:
            return f"{'-' if exact < 0 else ''}<{least:f}"
        return f"{shown:,f}"

    def value(self) -> CurrencyRecord:
        """Return it as a part of a JSON document, with its rate, the day on which that held, and its source."""
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
    """Return an ISO 4217 code in capitals; raise InvalidRequest with the near one for anything else."""
    wanted = code.strip().upper()
    if wanted in CODES:
        return wanted
    way = "Write its three letters, like USD, EUR or KRW."
    raise unknown_word(f"{code!r} is not a currency of ISO 4217", wanted, CODES, field=field, value=code, next=way)
