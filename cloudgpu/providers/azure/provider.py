"""The azure provider: GPU machines on Microsoft Azure. Each method is one line into the module that does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from cloudgpu.core.facts import Attempt, Available, Instance, LaunchRequest, Listing, Price, Stock, Want
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.azure.client import KIND, Azure
from cloudgpu.providers.base import ProviderSettings, Resolved, TokenRule


def make(settings: ProviderSettings) -> AzureProvider:
    """Return the provider of one account; raise InvalidRequest for a bad setting. Asks nothing over the network."""
    return AzureProvider(settings)


class AzureProvider:
    """Implements Provider, and the abilities of providers/base.py that fit Azure.

    Not HasPriceHistory: the retail price list tells the spot price of now, and none of before.
    """

    kind = KIND
    runs_parts = frozenset({"cloud_init", "disk_gb", "image", "on_start", "packages"})
    token_rule = TokenRule(
        lifetime=timedelta(hours=23),
        listing_proves_after=timedelta(minutes=10),
        source="Azure Resource Manager, Resource Provider Contract: a PUT creates or replaces the resource of that "
        "name, so sending it again makes no second one. Names follow from the token; a machine that was "
        "deleted meanwhile would be made again, so a token is used for a day and no longer. That a listing shows a new machine within "
        "ten minutes is unverified",
    )

    def __init__(self, settings: ProviderSettings) -> None:
        self.account = settings.account
        self._azure = Azure(settings)

    def available(self, want: Want) -> Stock:
        """Return what Azure offers of what fits, by region and market, and the regions that did not answer."""
        from cloudgpu.providers.azure import stock

        return stock.available(self._azure, want)

    def prices(self, offers: Sequence[Available]) -> Sequence[Price | None]:
        """Return one price per offer, by the dated list; asked for what that lacks."""
        from cloudgpu.providers.azure import prices

        return prices.prices(self._azure, offers)

    def resolve(self, request: LaunchRequest, item: Available) -> Resolved:
        """Look up what the exact call needs: image, network, quota, volume. Reads only."""
        from cloudgpu.providers.azure import resolve

        return resolve.resolve(self._azure, request, item)

    def launch(self, attempt: Attempt, *, deadline: datetime) -> Instance:
        """Launch the machine of an attempt in a group of its own, or return the one that its token has made already."""
        from cloudgpu.providers.azure import launch

        return launch.launch(self._azure, attempt, deadline=deadline)

    def get(self, id: str) -> Instance:  # noqa: A002
        """Return the machine now; raise InstanceNotFound when Azure has neither it nor its group."""
        from cloudgpu.providers.azure import listing

        return listing.get(self._azure, id)

    def list(self) -> Listing:
        """Return every machine with a cloudgpu-id tag in the subscription."""
        from cloudgpu.providers.azure import listing

        return listing.listed(self._azure)

    def terminate(self, id: str) -> None:  # noqa: A002
        """Ask to delete the machine with its whole group; an unknown id is no error."""
        from cloudgpu.providers.azure import power

        power.terminate(self._azure, id)

    def stop(self, id: str) -> None:  # noqa: A002
        """Ask to deallocate the machine: to shut it down alone does not end what it costs."""
        from cloudgpu.providers.azure import power

        power.stop(self._azure, id)

    def stop_many(self, ids: Sequence[str]) -> Mapping[str, CloudgpuError]:
        """Ask to deallocate these machines, side by side; return those that Azure refused."""
        from cloudgpu.providers.azure import many

        return many.stop_many(self._azure, ids)

    def get_many(self, ids: Sequence[str]) -> Mapping[str, Instance | CloudgpuError]:
        """Return each machine now, or why not: by the two listings."""
        from cloudgpu.providers.azure import many

        return many.get_many(self._azure, ids)

    def start(self, id: str) -> None:  # noqa: A002
        """Ask to start a machine, and wait until Azure has found the capacity; one that runs is left alone."""
        from cloudgpu.providers.azure import power

        power.start(self._azure, id)

    def tag(self, id: str, tags: Mapping[str, str]) -> None:  # noqa: A002
        """Set these tags on the machine and leave every other alone."""
        from cloudgpu.providers.azure import power

        power.tag(self._azure, id, tags)

    def allowed(self, id: str) -> Mapping[str, str]:  # noqa: A002
        """Return the CIDR per label that may reach SSH; empty where somebody else's security group decides."""
        from cloudgpu.providers.azure import access

        return access.allowed(self._azure, id)

    def allow(self, id: str, label: str, cidr: str | None) -> None:  # noqa: A002
        """Let this CIDR in under this label in place of the one before; None takes it out."""
        from cloudgpu.providers.azure import access

        access.allow(self._azure, id, label, cidr)
