"""The user data of an EC2 machine: its boot data, as small as EC2 wants them. Pure."""

from __future__ import annotations

import gzip

from cloudgpu.core.model.launch import Attempt
from cloudgpu.providers.aws.request import call_of
from cloudgpu.providers.aws.translate import USER
from cloudgpu.providers.machine import bootdata

LIMIT = 16_384  # bytes before they are encoded: EC2's user guide, "Run commands when you launch an EC2 instance"


def given_of(attempt: Attempt) -> bootdata.Given:
    """Return what EC2 says of the attempt's machine: it reports by an instance profile."""
    call = call_of(attempt)
    reports = bool(call.profile)
    return bootdata.Given("aws", ssh_port=call.ssh_port, reports=reports, volume=call.volume or "", user=USER)


def user_data(attempt: Attempt) -> bytes:
    """Return the user data, the same bytes for the same attempt; raise InvalidRequest when they are too large."""
    text = bootdata.user_data(attempt, given_of(attempt))
    packed = gzip.compress(text.encode("ascii"), compresslevel=9, mtime=0)
    if len(packed) <= LIMIT:
        return packed
    raise bootdata.too_large(attempt, len(packed), LIMIT, "EC2")
