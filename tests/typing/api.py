"""A user's program: type-checked by a test as strictly as mypy can, and never run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import assert_type

import cloudgpu
from cloudgpu import Cloudgpu, CloudgpuError, InvalidRequest, NoCapacity
from cloudgpu.access.jupyter.notebook import CellResult
from cloudgpu.access.ssh.connection import Completed
from cloudgpu.control.api.jobs import JobOutput
from cloudgpu.views.documents.automation.backtest import BacktestDocument
from cloudgpu.views.documents.automation.reap import ReapDocument
from cloudgpu.views.documents.jobs.jobs import CancelDocument, JobDocument, JobExit, JobPlan, JobsDocument
from cloudgpu.views.documents.machines.access import CopyDocument, NetworkBenchDocument
from cloudgpu.views.documents.machines.ended import DownDocument
from cloudgpu.views.documents.machines.machines import (
    InterruptionDocument,
    LsDocument,
    MachineDocument,
    PlannedUpDocument,
    ShownDocument,
    UpDocument,
)
from cloudgpu.views.documents.market.catalog import CatalogItemDocument
from cloudgpu.views.documents.market.market import QuotaRequestDocument
from cloudgpu.views.documents.money.budgets import BudgetSetDocument
from cloudgpu.views.documents.money.compare import CompareDocument
from cloudgpu.views.documents.money.cost import CostDocument
from cloudgpu.views.documents.money.reconcile import ExportDocument, ReconcileDocument
from cloudgpu.views.documents.money.rent_or_buy import RentOrBuyDocument
from cloudgpu.views.documents.parts import Price
from cloudgpu.views.documents.setup.doctor import DoctorDocument
from cloudgpu.views.documents.setup.ledger import VerifyDocument


def train(gpu: Cloudgpu, scripts: Sequence[Path]) -> bytes:
    """Use every method as a program would."""
    assert_type(gpu.machines.plan(gpu="v100", spot=True, max_price=Decimal("1.5")), PlannedUpDocument)
    assert_type(
        gpu.machines.up(gpu="a100:8", lease=timedelta(hours=8), renew_until="3d", max_price=1.5, wait=False), UpDocument
    )
    assert_type(gpu.machines.cp(scripts, "trial:"), CopyDocument)
    assert_type(gpu.machines.cp("trial:out.csv", Path()), CopyDocument)
    done = gpu.machines.exec("trial", ["python3", "train.py"], input=b"seed")
    assert_type(done.status, int)
    assert_type(gpu.machines.exec_all("train", ["hostname"]), Mapping[str, Completed | CloudgpuError])
    assert_type(gpu.machines.bench_network("train", expected=10), NetworkBenchDocument)
    with gpu.machines.tunnel("trial", port=9999) as tunnel:
        assert_type(tunnel.port, int)
        assert_type(tunnel.url, str)
        assert_type(tunnel.run("1 + 1"), CellResult)
    assert_type(gpu.machines.extend("trial", "2h"), MachineDocument)
    assert_type(gpu.machines.hold("trial", datetime(2030, 1, 1, tzinfo=UTC)), MachineDocument)
    assert_type(gpu.machines.hold("trial", release=True), MachineDocument)
    assert_type(gpu.machines.stop(), MachineDocument)
    assert_type(gpu.machines.start("trial", lease=timedelta(hours=1)), MachineDocument)
    assert_type(gpu.machines.rehearse("trial"), InterruptionDocument)
    assert_type(gpu.machines.ls(refresh=True, all=True), LsDocument)
    assert_type(gpu.machines.show(history=True, why=True), ShownDocument)
    assert_type(
        gpu.automation.backtest(Path("strict.yaml"), since=timedelta(days=7), machine="trial"), BacktestDocument
    )
    assert_type(gpu.money.cost(), CostDocument)
    assert_type(gpu.money.export("bill.csv", since="month"), ExportDocument)
    assert_type(gpu.money.reconcile(Path("aws.csv"), "aws"), ReconcileDocument)
    assert_type(gpu.money.verify(), VerifyDocument)
    assert_type(gpu.automation.doctor(), DoctorDocument)
    assert_type(gpu.machines.down("trial", "other"), DownDocument)
    return done.stdout


def advised(gpu: Cloudgpu) -> None:
    """Use what differs from one call to the next in its options or in what it returns."""
    assert_type(
        gpu.money.set_budget("lab", Decimal(300), "month", scope="project=nlp", replace=True), BudgetSetDocument
    )
    assert_type(gpu.automation.reap(nightly=True), ReapDocument)
    assert_type(gpu.advice.prices("g5.xlarge", history=True), CatalogItemDocument)
    assert_type(gpu.advice.request_quota("enough", gpu="v100", count=2), QuotaRequestDocument)
    compared = gpu.advice.compare(gpu="v100", utilization="15%")
    if compared["mode"] == "calculator":
        assert_type(compared, RentOrBuyDocument)
    else:
        assert_type(compared, CompareDocument)


def swept(gpu: Cloudgpu, log: Path) -> list[str]:
    """Run jobs, one in front and several side by side, and read what they have written."""
    command = ["python3", "train.py"]
    planned = gpu.jobs.plan(command, gpu="v100", timeout=timedelta(hours=2), max_cost=Decimal(10), env={"LR": "0.1"})
    assert_type(planned["plan"], JobPlan | None)
    with log.open("wb") as file:
        done = gpu.jobs.run(command, name="lr-1", gpu="v100", stdout=file, secret=["HF_TOKEN"], port=[6006])
    assert_type(done, JobDocument)
    ids = [gpu.jobs.submit([*command, rate], workdir=Path(), on="desk")["id"] for rate in ("0.1", "0.2")]
    jobs = gpu.jobs.wait(*ids, timeout="1h")
    assert_type(jobs, list[JobDocument])
    assert_type(gpu.jobs.list(ended=True, mine=True), JobsDocument)
    assert_type(gpu.jobs.logs("lr-1", since=timedelta(minutes=10), follow=True), JobOutput)
    assert_type(gpu.jobs.logs("lr-1").stdout, bytes)
    assert_type(gpu.jobs.cancel("lr-1"), CancelDocument)
    assert_type(gpu.jobs.show("lr-1")["exit"], JobExit | None)
    return [job["name"] for job in jobs if job["living"]]


def names_of_those_that_cost(document: LsDocument) -> list[str]:
    """Read a document by its type."""
    costly = [one for one in document["machines"] if one["price"] is not None and one["billed"]]
    assert_type(costly[0]["price"], Price | None)
    assert_type(costly[0]["spent_usd"], str | None)
    return [one["name"] for one in costly]


def careful() -> int:
    """Meet every kind of fault by its class."""
    try:
        with cloudgpu.connect(home=Path.home() / "gpu", tell=print, clock=lambda: datetime.now(UTC)) as gpu:
            train(gpu, [])
    except NoCapacity as fault:
        assert_type(fault.next, str | None)
        assert_type(fault.retryable, bool)
    except InvalidRequest as fault:
        assert_type(fault.field, str | None)
    except CloudgpuError as fault:
        return fault.exit_code
    return 0


# What is wrong is noticed: each of these has to need its comment, or mypy complains of the comment.
def wrong(gpu: Cloudgpu) -> None:
    """Make the mistakes that a checker is there for."""
    gpu.machines.up(gpus="v100")  # type: ignore[call-arg]
    gpu.machines.up(lease=8)  # type: ignore[arg-type]
    gpu.machines.exec("trial", 7)  # type: ignore[arg-type]
    gpu.launch()  # type: ignore[attr-defined]
    gpu.machines.ls()["machine"]  # type: ignore[typeddict-item]
    gpu.machines.stop()["spent"]  # type: ignore[typeddict-item]
    gpu.up(gpu="v100")  # type: ignore[attr-defined]
    gpu.money.set_budget("lab", 300, "month", scop="all")  # type: ignore[call-arg]
    gpu.jobs.run(["true"], gpus="v100")  # type: ignore[call-arg]
    gpu.jobs.run(["true"], argv=["false"])  # type: ignore[misc]
    gpu.jobs.submit(["true"], timeout=8)  # type: ignore[arg-type]
    gpu.run(["true"])  # type: ignore[attr-defined]
    cloudgpu.conect()  # type: ignore[attr-defined]
