"""What whoever waits for a read knows while the read itself waits before it asks again, as a cloud has told it to."""

from __future__ import annotations

from cloudgpu import parallel
from cloudgpu.parallel import Pool

SILENT_S = 1.0  # how long a read may be silent here


class Waits:
    """Stands for a pause; keeps how long each was, and whether the read would have been given up before its end."""

    def __init__(self):
        self.all, self.given_up = [], []

    def __call__(self, seconds):
        self.all.append(seconds)
        if parallel._THIS_THREAD.part._remaining_s(SILENT_S, 1e6) <= seconds:
            self.given_up.append(seconds)


def in_a_part(call):
    """Return what a call returns, or raise its error, made as one that somebody listens to."""
    with Pool(1) as pool:
        return pool.submit(call).result()
