"""Trains at three learning rates side by side, each as a job on a machine of its own, under a budget.

    python sweep_jobs.py [BUDGET_USD]

Prints what each has reached and what all have cost. A job that the budget does not admit launches nothing. Exit code 1
where a job has not succeeded.
"""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import cloudgpu

if TYPE_CHECKING:
    from cloudgpu.views.documents.jobs.jobs import JobDocument

RATES = ("0.01", "0.1", "0.4")
PROJECT = "sweep-jobs"
WORK = Path("sweep")  # the directory that travels: your own
TRAIN = """
import json, os, pathlib, sys

rate, weight = float(sys.argv[1]), 0.0
for step in range(50):
    weight -= rate * 2 * (weight - 3)
    print(f"step {step}: loss {(weight - 3) ** 2:.3g}")
results = pathlib.Path(os.environ["CLOUDGPU_RESULTS"])
results.mkdir(parents=True, exist_ok=True)
results.joinpath("loss.json").write_text(json.dumps((weight - 3) ** 2))
"""


def submit(gpu: cloudgpu.Cloudgpu, rate: str) -> str:
    """Ask for one job, which launches its machine later; return its id. For a GPU: gpu="v100", spot=True."""
    command = ["python3", "train.py", rate]
    name = f"lr-{rate.replace('.', '-')}"
    return gpu.jobs.submit(command, name=name, workdir=WORK, project=PROJECT, timeout="10m")["id"]


def row(job: JobDocument) -> str:
    """Return a job as a line of the table."""
    loss = "-"
    if job["state"] == "succeeded" and job["results"] is not None:
        loss = f"{json.loads(Path(job['results']['directory'], 'loss.json').read_text()):.3g}"
    return f"{job['name']:10} {job['state']:13} {loss:>9} {Decimal(job['spent_usd']):9.6f} {job['why']}".rstrip()


def main(budget_usd: str = "5") -> int:
    """Sweep over the learning rates; return the exit code."""
    WORK.mkdir(exist_ok=True)
    (WORK / "train.py").write_text(TRAIN)
    with cloudgpu.connect() as gpu:
        gpu.money.set_budget("sweep-jobs", budget_usd, "total", scope=f"project={PROJECT}", replace=True)
        jobs = gpu.jobs.wait(*[submit(gpu, rate) for rate in RATES])
        print(f"{'job':10} {'state':13} {'loss':>9} {'USD':>9}")
        for job in jobs:
            print(row(job))
        spent = {group["group"]: group["usd"] for group in gpu.money.cost(by="project")["groups"]}
        print(f"{PROJECT} has cost {spent.get(PROJECT, '0')} USD")
    return 0 if all(job["state"] == "succeeded" for job in jobs) else 1


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:2]))
    except cloudgpu.CloudgpuError as error:
        print(f"error: {error.message} {error.next or ''}", file=sys.stderr)
        sys.exit(error.exit_code)
