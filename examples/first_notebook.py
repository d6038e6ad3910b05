"""From nothing to a notebook cell and back to nothing, with the library. Needs cloudgpu with the extra `local`.

Run it as it is: the machine is a part of this computer. What it keeps stands where CLOUDGPU_HOME says, as with the
command line. Whatever happens in between, the machine is ended; were this process killed, its lease would end it.
"""

from __future__ import annotations

import sys
from datetime import timedelta

import cloudgpu

CELL = """
import platform
print("hello from a notebook on", platform.system())
"""


NAME = "first-notebook"


def work(gpu: cloudgpu.Cloudgpu) -> str:
    """Run one notebook cell on the machine and return what it said."""
    with gpu.machines.tunnel(NAME) as tunnel:
        result = tunnel.run(CELL)
    if not result.ok:
        raise RuntimeError(result.text)
    return result.text


def main() -> None:
    """Launch, work, say what it has cost, end."""
    with cloudgpu.connect(tell=lambda sentence: print(sentence, file=sys.stderr)) as gpu:
        price = gpu.machines.plan(provider="local", lease="1h")["plan"]["price"]
        print(f"{price['usd_per_hour']} USD an hour, says {price['source']}")
        try:
            gpu.machines.up(provider="local", name=NAME, lease=timedelta(hours=1))
            print(work(gpu).strip())
            cost = gpu.money.cost()
            desktop = cost["desktop"]  # None where its figures cannot be read
            print(f"{cost['total_usd']} USD so far. {desktop['sentence'] if desktop else ''}")
        finally:
            if any(machine["name"] == NAME for machine in gpu.machines.ls()["machines"]):
                gpu.machines.down(NAME)  # returns when the end is proved, and raises when it cannot be


if __name__ == "__main__":
    try:
        main()
    except cloudgpu.CloudgpuError as fault:
        print(f"error: {fault.message} {fault.next or ''}", file=sys.stderr)
        sys.exit(fault.exit_code)
