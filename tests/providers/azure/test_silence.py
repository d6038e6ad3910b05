"""An endpoint of Azure that drops packets: how long a read of it takes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from azure.core.exceptions import ServiceRequestError

from cloudgpu.errors import AnswerTimeout
from cloudgpu.providers.azure.client import Transport
from cloudgpu.providers.patience import DEFAULT_S, CallTimeouts


def test_a_read_that_is_not_even_connected_ends_within_its_time(account):
    seconds = [0.0]
    azure = account()
    azure.timeouts = CallTimeouts(monotonic=lambda: seconds[0])

    def wait(more):
        seconds[0] += more

    def drop(_request, *, connection_timeout, **_how):
        wait(connection_timeout)
        raise ServiceRequestError("timed out")

    nothing = SimpleNamespace(send=drop, open=lambda: None, close=lambda: None)
    azure._transport = Transport(nothing, wait, azure.timeouts)
    with pytest.raises(AnswerTimeout, match="did not answer"), azure.calling("read"):
        list(azure.compute.virtual_machines.list_all())
    assert seconds[0] <= DEFAULT_S
