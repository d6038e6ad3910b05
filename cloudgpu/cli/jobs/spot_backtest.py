"""`cloudgpu spot backtest`: spot policies on recorded availability, next to the exact optimum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli.common import Format, Output, emit, open_session
from cloudgpu.cli.render import paragraph, table

if TYPE_CHECKING:
    from cloudgpu.views.documents.jobs.spot import SpotBacktestDocument, SpotPolicyResult


def command(
    *,
    traces: Annotated[
        list[str] | None,
        typer.Option(
            "--traces", metavar="DIR|FILE", help="Traces of availability; may be repeated. Without: the ledger's own."
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", metavar="NAME", help="Only this spot policy; may be repeated."),
    ] = None,
    work: Annotated[str, typer.Option("--work", metavar="TIME", help="The job's work on the machine.")] = "48h",
    deadline: Annotated[
        str, typer.Option("--deadline", metavar="TIME", help="From the begin of the job to its deadline.")
    ] = "60h",
    changeover: Annotated[
        str, typer.Option("--changeover", metavar="TIME", help="Launch, boot, setup and restore after each start.")
    ] = "12m",
    tick: Annotated[str, typer.Option("--tick", metavar="TIME", help="The time between two decisions.")] = "10m",
    price_spot: Annotated[
        float | None, typer.Option("--price-spot", metavar="PRICE", help="An hour on spot. Without: 1.")
    ] = None,
    price_on_demand: Annotated[
        float | None,
        typer.Option("--price-on-demand", metavar="PRICE", help="An hour on demand. Without: three times spot."),
    ] = None,
    starts: Annotated[int, typer.Option("--starts", metavar="N", help="Random starts in each trace.")] = 20,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Picks the starts; the same ones each time.")] = 0,
    together: Annotated[
        bool, typer.Option("--together", help="The traces are zones of one job, which may move between them.")
    ] = False,
    output: Output = Format.TEXT,
) -> None:
    """Test spot policies on recorded availability: what jobs cost next to the exact optimum, and missed deadlines.

    Each policy runs the same job from the same random starts, within the safety net. The optimum knows the future: no
    policy can be cheaper. Traces are files like {"metadata": {"gap_seconds": 600}, "data": [1, 0]}, 1 for available.
    Without --traces, the ledger's own history of spot machines is used. Contacts no cloud.
    """
    from cloudgpu.cli.progress import show_detail
    from cloudgpu.control.spot.backtest import SpotBacktestOptions, spot_backtest_document

    def progress(stage: str, done: int, total: int) -> None:
        show_detail(f"{stage}, {done} of {total} runs")

    options = SpotBacktestOptions(
        traces=traces or (),
        policies=policy or (),
        work=work,
        deadline=deadline,
        changeover=changeover,
        tick=tick,
        price_spot=price_spot,
        price_on_demand=price_on_demand,
        starts=starts,
        seed=seed,
        together=together,
    )
    document = spot_backtest_document(options, open_session, progress)
    emit(output, document, spot_backtest_text(document))


def spot_backtest_text(document: SpotBacktestDocument) -> str:
    """Return the traces, the table of policies and the timeline of one run, in 80 columns."""
    from cloudgpu.cli.jobs.spot_timeline import timeline_text

    return "\n\n".join(
        [
            paragraph(_headline(document)),
            _policies_table(document),
            paragraph(_explanation(document)),
            timeline_text(document),
        ]
    )


def _headline(document: SpotBacktestDocument) -> str:
    job_text = f"{_hours_text(document['work_h'])} of work, due in {_hours_text(document['deadline_h'])}"
    changeover_text = f"a changeover of {_hours_text(document['changeover_h'])} after each start, a decision every "
    prices = "An hour of spot costs 1, an hour on demand 3."
    if document["priced"]:
        prices = f"Spot costs {_cost_text(document, document['price_spot'])} an hour, on demand "
        prices += f"{_cost_text(document, document['price_on_demand'])}."
    return f"{job_text}; {changeover_text}{_hours_text(document['tick_h'])}. {prices} {_traces_text(document)}"


def _traces_text(document: SpotBacktestDocument) -> str:
    tested = [trace for trace in document["traces"] if trace["tested"] or document["together"]]
    shares = sorted(trace["available_share"] for trace in tested)
    share_text = f"{shares[0]:.0%}" if shares[0] == shares[-1] else f"{shares[0]:.0%} to {shares[-1]:.0%}"
    runs_noun = "run" if document["runs"] == 1 else "runs"
    zones_text = "as zones of one job" if document["together"] and tested[1:] else "each by itself"
    singular, plural = ("place", "places") if document["from_ledger"] else ("trace", "traces")
    places_text = f"in one {singular}" if not tested[1:] else f"over {len(tested)} {plural}, {zones_text}"
    places_text += " that this ledger has seen" * document["from_ledger"]
    too_short = len(document["traces"]) - len(tested)
    left_out = f" {too_short} shorter than the deadline: left out." if too_short else ""
    return f"{document['runs']} {runs_noun} {places_text}, with spot {share_text} of the time.{left_out}"


def _policies_table(document: SpotBacktestDocument) -> str:
    optimum = document["optimum"]
    rows = [[*_policy_row(document, policy)] for policy in document["policies"]]
    rows.append(
        ["optimum", _cost_text(document, optimum["cost"]), "", "", "", f"{optimum['on_demand_hours']:.1f}", "", ""]
    )
    headings = ["POLICY", "COST", "HIGH", "ABOVE BEST", "HIGH", "ON DEMAND", "STARTS", "MISSED"]
    return table(rows, headings, right=range(1, 8))


def _policy_row(document: SpotBacktestDocument, result: SpotPolicyResult) -> list[str]:
    return [
        result["policy"],
        _cost_text(document, result["cost"]["mean"]),
        _cost_text(document, result["cost_p95"]),
        f"{result['above_optimum']['mean']:.1%}",
        f"{result['above_optimum_p95']:.1%}",
        f"{result['on_demand_hours']:.1f}",
        f"{result['starts']:.1f}",
        str(result["missed"]),
    ]


def _explanation(document: SpotBacktestDocument) -> str:
    closest = min(document["policies"], key=lambda result: result["above_optimum"]["mean"])
    sentence = (
        f"On demand alone costs {_cost_text(document, document['on_demand_only'])}; ABOVE BEST is a share of that. "
        "95 runs in 100 stay below HIGH. ON DEMAND is in hours."
    )
    above_optimum = closest["above_optimum"]
    if above_optimum["low"] is not None and above_optimum["high"] is not None:
        sentence += (
            f" {closest['policy']} comes closest: {above_optimum['mean']:.1%} above the optimum, with 95% confidence "
        )
        sentence += f"{above_optimum['low']:.1%} to {above_optimum['high']:.1%}."
    return sentence


def _cost_text(document: SpotBacktestDocument, amount: float) -> str:
    return f"{'$' if document['priced'] else ''}{amount:,.2f}"


def _hours_text(hours: float) -> str:
    from cloudgpu.core.values.times import duration_text

    return f"{hours:g}h" if hours.is_integer() else duration_text(round(hours * 3600))
