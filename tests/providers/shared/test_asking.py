"""Who is waited for: a part that goes on answering is read to its end, however long that takes."""

from __future__ import annotations

import threading

from cloudgpu.parallel import send_heartbeat
from cloudgpu.providers.shared.calls import gather

SILENT_S = 0.15


def test_a_part_that_goes_on_answering_is_read_to_its_end():
    def pages(region):
        for _ in range(70):
            threading.Event().wait(SILENT_S / 7)
            send_heartbeat()
        return f"all of {region}"

    assert gather(["north"], pages, answer_timeout_s=SILENT_S, grace=0) == ["all of north"]
