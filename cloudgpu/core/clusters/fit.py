"""Checks whether nodes can form one Slurm cluster, before anything is changed on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cloudgpu.core.clusters.nodes import NodeFacts, SlurmVersion
from cloudgpu.errors import InvalidRequest

MAX_CLOCK_DIFFERENCE_S = 300  # munge's credentials are valid for five minutes; munge(7), TTL
INSTALL = "sudo systemctl mask munge slurmd slurmctld; sudo apt-get install -y slurm-wlm munge"
# Major releases in their order; from 24.05 on there is one every six months. slurm.schedmd.com, Upgrade Guide.
RELEASES = ("20.02", "20.11", "21.08", "22.05", "23.02", "23.11")
_FIRST_OF_CADENCE = (24, 5)
_THREE_BACK_FROM = (24, 11)  # from this release on, nodes may be three releases older than the controller, before two


def check_fit(nodes: Sequence[NodeFacts]) -> None:
    """Raise InvalidRequest, which names the machines, if these nodes, in their order, cannot form a cluster.

    Node 0 has the controller. In this order: Slurm and munge are installed, the versions can talk to each other, the
    clocks agree, the login user is the same user everywhere, and the nodes can reach each other's addresses.
    """
    _check_installed(nodes)
    _check_versions(nodes)
    _check_clocks(nodes)
    _check_users(nodes)
    _check_addresses(nodes)


def _check_installed(nodes: Sequence[NodeFacts]) -> None:
    names = [facts.name for facts in nodes if not facts.has_engine]
    if names:
        verb = "has" if len(names) == 1 else "have"
        raise InvalidRequest(
            f"{_names_text(names)} {verb} no Slurm, which the engine slurm needs on every machine.",
            field="engine",
            value="slurm",
            next=f"Install it there, once, as root: {INSTALL}; or use --engine none.",
        )


def _check_versions(nodes: Sequence[NodeFacts]) -> None:
    controller = nodes[0]
    for other in nodes[1:]:
        if controller.version is None or other.version is None:
            continue
        why = version_fault(controller.version, other.version)
        if why:
            raise InvalidRequest(
                f"{controller.name} has Slurm {controller.version} and {other.name} has {other.version}: {why}.",
                field="engine",
                value="slurm",
                next="Use machines with the same release of their system, or --engine none.",
            )


def version_fault(controller: SlurmVersion, node: SlurmVersion) -> str | None:
    """Return why a node of this version cannot work with a controller of that version, or None.

    A controller accepts nodes of its own release and of the two before it (three, from 24.11 on), but no newer ones.
    """
    releases_behind = _index(controller) - _index(node)
    if releases_behind < 0:
        return "the controller, which is on node 0, may not be older than the others"
    max_behind = 3 if (controller.year, controller.month) >= _THREE_BACK_FROM else 2
    return (
        f"a controller takes nodes up to {max_behind} releases back, and this one is {releases_behind} back"
        if releases_behind > max_behind
        else None
    )


def _index(version: SlurmVersion) -> int:
    """Return the place of a release in the order of releases."""
    if version.release in RELEASES:
        return RELEASES.index(version.release)
    year, month = version.year, version.month
    if (year, month) < _FIRST_OF_CADENCE:
        later = [place for place, release in enumerate(RELEASES) if release > version.release]
        return later[0] - 1 if later else len(RELEASES) - 1
    return len(RELEASES) + 2 * (year - _FIRST_OF_CADENCE[0]) + (1 if month > 6 else 0)  # noqa: PLR2004  (half-years)


def _check_clocks(nodes: Sequence[NodeFacts]) -> None:
    first, last = min(nodes, key=lambda facts: facts.clock_ahead_s), max(nodes, key=lambda facts: facts.clock_ahead_s)
    difference_s = last.clock_ahead_s - first.clock_ahead_s
    if difference_s > MAX_CLOCK_DIFFERENCE_S:
        raise InvalidRequest(
            f"The clock of {last.name} is {difference_s:.0f} s ahead of that of {first.name}; "
            f"munge refuses everything beyond {MAX_CLOCK_DIFFERENCE_S} s.",
            field="engine",
            value="slurm",
            next="Set the clocks there, for example: sudo timedatectl set-ntp true",
        )


def _check_users(nodes: Sequence[NodeFacts]) -> None:
    first = nodes[0]
    for other in nodes[1:]:
        if other.uid != first.uid:
            raise _user_id_error(first.user, {first.name: first.uid, other.name: other.uid})
        for person, uid in first.people.items():
            other_uid = other.people.get(person)
            if uid is not None and other_uid is not None and uid != other_uid:
                raise _user_id_error(person, {first.name: uid, other.name: other_uid})


def _user_id_error(person: str, ids: Mapping[str, int]) -> InvalidRequest:
    (one, here), (other, there) = ids.items()
    return InvalidRequest(
        f"{person} has user id {here} on {one} and {there} on {other}; "
        "Slurm runs a job under the same number on every machine.",
        field="engine",
        value="slurm",
        next=f"Give {person} the same number on both (usermod -u), or use --engine none.",
    )


def _check_addresses(nodes: Sequence[NodeFacts]) -> None:
    for facts in nodes:
        elsewhere = [other for other in nodes if other.host != facts.host]
        if elsewhere and (facts.address.startswith("127.") or facts.address == "::1"):
            raise InvalidRequest(
                f"{facts.name} was reached at {facts.address}, an address that only the computer itself has; "
                f"{elsewhere[0].name}, on another computer, could not reach it.",
                field="engine",
                value="slurm",
                next="Name the host by an address of its network in config.toml, or use --engine none.",
            )


def besides_login_user(nodes: Sequence[NodeFacts], people: Iterable[str]) -> tuple[str, ...]:
    """Return those of `people` who are not the login user of the nodes, whose daemons run."""
    return tuple(one for one in dict.fromkeys(people) if one != nodes[0].user)


def check_people(nodes: Sequence[NodeFacts], people: Iterable[str]) -> None:
    """Raise InvalidRequest, which says all that is missing, if these people cannot share a queue on these nodes.

    The daemons of one user run only that user's jobs, so slurmd has to run as root. `check_fit` compares the user ids.
    """
    others = besides_login_user(nodes, people)
    if not others:
        return
    unknown = [f"{person} on {facts.name}" for facts in nodes for person in others if facts.people.get(person) is None]
    no_root = [facts.name for facts in nodes if not facts.has_sudo]
    missing = [f"an account of {_names_text(unknown)}"] if unknown else []
    missing += [f"sudo without a password for {nodes[0].user} on {_names_text(no_root)}"] if no_root else []
    if missing:
        raise InvalidRequest(
            f"A queue that runs jobs of {_names_text(others)} lacks {'; '.join(missing)}.",
            field="queue_for",
            value=", ".join(others),
            next="Have it set up there, or take queue_for out of config.toml: the queue is yours alone then.",
        )


def _names_text(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
