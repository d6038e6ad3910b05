"""Measures what a spot policy takes: the first `reset` of a fresh process with its import, a decision, and memory.

    python benchmarks/spot/decide.py [POLICY] [--work 48] [--deadline 60] [--changeover 0.2] [--tick 600]

The limits of the project: 2 s and 100 MB to start, 1 ms for a decision.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))


def main() -> None:
    """Print the four figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy", nargs="?", default="adaptive")
    parser.add_argument("--work", type=float, default=48.0, help="hours")
    parser.add_argument("--deadline", type=float, default=60.0, help="hours")
    parser.add_argument("--changeover", type=float, default=0.2, help="hours")
    parser.add_argument("--tick", type=float, default=600.0, help="seconds")
    options = parser.parse_args()
    begun, used = time.perf_counter(), time.process_time()
    from cloudgpu.core.spot import POLICIES
    from cloudgpu.core.spot.simulate import SpotJob, World

    job = SpotJob(options.work, options.deadline, options.tick / 3600, options.changeover)
    policy = POLICIES[options.policy]()
    policy.reset(job.facts())
    print(f"import and reset: {time.perf_counter() - begun:.2f} s, {time.process_time() - used:.2f} s of CPU")
    world, taken, zones = World(job, 1), [], [b"\1\1\1\1\0\0\1\0\0\0" * 2000]
    while not world.done:
        up = world.available(zones)
        state = world.state(up)
        at = time.thread_time()  # CPU: what a busy machine adds is not the policy's
        answer = policy.decide(state)
        taken.append(time.thread_time() - at)
        world.lose(up)
        world.step(answer["action"], answer["zone"])
    ninth = statistics.quantiles(taken, n=100)[98]
    print(f"decision: {statistics.median(taken) * 1e3:.3f} ms, 99 in 100 below {ninth * 1e3:.3f} ms, of {len(taken)}")
    print(f"memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
