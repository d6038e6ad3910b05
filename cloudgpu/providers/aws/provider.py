"""The aws provider: GPU machines on Amazon EC2. Each method is one line into the module that does it."""

from __future__ import annotations

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
