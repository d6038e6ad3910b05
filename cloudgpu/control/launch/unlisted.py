"""Says why nothing fits at a provider that the catalogue does not list (local, ssh): by what it has itself."""

from __future__ import annotations

from collections.abc import Sequence

from cloudgpu import catalog
from cloudgpu.core.catalog.catalog import meant_by
from cloudgpu.core.catalog.matching import same_gpu
from cloudgpu.core.model.machine import HERE
from cloudgpu.core.model.offers import Available, Requirements
from cloudgpu.core.values.naming import did_you_mean, near
from cloudgpu.errors import CloudgpuError, InvalidRequest
from cloudgpu.providers.base import Provider

NAMED = 4  # things that a sentence names before it ends


def everything(provider: Provider, want: Requirements) -> Sequence[Available]:
    """Return all that a provider has on the wanted market. Asks it once; nothing where a part does not answer."""
    try:
        stock = provider.available(Requirements(market=want.market, or_on_demand=want.or_on_demand))
    except CloudgpuError:
        return ()
    return () if stock.unanswered else stock.items


def misspelt(provider: Provider, want: Requirements, has: Sequence[Available]) -> InvalidRequest | None:
    """Return the fault of a word that names nothing, None where it names something that is not to be had there now.

    A machine of one's own is never sold out, so what is not in `has` does not exist. Another provider may leave out
    what it has no capacity for: there a name counts as misspelt only where one that it has is near.
    """
    words = (
        ("--instance-type", "instance type", want.instance_type, {item.instance_type for item in has}),
        ("--region", "region", want.region, {item.region for item in has}),
        ("--zone", "zone", want.zone, {item.zone for item in has}),
    )
    for option, what, word, there in words:
        if word is None or word in there or not there:
            continue
        meant = near(word, there)
        if meant or provider.kind in HERE:
            return _fault(provider, option, what, word, meant, sorted(there))
    return _no_gpu(provider, want, has)


def _no_gpu(provider: Provider, want: Requirements, has: Sequence[Available]) -> InvalidRequest | None:
    """Return the fault of a GPU that neither the provider nor the catalogue knows."""
    own = {gpu.name.lower() for item in has for gpu in item.accelerators}
    if want.gpu is None or any(same_gpu(name, want.gpu) for name in own):
        return None
    try:
        meant_by(want.gpu, catalog.gpus())
    except InvalidRequest as error:
        meant = near(want.gpu, own)
        return _fault(provider, "--gpu", "GPU", want.gpu, meant, ()) if meant else error
    return None


def _fault(
    provider: Provider, option: str, what: str, word: str, meant: str | None, there: Sequence[str]
) -> InvalidRequest:
    return InvalidRequest(
        f"Account {provider.account} has no {what} {word!r}" + did_you_mean(meant, "."),
        field=option,
        value=word,
        next=f"Use {option} {meant}." if meant else f"It has: {', '.join(there[:NAMED])}. Or drop {option}.",
    )
