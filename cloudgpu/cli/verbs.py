"""The table of verbs: where each is implemented, and its line of --help."""

from __future__ import annotations

SLOGAN = "A GPU in one command, never a surprise bill, always the honest comparison."
# verb: (module below cloudgpu.cli, one line of help of at most 61 characters). The order is that of --help. A verb may
# have two words.
VERBS: dict[str, tuple[str, str]] = {
    "init": ("setup.init", "Make or change the settings: questions, the change, the file."),
    "doctor": ("setup.doctor", "Check this computer, the settings and the ledger."),
    "demo": ("setup.demo", "Try it all on this computer: launch, notebook, cost, stop."),
    "up": ("machines.up", "Launch a GPU machine: shows the plan, then asks."),
    "ls": ("machines.ls", "List machines: state, price, cost so far, end."),
    "show": ("machines.show", "Show one machine: price, lease, access, history."),
    "ssh": ("access.ssh", "Open a shell on a machine."),
    "exec": ("access.exec", "Run a command on a machine."),
    "cp": ("access.cp", "Copy files: cloudgpu cp FILE NAME:PATH, or back."),
    "tunnel": ("access.tunnel", "Open Jupyter through a verified SSH tunnel."),
    "bench": ("access.bench", "Measure the network between machines of a cluster."),
    "stop": ("machines.stop", "Stop a machine, keep its disk, and prove that billing ended."),
    "start": ("machines.start", "Start a stopped machine under a new lease."),
    "down": ("machines.down", "End a machine and all its resources, and prove it."),
    "hold": ("machines.hold", "Keep a machine from being ended until a given time."),
    "extend": ("machines.extend", "Extend a machine's lease."),
    "image": ("storage.image", "Save a machine as an image, list images, remove one."),
    "volume": ("storage.volume", "List data disks that outlive machines, or remove one."),
    "allow": ("access.allow", "Open SSH on machines to the address that you have now."),
    "share": ("access.share", "Let a colleague log in to a machine until it ends."),
    "spot": ("machines.spot", "Rehearse a spot interruption."),
    "spot serve": ("jobs.spot_serve", "Answer as a spot policy: JSON lines in, JSON lines out."),
    "spot backtest": ("jobs.spot_backtest", "Test spot policies on recorded availability: cost, deadlines."),
    "run": ("jobs.run", "Run a command on its own machine; bring its results back."),
    "jobs": ("jobs.jobs", "List jobs: state, progress, cost, expected end."),
    "logs": ("jobs.logs", "Print what a job's command has written."),
    "cancel": ("jobs.cancel", "End a job: its results come back, its machine ends."),
    "gpus": ("market.gpus", "List GPU machines that can be rented, with dated prices."),
    "regions": ("market.regions", "List an account's regions: GPU price and distance."),
    "quota": ("market.quota", "List an account's GPU quotas, or request a higher one."),
    "catalog": ("market.catalog", "Show dated prices and their sources; refresh them."),
    "estimate": ("market.estimate", "Estimate what machines would cost, cheapest first."),
    "recommend": ("market.recommend", "Recommend a GPU for a kind of work, to rent or to buy."),
    "cost": ("money.cost", "Show what machines have cost; --verify checks the ledger."),
    "cost reconcile": ("money.reconcile", "Compare the ledger with the cloud's own bill."),
    "budget": ("money.budget", "Limit spending: launches past a limit are refused."),
    "compare": ("money.compare", "Compare the cloud with an owned desktop."),
    "report": ("money.report", "Write a page on what was spent, saved and wasted."),
    "export": ("money.export", "Export charges for other programs: FOCUS 1.0, CSV, JSON."),
    "ledger": ("setup.ledger", "Back up, restore or move the ledger."),
    "ledger init": ("setup.ledger_init", "Share the ledger with a team: roles for members and payers."),
    "ledger owner": ("setup.ledger_owner", "Show which database user an owner's name belongs to."),
    "reap": ("automation.reap", "Stop idle and expired machines once, and verify each stop."),
    "watch": ("automation.watch", "Reap, check budgets and send alerts until interrupted."),
    "cron": ("automation.cron", "Have this computer reap every ten minutes."),
    "orphans": ("automation.orphans", "Find orphaned resources that cost money, and remove them."),
    "policy": ("automation.policy", "Show policies, and which one applies to a machine."),
    "policy backtest": ("automation.backtest", "Replay the past under a policy: stops, savings, lost work."),
}
# The verb with which each part of --help begins, and the part's heading.
HEADINGS = {
    "init": "Begin",
    "up": "Machines",
    "run": "Jobs",
    "gpus": "What can be rented",
    "cost": "Money",
    "reap": "Never pay for idle",
}
# Synonyms for an action of a verb.
ACTIONS = {
    **{(verb, "list"): "ls" for verb in ("budget", "image", "policy", "volume")},
    **{(verb, word): "rm" for verb in ("budget", "image", "volume") for word in ("delete", "remove")},
    **{(verb, word): "show" for verb in ("catalog", "cron") for word in ("list", "ls")},
    **{("cron", word): "remove" for word in ("delete", "rm", "uninstall")},
    ("budget", "show"): "check",
}
