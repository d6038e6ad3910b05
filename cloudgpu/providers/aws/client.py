"""Talks to AWS: one boto3 session per account, one client per service and region, errors in our own words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from cloudgpu.core.facts import Unanswered
from cloudgpu.errors import CloudgpuError
from cloudgpu.providers.aws.errors import translated
from cloudgpu.providers.aws.options import AwsOptions, aws_options
from cloudgpu.providers.base import ProviderSettings

if TYPE_CHECKING:
    from datetime import datetime

KIND = "aws"
AT_ONCE = 32  # regions asked side by side
ATTEMPTS = 5  # sends of a read, or of a call that is harmless when repeated
CONNECT_S, READ_S = 10, 60
Answer = TypeVar("Answer")


class Aws:
    """One account: its clients, its regions, its clock. Makes no network call until it is asked."""

    def __init__(self, settings: ProviderSettings) -> None:
        self.account = settings.account
        self.options: AwsOptions = aws_options(settings.account, settings.options)
        self.clock: Callable[[], datetime] = settings.clock
        self.pause = settings.pause
        self.home = settings.home
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[tuple[str, str, int], Any] = {}
        self._regions: tuple[str, ...] | None = None

    def client(self, service: str, region: str, *, sends: int = ATTEMPTS) -> Any:
        """Return the client of a service in a region, made once; it sends a call up to `sends` times."""
        key = (service, region, sends)
        with self._lock:
            if key not in self._clients:
                self._clients[key] = self._made(service, region, sends)
            return self._clients[key]

    def _made(self, service: str, region: str, sends: int) -> Any:
        import boto3
        from botocore.config import Config

        if self._session is None:
            with self.said("credentials", region):
                self._session = boto3.Session(profile_name=self.options.profile)
        config = Config(
            retries={"mode": "standard", "total_max_attempts": sends},
            connect_timeout=CONNECT_S,
            read_timeout=READ_S,
            max_pool_connections=AT_ONCE,
        )
        return self._session.client(service, region_name=region, config=config)

    def ec2(self, region: str) -> Any:
        """Return the EC2 client of a region."""
        return self.client("ec2", region)

    def regions(self) -> tuple[str, ...]:
        """Return the regions that this account uses: those of the settings, else all that are enabled.

        One call (DescribeRegions) the first time, where the settings name none.
        """
        if self._regions is None:
            self._regions = self.options.regions or self._enabled()
        return self._regions

    def _enabled(self) -> tuple[str, ...]:
        home = self.options.home_region
        with self.said("DescribeRegions", home):
            answer = self.ec2(home).describe_regions()
        names = sorted(region["RegionName"] for region in answer["Regions"])
        return tuple(name for name in names if name not in self.options.exclude_regions)

    def each(
        self, regions: Sequence[str], ask: Callable[[str], Answer]
    ) -> tuple[dict[str, Answer], tuple[Unanswered, ...]]:
        """Ask each region, side by side; return the answers by region and those that did not answer.

        Raises the first error when no region answered.
        """
        with ThreadPoolExecutor(max_workers=max(1, min(AT_ONCE, len(regions)))) as pool:
            outcomes = dict(zip(regions, pool.map(lambda region: _tried(ask, region), regions), strict=True))
        answers = {region: found for region, found in outcomes.items() if not isinstance(found, CloudgpuError)}
        faults = {region: fault for region, fault in outcomes.items() if isinstance(fault, CloudgpuError)}
        if faults and not answers:
            raise next(iter(faults.values()))
        silent = tuple(Unanswered(region, fault.message) for region, fault in faults.items())
        return answers, silent  # type: ignore[return-value]  # the faults were just taken out

    @contextmanager
    def said(self, action: str, region: str, *, value: str | None = None) -> Iterator[None]:
        """Turn what boto3 raises inside into our own errors; `action` and `region` are named in them."""
        try:
            yield
        except CloudgpuError:
            raise
        except Exception as error:
            found = translated(error, action=action, region=region, account=self.account, value=value)
            if found is None:
                raise
            raise found from error


def _tried(ask: Callable[[str], Answer], region: str) -> Answer | CloudgpuError:
    try:
        return ask(region)
    except CloudgpuError as fault:
        return fault


def pages(client: Any, operation: str, **asked: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the pages of a paginated call."""
    yield from client.get_paginator(operation).paginate(**asked)
