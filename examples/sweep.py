"""Runs one command on three GPUs, one after the other, under a budget, and says what that has cost.

    python sweep.py [BUDGET_USD]

Each machine is ended before the next one is launched. What the budget does not admit is not launched: exit code 3.
"""

from __future__ import annotations

import sys

import cloudgpu

GPUS = ("t4", "v100", "a100")
COMMAND = ["sh", "-c", "echo trained in $HOME"]  # your own: ["python3", "train.py"]
PROJECT = "sweep"


def launch(gpu: cloudgpu.Cloudgpu, model: str, name: str) -> None:
    """Launch a machine; make the same call once more where its error says that this is safe and may help."""
    for is_last in (False, True):
        try:
            gpu.machines.up(gpu=model, name=name, project=PROJECT, lease="1h", renew_until="1h")
        except cloudgpu.CloudgpuError as error:
            if is_last or not error.retryable:
                raise
        else:
            return


def run(gpu: cloudgpu.Cloudgpu, model: str) -> str:
    """Return what the command printed on a machine with this GPU. The machine is ended, whatever happens."""
    name = f"sweep-{model}"
    try:
        launch(gpu, model, name)
        done = gpu.machines.exec(name, COMMAND)
    finally:
        if any(machine["name"] == name for machine in gpu.machines.ls()["machines"]):
            gpu.machines.down(name)  # returns when the end is proved, and raises when it cannot be
    if done.status != 0:
        return f"failed with {done.status}: {done.stderr.decode().strip()}"
    return done.stdout.decode().strip()


def main(budget_usd: str = "20") -> int:
    """Sweep over the GPUs; return the exit code."""
    with cloudgpu.connect() as gpu:
        gpu.money.set_budget("sweep", budget_usd, "total", scope=f"project={PROJECT}", replace=True)
        for model in GPUS:
            try:
                print(f"{model}: {run(gpu, model)}")
            except (cloudgpu.NoCapacity, cloudgpu.QuotaExceeded) as error:
                print(f"{model}: skipped. {error.message}")
        spent = {group["group"]: group["usd"] for group in gpu.money.cost(by="project")["groups"]}
        print(f"{PROJECT} has cost {spent.get(PROJECT, '0')} USD")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:2]))
    except cloudgpu.CloudgpuError as error:
        print(f"error: {error.message} {error.next or ''}", file=sys.stderr)
        sys.exit(error.exit_code)
