"""Who answers which call: a table that the modules of this model fill, and what many kinds of things have alike."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable
from typing import Any

from tests.clouds.azure.model import DISKS, INTERFACES, Ask, Model, Thing, stamp
from tests.clouds.rest import Refusal, Reply, Unmodelled

Handler = Callable[[Model, Ask], Reply]
HANDLERS: dict[str, Handler] = {}
_TAGGED = re.compile(r"tagName eq '([^']*)'(?: and tagValue eq '([^']*)')?")
_TYPED = re.compile(r"resourceType eq '([^']*)'")
NO_TAG_NAME = re.compile(r"[<>%&\\?/]")


def answers(*actions: str) -> Callable[[Handler], Handler]:
    """Let a function answer these calls."""

    def take(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(actions, handler))
        return handler

    return take


def pages(model: Model, ask: Ask, rows: Iterable[dict[str, Any]]) -> Reply:
    """Return one page of a list, with the link to the next one."""
    found = list(rows)
    begin = int(ask.query.get("$skiptoken", "0"))
    body: dict[str, Any] = {"value": copy.deepcopy(found[begin : begin + model.page])}
    if begin + model.page < len(found):
        kept = "&".join(f"{name}={text}" for name, text in ask.query.items() if name != "$skiptoken")
        body["nextLink"] = f"{ask.url}{ask.path}?{kept.replace(' ', '%20')}&$skiptoken={begin + model.page}"
    return Reply(200, body)


def fits(thing: Thing, text: str) -> bool:
    """Say whether a thing is meant by an OData filter on tags or types. Raises Unmodelled for another."""
    tag, kind = _TAGGED.fullmatch(text), _TYPED.fullmatch(text)
    if tag:
        return tag[1] in thing.tags and tag[2] in {None, thing.tags.get(tag[1])}
    if kind:
        return thing.kind.lower() == kind[1].lower()
    raise Unmodelled(f"the filter {text!r}")


def check_tags(tags: dict[str, str] | None) -> None:
    """Refuse tags that Azure does not take: 50 of 512 and 256 characters (documentation, "tag limitations")."""
    for name, text in (tags or {}).items():
        if len(name) > 512 or len(text) > 256 or NO_TAG_NAME.search(name):
            raise Refusal("InvalidTagNameCharacters", f"The tag name '{name}' has reserved characters or is too long.")
    if len(tags or {}) > 50:
        raise Refusal("TooManyTags", "A maximum of 50 tags are allowed per resource.")


def settled(body: dict[str, Any] | None, now: Any, **facts: Any) -> dict[str, Any]:
    """Return a body as it is shown once it is made: a request's, and what Azure adds to its properties."""
    shown = copy.deepcopy(body or {})
    shown["properties"] = {**shown.get("properties", {}), "provisioningState": "Succeeded", **facts}
    shown.pop("etag", None)
    return shown


KINDS = {  # group of calls: of one, of a resource group, of all
    "Disks": ("Get", "ListByResourceGroup", "List"),
    "Snapshots": ("Get", "ListByResourceGroup", "List"),
    "Images": ("Get", "ListByResourceGroup", "List"),
    "Galleries": ("Get", "ListByResourceGroup", "List"),
    "GalleryImages": ("Get", "ListByGallery", None),
    "GalleryImageVersions": ("Get", "ListByGalleryImage", None),
    "NetworkSecurityGroups": ("Get", "List", "ListAll"),
    "VirtualNetworks": ("Get", "List", "ListAll"),
    "Subnets": ("Get", "List", None),
    "SecurityRules": ("Get", "List", None),
    "PublicIPAddresses": ("Get", "List", "ListAll"),
    "NetworkInterfaces": ("Get", "List", "ListAll"),
}


def _get(model: Model, ask: Ask) -> Reply:
    return Reply(200, copy.deepcopy(model.get(ask.id).body))


def _list_inside(model: Model, ask: Ask) -> Reply:
    """List what lies below one collection: of a resource group, of another thing."""
    if model.resources.get("/".join(ask.id.lower().split("/")[:5])) is None:
        model.get(ask.id)
    depth = ask.id.count("/") + 1
    rows = [
        one for key, one in model.resources.items() if key.startswith(f"{ask.id.lower()}/") and key.count("/") == depth
    ]
    return pages(model, ask, (one.body for one in rows))


def _list_all(model: Model, ask: Ask) -> Reply:
    kind = ask.id.rpartition("/providers/")[2]
    return pages(model, ask, (one.body for one in model.of_kind(kind)))


def _update(model: Model, ask: Ask) -> Reply:
    """PATCH: tags are replaced as a whole; properties one by one."""
    thing = model.get(ask.id)
    patch(model, thing, ask.body or {})
    return Reply(200, copy.deepcopy(thing.body))


def patch(model: Model, thing: Thing, body: dict[str, Any]) -> None:
    """Change a thing as a PATCH of its own address does. That it replaces all tags: REST reference, and notes."""
    check_tags(body.get("tags"))
    if "tags" in body:
        thing.body["tags"] = dict(body["tags"])
    merge(thing.body, {name: one for name, one in body.items() if name != "tags"})
    if thing.kind == DISKS:
        thing.facts["lastOwnershipUpdateTime"] = stamp(model.now())


def merge(into: dict[str, Any], new: dict[str, Any]) -> None:
    """Write new values over old ones, objects into objects; a list is replaced."""
    for name, one in new.items():
        if isinstance(one, dict) and isinstance(into.get(name), dict):
            merge(into[name], one)
        else:
            into[name] = copy.deepcopy(one)


def used_by(model: Model, thing: Thing) -> str | None:
    """Return the id of what uses a thing, so that it cannot go."""
    if thing.kind in {DISKS, INTERFACES}:
        found = thing.body.get("managedBy") or (thing.facts.get("virtualMachine") or {}).get("id")
        return str(found) if found else None
    return None


for _group, (_one, _some, _all) in KINDS.items():
    answers(f"{_group}.{_one}")(_get)
    answers(f"{_group}.{_some}")(_list_inside)
    if _all:
        answers(f"{_group}.{_all}")(_list_all)
for _name in ("Disks.Update", "Snapshots.Update", "Images.Update", "GalleryImageVersions.Update"):
    answers(_name)(_update)
for _name in ("NetworkSecurityGroups", "VirtualNetworks", "PublicIPAddresses", "NetworkInterfaces"):
    answers(f"{_name}.UpdateTags")(_update)
