"""The aws provider: GPU machines on Amazon EC2. Each method is one line into the module that does it."""

from __future__ import annotations

from collections.abc import Mapping

from cloudgpu.providers.aws.client import KIND, Aws
from cloudgpu.providers.base import ProviderSettings


def make(settings: ProviderSettings) -> AwsProvider:
    """Return the provider of one account; raise InvalidRequest for a bad setting. Asks nothing over the network."""
    return AwsProvider(settings)


class AwsProvider:
    """Implements Provider and the abilities named in docs/provider-author.md."""

    kind = KIND

    def __init__(self, settings: ProviderSettings) -> None:
        self.account = settings.account
        self._aws = Aws(settings)

    def allowed(self, id: str) -> Mapping[str, str]:  # noqa: A002
        """Return the CIDR per label that may reach SSH; empty where somebody else's security group decides."""
        from cloudgpu.providers.aws import access

        return access.allowed(self._aws, id)

    def allow(self, id: str, label: str, cidr: str | None) -> None:  # noqa: A002
        """Let this CIDR in under this label in place of the one before; None takes it out."""
        from cloudgpu.providers.aws import access

        access.allow(self._aws, id, label, cidr)
