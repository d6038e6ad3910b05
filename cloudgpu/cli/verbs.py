"""The table of verbs: where each is implemented, and its line of --help."""

from __future__ import annotations

# verb: (module below cloudgpu.cli, one line of help). The order is that of --help. A verb may have two words.
VERBS: dict[str, tuple[str, str]] = {
    "init": ("setup.init", "Make or change config.toml: questions, the change, the file."),
    "doctor": ("setup.doctor", "Check this machine, the settings and the ledger, and say what to do."),
    "demo": ("setup.demo", "Watch the main job on this machine: launch, notebook, cost, stop, proof."),
    "up": ("machines.up", "Launch a GPU machine: shows the plan, asks, launches, waits until SSH is verified."),
    "ls": ("machines.ls", "List machines, what they cost so far and when they end."),
    "show": ("machines.show", "Show one machine: state, price with its source, lease, access, history."),
    "ssh": ("access.ssh", "Open a shell on a machine with the system's ssh."),
    "exec": ("access.exec", "Run a command on a machine, with its own streams and exit status."),
    "cp": ("access.cp", "Copy files to or from a machine: cloudgpu cp FILE NAME:PATH."),
    "tunnel": ("access.tunnel", "Open Jupyter through a verified SSH tunnel."),
    "stop": ("machines.stop", "Stop or park a machine and prove that it is not billed any more."),
    "start": ("machines.start", "Start a stopped or parked machine under a new lease."),
    "down": ("machines.down", "End a machine and all that was made with it, and prove it."),
    "hold": ("machines.hold", "Keep a machine from being ended by its lease, or for idle time, until a given time."),
    "extend": ("machines.extend", "Make a machine's lease longer."),
    "image": ("storage.image", "Save a machine as an image under a name, list images, remove one."),
    "volume": ("storage.volume", "List data volumes, or remove one."),
    "allow": ("access.allow", "Open SSH on machines to the address that you have now."),
    "share": ("access.share", "Let a colleague's public key in to a machine until it ends."),
    "spot": ("machines.spot", "Rehearse a spot interruption."),
    "gpus": ("market.gpus", "List the GPU machines that can be bought, with dated prices: GPU, memory, place."),
    "regions": ("market.regions", "List an account's regions: what a GPU costs in each now, and how far each is."),
    "quota": ("market.quota", "List an account's limits on GPU machines, or ask for a higher one."),
    "catalog": ("market.catalog", "Show dated prices and their sources, refresh them from the price lists, compare."),
    "estimate": (
        "market.estimate",
        "Say what machines would cost on every provider: by the hour, a workload, a past run.",
    ),
    "recommend": ("market.recommend", "Say which GPU fits a kind of work, to rent or to buy, and why."),
    "cost": ("money.cost", "Say what machines have cost so far; --verify checks the ledger."),
    "cost reconcile": ("money.reconcile", "Compare the ledger with the cloud's own bill, and say why they differ."),
    "budget": ("money.budget", "Limit what is spent: up, start and extend are refused past it; alerts on the way."),
    "compare": (
        "money.compare",
        "Say what an owned desktop would cost for the same work, and when it pays for itself.",
    ),
    "report": ("money.report", "Write what was spent, saved and wasted as one page to keep, print or send."),
    "export": ("money.export", "Write the bill for other programs: FOCUS 1.0, CSV or JSON."),
    "ledger": ("setup.ledger", "Write a checked copy of the ledger, put one in its place, or move the ledger."),
    "ledger init": ("setup.ledger_init", "Have a team share the ledger: roles of the database for members and payers."),
    "ledger owner": ("setup.ledger_owner", "Say which database user an owner's name belongs to."),
    "reap": ("automation.reap", "Make one pass over all machines: end what nobody uses or what is over, and prove it."),
    "watch": ("automation.watch", "Make passes, check budgets, send alerts and refresh prices, until it is ended."),
    "cron": ("automation.cron", "Have this computer make a pass every ten minutes; try it as cron would run it."),
    "orphans": (
        "automation.orphans",
        "Find what launches have left and goes on costing, in all regions; --clean removes it.",
    ),
    "policy": ("automation.policy", "Say which policies there are, what they say, and which one holds for a machine."),
    "policy backtest": (
        "automation.backtest",
        "Replay the past under a policy: what it would have stopped, saved and killed.",
    ),
}
# The verb with which each part of --help begins, and how that part is called.
HEADINGS = {
    "init": "Begin",
    "up": "Machines",
    "gpus": "What can be bought",
    "cost": "Money",
    "reap": "Never pay for idle",
}
# Of a verb with actions: other words for one of them.
ACTIONS = {
    **{(verb, "list"): "ls" for verb in ("budget", "image", "policy", "volume")},
    **{(verb, word): "rm" for verb in ("budget", "image", "volume") for word in ("delete", "remove")},
}
