"""Report documents written by hand, of the shape that `report.report_document` has: for tests of the page."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

AS_OF = "2026-11-22T09:00:00.000000Z"
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "x" * 300,
    "\u202eevil\u202c",
    "zero\u200bwidth\u2060joiner",
    "</title></svg><script>alert(3)</script>",
    "{{ 7 * 7 }}{% raw %}",
    "]]><!-- --><style>*{display:none}</style>",
    "שלום עולם",
    "javascript:alert(4)//' onload='alert(5)",
)


def total(usd, low=None, high=None, **more):
    known = {"on_demand_usd": None, "savings_usd": None, "without_on_demand": 0, "without_price": 0, "marks": ""}
    sums = {"hours": "0", "usd": usd, "low_usd": low or usd, "high_usd": high or usd, "amount": None}
    return sums | known | {"reasons": []} | more


def projection(at, more, usd, endless=0):
    return {"at": at, "more_usd": more, "low_usd": usd, "usd": usd, "high_usd": usd, "endless": endless}


def projected(usd="0", more="0"):
    return {
        "assumption": "What runs now goes on: a machine until its renew-until, what is kept until the month ends.",
        "end_of_day": projection("2026-11-23T00:00:00.000000Z", more, usd),
        "end_of_month": projection("2026-12-01T00:00:00.000000Z", more, usd),
        "leases_end": projection(None, more, usd, endless=1),
        "renew_until": projection(None, more, usd),
    }


def burn(machines="0", stopped="0", kept="0", without_price=0):
    whole = f"{sum(map(Decimal, (machines, stopped, kept))):f}"
    return {
        "usd_per_hour": whole, "machines_usd_per_hour": machines, "stopped_usd_per_hour": stopped,
        "retained_usd_per_hour": kept, "without_price": without_price,
    }  # fmt: skip


def budget(name, limit, remaining, exhausted_at=None):
    return {"name": name, "limit_usd": limit, "remaining_usd": remaining, "exhausted_at": exhausted_at}


def rest(number, usd, hours=0):
    times = dict.fromkeys(("billed_s", "unknown_s"), hours * 3600) | dict.fromkeys(("gpu_s", "used_s", "idle_s"), 0)
    return {"number": number, "usd": usd, "low_usd": usd, "high_usd": usd, **times}


def stopped(number, usd, hours="0", without_price=0):
    return {"number": number, "usd": usd, "hours": hours, "without_price": without_price}


def nothing_compared(sentence):
    return {"owned": None, "curve": [], "assumptions": [], "sentence": sentence}


def empty(**more):
    """A report of a ledger in which nothing was ever launched."""
    return {
        "as_of": AS_OF,
        "tz": "UTC",
        "since": None,
        "until": None,
        "currency": None,
        "step": "day",
        "about": {"machines": 0, "since": None, "view_as_of": None, "integrity_problem": None},
        "summary": ["Nothing has been launched yet, so nothing was spent."],
        "comparison": nothing_compared("There is nothing to compare yet: this ledger has no machine."),
        "days": [],
        "projects": [],
        "owners": [],
        "total": total("0"),
        "budgets": [],
        "prepaid": [],
        "burn": burn(),
        "projected": projected(),
        "jobs": [],
        "machines": [],
        "machines_left_out": 0,
        "idle": {"low_usd": "0", "usd": "0", "high_usd": "0", "hours": "0", "unknown_hours": "0"},
        "other_machines": rest(0, "0"),
        "named_resources": {"number": 0, "usd": "0", "low_usd": "0", "high_usd": "0"},
        "savings": {
            "stops": stopped(0, "0") | {"by_rule": [], "rule": "From each end to the next start."},
            "spot": {"usd": None, "on_demand_usd": None, "without_on_demand": 0},
        },
        "idle_resources": [],
        "prices": [],
        "unmetered": [],
        "unpriced": [],
    } | more


def machine(name, usd, hours=(1.0, 0.5, 0.25, 0.25), **more):
    gpu, used, idle, unknown = (each * 3600 for each in hours)
    return {
        "id": f"i-{name}", "name": name, "provider": "gcp", "account": "lab", "region": "us-central1",
        "instance_type": "a2-highgpu-1g", "gpu": "A100", "market": "spot", "state": "terminated", "owner": "mia",
        "project": "vision", "usd": usd, "low_usd": usd, "high_usd": usd, "billed_s": gpu + used + idle + unknown,
        "gpu_s": gpu, "used_s": used, "idle_s": idle, "unknown_s": unknown, "idle_usd": "0.25", "marks": "",
        "without_price": 0,
    } | more  # fmt: skip


def day(at, **projects):
    return {"day": at, "usd": f"{sum(map(Decimal, projects.values())):f}", "projects": projects}


def one_hour(**more):
    """A report an hour after the first launch."""
    return (
        empty(
            about={
                "machines": 1,
                "since": "2026-11-22T08:00:00.000000Z",
                "view_as_of": AS_OF,
                "integrity_problem": None,
            },
            summary=["In its first hour one machine has cost $1.10."],
            comparison=nothing_compared("An hour is too short to say when the two meet."),
            days=[day("2026-11-22", vision="1.1")],
            projects=[{"name": "vision", "usd": "1.1", "low_usd": "1.1", "high_usd": "1.1"}],
            total=total("1.1"),
            burn=burn("1.1"),
            machines=[machine("first", "1.1", state="running")],
        )
        | more
    )


def owned(purchase, electricity, hours, desktops=1):
    whole = f"{Decimal(purchase) + Decimal(electricity):f}"
    return {
        "desktops": desktops, "hours": hours, "kwh": "182.5", "purchase_usd": purchase, "electricity_usd": electricity,
        "maintenance_usd": "0", "worth_usd": "0", "total_usd": whole, "utilization_percent": "17.3",
    }  # fmt: skip


def comparison(curve, *, past=None, meets=None):
    """A comparison of the shape that `control.advice.compare.compare_with_desktop` has in its ledger mode."""
    three = ("low", "expected", "high")
    return {
        "mode": "ledger",
        "as_of": AS_OF,
        "since": None,
        "tz": "UTC",
        "currency": None,
        "desktop": {
            "name": "rtx3090", "gpu": "RTX 3090", "gpus": 1, "purchase_usd": "2200", "quoted": None, "life_years": 4,
            "gpu_watts": 350, "system_watts": 100, "idle_watts": 60, "usd_per_kwh": "0.12", "pue": 1.15,
            "maintenance_usd_per_year": "0", "resale_usd": "0", "depreciation": "none", "yearly_loss_percent": 18.5,
            "source": "a price page of a shop", "as_of": "2026-11-20", "changed": [],
        },
        "work": "training",
        "speeds": [
            {"gpu": "A100", "memory_gib": 40.0, "hours": "420.5", "ratio": 0.52, "low": 0.41, "high": 0.6,
             "basis": "a benchmark of training", "fits": False},
            {"gpu": "T4", "memory_gib": 16.0, "hours": "109.75", "ratio": 3.1, "low": 3.1, "high": 3.1,
             "basis": "the peak at fp16", "fits": True},
        ],
        "cloud": {
            "low_usd": "1180.1", "usd": "1234.56", "high_usd": "1302.77",
            "billed_hours": "812.5", "gpu_hours": "530.25",
            "used_hours": "101", "idle_hours": "121.5", "unknown_hours": "59.75", "unpriced": [],
        },
        "owned": {case: owned("2200", electricity, hours) for case, electricity, hours in
                  zip(three, ("71.2", "63.5", "55.1"), ("690", "590", "530"), strict=True)},
        "break_even": {
            "past": dict.fromkeys(three, past),
            "cloud_costs_more_since": dict.fromkeys(three, past),
            "projected": dict.fromkeys(three, meets),
            "utilization_percent": {"low": "31.2", "expected": "24.9", "high": None},
            "price_usd_per_hour": "1.53",
            "paid_usd_per_hour": "2.0925",
        },
        "pace": {case: {"usd_per_day": "13.7", "hours_per_day": "6.5"} for case in three},
        "resale_value": {"usd": "2091.5", "by": "straight-line"},
        "own_machines": [
            {"id": "i-desk", "name": "desk", "gpu": "RTX 3090", "gpus": 1, "hours": "81.25", "kwh": "29.1",
             "assumed": True, "electricity_usd": "3.49", "cloud_usd": "97.5", "offer": None},
            {"id": "i-old-desk", "name": "old-desk", "gpu": None, "gpus": 0, "hours": "2", "kwh": None,
             "assumed": False, "electricity_usd": None, "cloud_usd": None, "offer": None},
        ],
        "own_machines_sentence": (
            "Your own machines worked 83.25 hours, for $3.49 of electricity as far as that is known."
        ),
        "paid_usd": None,
        "assumptions": ["Every GPU hour is counted as work.", "The desktop is bought on the first day."],
        "sentence": "So far the cloud has cost $1,234.56; a desktop with one RTX 3090 doing the same work would have "
                    "cost $2,263.50 ($2,200 on the first day). At this pace they meet on 2027-01-19.",
        "curve": curve,
    }  # fmt: skip


def curve(first, days, per_day, *, purchase=2200, electricity=0.7):
    """Cloud and desktop by day, both in straight lines."""
    return [
        {
            "day": f"{first + timedelta(days=number)}",
            "cloud_usd": f"{per_day * (number + 1):.2f}",
            "desktop_usd": f"{purchase + electricity * (number + 1):.2f}",
        }
        for number in range(days)
    ]


def three_months(**more):
    """Three months of a small lab: four projects, nine machines, a budget, leftovers, old prices."""
    first = date(2026, 8, 24)
    projects = ("vision", "llm-finetune", "kaggle", "")
    spent = {project: Decimal(0) for project in projects}
    days = []
    for number in range(90):
        each = {
            project: Decimal((number * (7 + 5 * place) + 13 * place) % (23 - 4 * place)) / (2 + place)
            for place, project in enumerate(projects)
            if (number + place) % (2 + place) and first.toordinal() + number - 4 & 7 < 6 - place
        }
        each = {project: round(amount, 4) for project, amount in each.items() if amount}
        for project, amount in each.items():
            spent[project] += amount
        days.append(day(f"{first + timedelta(days=number)}", **{name: f"{usd:f}" for name, usd in each.items()}))
    whole = f"{sum(spent.values()):f}"
    names = ["train-a100", "kaggle-t4", "finetune-h100", "notebook", "eval-l4", "sweep-1", "sweep-2", "sweep-3", "old"]
    hours = [(220, 12, 31, 4), (90.5, 44, 61, 0), (61, 3.5, 2, 1), (12, 80, 49, 0), (33, 1, 4, 9), (22, 0, 1, 0),
             (21.5, 0, 1.5, 0), (20.9, 0, 2, 0), (0, 0, 0, 16)]  # fmt: skip
    states = ["running", "stopped"] + ["terminated"] * 7
    machines = [
        machine(name, f"{sum(each) * (2.2 - place / 5):.4f}", each, state=state, project=projects[place % 4],
                market=("on_demand", "spot")[place % 2], high_usd=f"{sum(each) * (2.2 - place / 5) * 1.1:.4f}")
        for place, (name, each, state) in enumerate(zip(names, hours, states, strict=True))
    ]  # fmt: skip
    return empty(
        since="2026-08-24T00:00:00.000000Z",
        tz="Asia/Seoul",
        about={"machines": 9, "since": "2026-08-24T01:00:00.000000Z", "view_as_of": AS_OF, "integrity_problem": None},
        summary=[
            f"From 24 August to 22 November the cloud has cost ${Decimal(whole):,.2f}, for 9 machines.",
            "$151.50 of it went to machines that nobody used; of 30 hours it is not known.",
            "At this pace a desktop with one RTX 3090 would have been the cheaper one from 19 January 2027 on.",
            "Budget lab is empty in 6 days at this rate.",
        ],
        comparison=comparison(curve(first, 90, 13.7), meets="2027-01-19T00:00:00.000000Z"),
        days=days,
        projects=sorted(
            ({"name": name, "usd": f"{usd:f}", "low_usd": f"{usd * 9 / 10:f}", "high_usd": f"{usd:f}"}
             for name, usd in spent.items()), key=lambda one: -Decimal(one["usd"])),
        owners=[{"name": name, **dict.fromkeys(("usd", "low_usd", "high_usd"), f"{Decimal(whole) * part / 10:f}")}
                for name, part in (("ada", 6), ("bob@lab.example", 4))],
        total=total(whole, low=f"{Decimal(whole) * 9 / 10:f}"),
        budgets=[
            budget("lab", "400", "151.2", "2026-11-28T10:30:00.000000Z"),
            budget("kaggle-2026", "50", "-3.2"),
            budget("all", "5000", "4100"),
        ],
        burn=burn("2.21", "0.012", "0.0061", without_price=1),
        projected=projected("1602.33", "370.1"),
        machines=machines,
        idle={"low_usd": "120.1", "usd": "151.5", "high_usd": "190", "hours": "151.5", "unknown_hours": "30"},
        savings={
            "stops": stopped(14, "412.03", "203.2", 1) | {
                "by_rule": [{"rule": "idle"} | stopped(12, "402", "190.1"),
                            {"rule": "lease"} | stopped(2, "10.03", "13.1", 1)],
                "rule": "From each end to the next start, to its renew-until, or to now, whichever is first."},
            "spot": {"usd": "301.2", "on_demand_usd": "520.9", "without_on_demand": 1},
        },
        idle_resources=[
            {"name": "kaggle-t4", "kind": "disk", "provider": "gcp", "region": "us-central1", "usd_per_month": "8.5",
             "since": "2026-10-02T11:00:00.000000Z", "why": "Its machine is stopped."},
            {"name": "datasets", "kind": "volume", "provider": "aws", "region": "eu-west-1", "usd_per_month": None,
             "since": None, "why": "Kept on purpose."},
        ],
        prices=[
            {"provider": "aws", "newest": "2026-11-20", "oldest": "2025-06-28", "refreshed_at": None, "old": 12,
             "items": 1840},
            {"provider": "gcp", "newest": "2026-11-21T07:30:00.000000Z", "oldest": "2026-11-01",
             "refreshed_at": "2026-11-21T07:30:00.000000Z", "old": 0, "items": 912},
        ],
        unmetered=[{"machine": "i-old", "name": "old", "since": "2026-09-01T10:00:00.000000Z", "until": None}],
        unpriced=["old (address)"],
    ) | more  # fmt: skip


def huge():
    """Four hundred days of twelve projects on two hundred machines."""
    first = date(2025, 10, 19)
    projects = [f"project-{number}" for number in range(12)]
    days = [
        day(f"{first + timedelta(days=number)}",
            **{name: f"{(number * 7919 + place * 104729) % 50021 / 1000:.3f}" for place, name in enumerate(projects)})
        for number in range(400)
    ]  # fmt: skip
    sums = {name: sum(Decimal(one["projects"][name]) for one in days) for name in projects}
    whole = f"{sum(sums.values()):f}"
    return three_months(
        since="2025-10-19T00:00:00.000000Z",
        days=days,
        projects=[{"name": name, **dict.fromkeys(("usd", "low_usd", "high_usd"), f"{sums[name]:f}")}
                  for name in sorted(projects, key=lambda name: -sums[name])],
        total=total(whole),
        machines=[machine(f"trainer-{number:03}", f"{(200 - number) * 13.37:.2f}",
                          ((number * 37) % 300, number % 40, number % 17, number % 5 * 3.0)) for number in range(200)],
        machines_left_out=317,
        other_machines=rest(317, "931.3", 811),
        named_resources={"number": 3, "usd": "41.3", "low_usd": "41.3", "high_usd": "41.3"},
        comparison=comparison(curve(first, 400, 713.3), past="2025-10-22T00:00:00.000000Z"),
    )  # fmt: skip


def job(number, name, usd, state="succeeded", hours=1):
    """A row of the table of jobs; without a state it is no job."""
    key = f"job-{number:010x}" if state else name
    sums = dict.fromkeys(("usd", "low_usd", "high_usd"), usd)
    return {"id": key, "name": name, "state": state, **sums, "billed_s": hours * 3600, "without_price": 0}


def hostile():
    """Every text that somebody may have chosen is one that means harm."""
    found = three_months()
    names = HOSTILE
    for number, one in enumerate(found["machines"]):
        chosen = "name provider account region instance_type gpu state owner project".split()
        one |= {key: names[(number + place) % len(names)] for place, key in enumerate(chosen)}
    for number, one in enumerate(found["projects"]):
        renamed, one["name"] = one["name"], names[number]
        for each in found["days"]:
            if renamed in each["projects"]:
                each["projects"][names[number]] = each["projects"].pop(renamed)
    for number, one in enumerate(found["owners"]):
        one["name"] = names[number]
    for number, one in enumerate(found["idle_resources"]):
        one |= {
            key: names[(number + place) % len(names)] for place, key in enumerate(["name", "kind", "region", "why"])
        }
    for number, one in enumerate(found["budgets"]):
        one["name"] = names[number]
    found["jobs"] = [job(number, name, "1") for number, name in enumerate(names)]
    found["unmetered"][0]["name"] = names[0]
    found["unpriced"] = list(names)
    found["summary"] = list(names)
    found["about"]["integrity_problem"] = names[1]
    found["comparison"] |= {"sentence": names[5], "assumptions": list(names)}
    found["currency"] = {"code": "KRW", "per_usd": "1468.2", "as_of": "2026-11-20", "source": names[1]}
    return found
