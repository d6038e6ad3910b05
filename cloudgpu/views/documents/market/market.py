"""Documents of `regions` and `quota`."""

from typing import TypedDict

from cloudgpu.views.documents.parts import IncompleteAnswer, Market, OfAccount, Price


class Region(TypedDict):
    """A region."""

    region: str
    """Its name."""
    ping_ms: float | None
    """With `--ping`: the median round trip of three TCP connections, in milliseconds."""
    price: Price | None
    """With `--gpu`: an hour of the cheapest machine with it; null where none is sold now."""
    instance_type: str | None
    """That machine."""
    zone: str | None
    """Where, exactly."""


class RegionsHead(OfAccount, IncompleteAnswer):
    """The request for an account's regions, and the regions."""

    gpu: str | None
    """The GPU whose price was requested."""
    market: Market
    """`on_demand` or `spot`."""
    regions: list[Region]
    """In the requested order."""


class RegionsDocument(RegionsHead):
    """An account's regions; a round trip that failed is among what did not answer."""

    live: bool
    """The provider answered; false: the regions and prices are those of the dated catalogue, whatever is in stock."""
    one_address: bool
    """One address answers for all of the regions, so that `ping_ms` does not tell how far each is."""


class QuotaLimit(TypedDict):
    """A limit of an account."""

    region: str
    """Where."""
    code: str
    """As the provider calls it: what `quota --request` takes."""
    name: str
    """The provider's name for it."""
    market: Market
    """`on_demand` or `spot`."""
    used: float | None
    """How much runs now, by anybody in the account; null where that is not known."""
    limit: float | None
    """How much may run at once; null where the provider did not say."""
    unit: str
    """What is counted, like `vCPU`."""


class QuotaNeed(TypedDict):
    """What a machine counts towards a limit."""

    instance_type: str
    """The smallest machine."""
    market: Market
    """`on_demand` or `spot`."""
    code: str
    """The limit that counts it."""
    amount: float
    """How much it counts."""
    unit: str
    """Its unit, like `vCPU` or `GPU`."""
    vcpus: int
    """Its processors."""


class QuotaDocument(OfAccount, IncompleteAnswer):
    """An account's limits on machines with GPUs."""

    quotas: list[QuotaLimit]
    """The limits on machines with GPUs."""
    needs: list[QuotaNeed]
    """With `--gpu`: what the smallest machine with it counts, per market."""


class PlannedQuotaIncrease(OfAccount):
    """A higher limit that is about to be requested."""

    region: str
    """Where."""
    code: str
    """The limit, as the provider calls it."""
    requested: float
    """What was requested."""
    current: QuotaLimit | None
    """The present limit; null where that is not known."""


class QuotaRequestDocument(PlannedQuotaIncrease):
    """A request for a higher limit."""

    id: str
    """The provider's id of the request."""
