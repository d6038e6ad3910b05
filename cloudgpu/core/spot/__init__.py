"""Spot with a deadline: policies by name, the safety net, and (in modules of their own) the simulator and the optimum.

`POLICIES[name]()` makes a policy; the names are `on-demand`, `greedy`, `uniform-progress` and `adaptive`. A policy has
two methods on plain dicts. It sees only the past, and the answers after a `reset` depend on nothing before it.

`reset(job)` returns None. Times are hours, prices are per hour in any one currency:
    total_work_h      work of the whole job
    deadline_h        time from the start of the job to its deadline
    tick_h            time between two decisions
    changeover_h      time without progress, billed, after every start of a machine, also in another zone
    price_spot        price of a spot machine
    price_on_demand   price of an on-demand machine
    prior_history     optional: what was seen before the start, one entry a tick, oldest first. An entry is 1 or 0 (spot
                      was available or not); with several zones, the history is one such list for each zone
Other keys are ignored, `zone_prices` and `move_costs` among them.

`decide(state)` returns `{"action": "spot" | "on_demand" | "wait", "zone": int | None}`. It is asked once a tick (if it
is asked again for the same elapsed_h, what it was told before of that moment is void):
    elapsed_h         time since the start
    work_left_h       work left, without any changeover
    time_left_h       time to the deadline
    spot_available    whether spot can be had for this tick; with several zones, in any of them
    zones_available   None with one zone; else a list of one flag for each zone
    mode              what runs as this tick begins: "wait" (nothing), "spot" or "on_demand". A spot machine that
                      was lost at the end of the last tick does not run: its mode is "wait"
    zone              zone of the spot machine that runs, else None
    pending_h         what is left of the changeover of the machine that runs, else 0
The zone of the answer is None unless the action is "spot" and zones_available is a list.

A tick of the simulated world: what the answer asks for runs for the whole tick, or to the end of the job. A machine
that was not running in that mode and zone starts with changeover_h pending. Pending time passes first, the rest of the
tick is progress, and both are billed. A spot machine whose zone is not available at the next tick is lost there; the
progress stays, its pending time is void. Asking for spot where it is not available means to wait.

A policy misses no deadline in that world as long as work + changeover fits when the job starts. `SafetyNet` keeps
the same promise for any policy; it also counts work that is lost with a machine, which the live job needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudgpu.core.spot.policies import POLICIES

__all__ = ["POLICIES"]


def __getattr__(name: str) -> object:
    """Load the policies when they are first used: whoever wants the net alone does not pay for them."""
    if name == "POLICIES":
        from cloudgpu.core.spot import policies

        return policies.POLICIES
    raise AttributeError(name)
