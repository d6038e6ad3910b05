"""Borrows a box from the shelf, says who has the others where none is free, and returns it."""

from __future__ import annotations

import sys

import cloudgpu


def main() -> int:
    """Borrow, work, return; return the exit code."""
    with cloudgpu.connect() as gpu:
        try:
            # Nothing ends a box but the reaper, and the end of this program: no scheduled run is asked for.
            launched = gpu.machines.up(provider="shelf", name="borrowed", lease="2h", wait=False, no_guard=True)
            box = launched["machine"]
        except cloudgpu.NoCapacity as error:
            print(error.message)
            for machine in gpu.machines.ls()["machines"]:
                print(f"{machine['owner']} has one until {machine['expires']}")
            return error.exit_code
        print(f"{box['name']} is {box['state']} until {box['expires']}")
        terminated = gpu.machines.down("borrowed")["terminated"]
        print(f"returned: {', '.join(machine['name'] for machine in terminated)}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except cloudgpu.CloudgpuError as error:
        print(f"error: {error.message} {error.next or ''}", file=sys.stderr)
        sys.exit(error.exit_code)
