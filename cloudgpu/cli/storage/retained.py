"""What `image` and `volume` share: the list of what is kept by name, and the removal of one."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from cloudgpu.cli.common import Format, confirm, emit, exit_if_unanswered
from cloudgpu.cli.render import a_month, dollars, paragraph, table
from cloudgpu.core.model.resources import Kind
from cloudgpu.core.values.naming import counted
from cloudgpu.errors import InvalidRequest

if TYPE_CHECKING:
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.storage import NamedResource


def listing(session: Session, word: str, output: Format) -> None:
    """Print the images or volumes of this ledger; leave with 8 when a part did not answer."""
    from cloudgpu.control.resources.named import images_value, leftover_value, named, volumes_value

    found = named(session, Kind(word))
    document = images_value(found) if Kind(word) is Kind.IMAGE else volumes_value(found)
    emit(output, document, _table([leftover_value(resource) for resource in found.items], word, session))
    exit_if_unanswered(document["unanswered"])


def removal(session: Session, word: str, name: str | None, region: str | None, *, yes: bool, output: Format) -> None:
    """Ask, remove the image or volume, and print that it is gone."""
    from cloudgpu.control.resources.named import leftover_value, remove, the_one
    from cloudgpu.control.team.authorization import others_note, ownership_of_named

    if name is None:
        raise InvalidRequest(f"Which {word}?", field="NAME", value=None, next=f"See them: cloudgpu {word} ls")
    resource = the_one(session, Kind(word), name, region)
    whose = others_note(session, ownership_of_named(resource), "remove")
    confirm(f"Remove the {word} {resource.name} ({resource.size_gb} GB)? What is on it is lost.{whose}", yes=yes)
    remove(session, resource)
    emit(output, {"removed": leftover_value(resource)}, f"The {word} {resource.name} is gone.")


def monthly(value: NamedResource) -> str:
    """Return what something kept costs a month, in words; `at most` for what is billed by what is used of it."""
    return a_month(value["usd_per_month"], at_most=value["kind"] in (Kind.IMAGE, Kind.SNAPSHOT))


def _table(values: list[NamedResource], word: str, session: Session) -> str:
    if not values:
        return f"No {word} is kept."
    names = {machine.provider_id: machine.name for machine in session.ledger.machines() if machine.provider_id}
    rows = [
        [
            value["name"],
            value["provider"],
            value["zone"] or value["region"],
            f"{value['size_gb']} GB",
            monthly(value).removesuffix(" a month"),
            _used_by(value, names),
        ]
        for value in values
    ]
    return f"{paragraph(_total(values, word))}\n\n" + table(
        rows, ["NAME", "AT", "WHERE", "SIZE", "$/MONTH", "USED BY" if word == "volume" else ""], right=(3,)
    )


def _total(values: list[NamedResource], word: str) -> str:
    """Return how many there are, and what they cost a month until they are removed."""
    known = [Decimal(resource["usd_per_month"]) for resource in values if resource["usd_per_month"] is not None]
    at_most = "at most " if any(monthly(resource).startswith("at most") for resource in values) else ""
    unknown = f", and {len(values) - len(known)} without a known price" if len(known) < len(values) else ""
    costs = f"{at_most}{dollars(f'{sum(known, Decimal())}')} a month{unknown}" if known else "the price is not known"
    remove = "it is" if len(values) == 1 else "they are"
    return f"{counted(len(values), word)}: {costs}, until {remove} removed."


def _used_by(value: NamedResource, names: dict[str, str]) -> str:
    if not value["ready"]:
        return "being made"
    holder = value["attached_to"]
    return str(names.get(holder, holder)) if holder else ""
