"""The state of our model of Google Cloud: resources by collection and place, operations, limits, a clock."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from tests.clouds.clock import Clock
from tests.clouds.rest import Call, Refusal

PROJECT = "cloudgpu-test"
NUMBER = "123456789012"
ROOT = "https://www.googleapis.com/compute/v1"
PACIFIC = timezone(timedelta(hours=-8))  # Google's timestamps bear the offset of California
REMEMBERED = timedelta(minutes=60)  # how long a request id holds (Compute Engine API, Prevent duplicate requests)
NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_KEY, LABEL_VALUE = re.compile(r"[a-z][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")
METADATA_KEY = re.compile(r"[a-zA-Z0-9_-]{1,128}")
MOST_LABELS, MOST_OF_A_VALUE, MOST_METADATA = 64, 262_144, 524_288
Thing = dict[str, Any]  # a resource as the API shows it; keys that begin with _ are the model's own


class Key(NamedTuple):
    """Where a resource is: its collection (`instances`), its project, its scope (`zones/us-east1-b`), its name."""

    collection: str
    project: str
    scope: str
    name: str

    @property
    def path(self) -> str:
        """Its partial URL."""
        return f"projects/{self.project}/{self.scope}/{self.collection}/{self.name}"

    @property
    def link(self) -> str:
        """Its whole URL."""
        return f"{ROOT}/{self.path}"

    @property
    def place(self) -> str:
        """The name of its zone or region; `global` for neither."""
        return self.scope.partition("/")[2] or self.scope


@dataclass
class Model:
    """Everything that a reset forgets."""

    clock: Clock = field(default_factory=Clock)
    resources: dict[Key, Thing] = field(default_factory=dict)
    operations: dict[Key, Thing] = field(default_factory=dict)
    requests: dict[str, tuple[str, Key, datetime]] = field(default_factory=dict)  # by request id
    limits: dict[tuple[str, str], float] = field(default_factory=dict)  # by region ("" is all) and metric
    project_metadata: dict[str, str] = field(default_factory=dict)
    granted: set[str] | None = None  # the permissions that the caller has; None: all
    strange: set[str] = field(default_factory=set)  # permissions that Google does not know (unverified: it refuses all)
    disabled: set[str] = field(default_factory=set)  # services that are switched off (compute.googleapis.com)
    watchers: list[Callable[[Key, Thing], None]] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    _addresses: Any = field(default_factory=lambda: itertools.count(257))

    def now(self) -> str:
        """Return the time as Google writes it."""
        return written(self.clock.now())

    def number(self) -> str:
        """Return a new resource's number."""
        return str(7_000_000_000_000_000_000 + next(self._numbers))

    def addresses(self) -> tuple[str, str]:
        """Return a new public and a new private address, both of this machine's loopback."""
        high, low = divmod(next(self._addresses), 256)
        return f"127.22.{high}.{low}", f"127.23.{high}.{low}"

    def of(self, collection: str, project: str = PROJECT) -> dict[Key, Thing]:
        """Return the resources of a collection."""
        return {
            key: one for key, one in self.resources.items() if key.collection == collection and key.project == project
        }

    def get(self, key: Key) -> Thing:
        """Return a resource. Raises Refusal where there is none."""
        if key not in self.resources:
            raise not_found(key)
        return self.resources[key]

    def add(self, key: Key, made: Mapping[str, Any]) -> Thing:
        """Keep a new resource; raises Refusal where its name is taken, or is none."""
        if not NAME.fullmatch(key.name):
            said = f"'{key.name}'. Must be a match of regex '(?:{NAME.pattern})'"
            raise Refusal("invalid", f"Invalid value for field 'resource.name': {said}")
        if key in self.resources:
            raise Refusal("alreadyExists", f"The resource '{key.path}' already exists")
        own = {"kind": f"compute#{key.collection.removesuffix('s')}", "id": self.number(), "name": key.name}
        own |= {"selfLink": key.link, "creationTimestamp": self.now()}
        if key.scope.startswith(("zones/", "regions/")):
            own[key.scope.partition("s/")[0]] = f"{ROOT}/projects/{key.project}/{key.scope}"
        self.resources[key] = {**made, **own}
        return self.resources[key]


def scope_of(where: Mapping[str, str]) -> str:
    """Return the scope that the parameters of a path name."""
    if "zone" in where:
        return f"zones/{where['zone']}"
    return f"regions/{where['region']}" if "region" in where else "global"


def key_of(call: Call, collection: str, name: str) -> Key:
    """Return the key of a resource in a call's own place."""
    return Key(collection, call.where["project"], scope_of(call.where), name)


def linked(text: str, collection: str, project: str = PROJECT, scope: str = "global") -> Key:
    """Return the key that a link or a partial URL names: `zones/Z/disks/D`, `global/networks/default`, a bare name."""
    parts = text.removeprefix(f"{ROOT}/").removeprefix("https://compute.googleapis.com/compute/v1/").split("/")
    if parts[0] == "projects":
        project, parts = parts[1], parts[2:]
    if len(parts) == 1:
        return Key(collection, project, scope, parts[0])
    cut = parts.index(collection) if collection in parts else -1
    if cut < 1:
        raise Refusal("invalid", f"Invalid value: '{text}'. The URL is malformed.")
    return Key(collection, project, "/".join(parts[:cut]), "/".join(parts[cut + 1 :]))


def not_found(key: Key) -> Refusal:
    """Return what Google says of a resource that is not there."""
    return Refusal("notFound", f"The resource '{key.path}' was not found")


def written(when: datetime) -> str:
    """Return a time as Google writes it."""
    return when.astimezone(PACIFIC).isoformat(timespec="milliseconds")


def fingerprint(value: Any) -> str:
    """Return the fingerprint of labels or metadata."""
    digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def shown(thing: Thing) -> Thing:
    """Return a resource as the API shows it."""
    return {name: one for name, one in thing.items() if not name.startswith("_")}


def with_labels(thing: Thing, labels: Mapping[str, str] | None) -> None:
    """Set the labels of a resource. Raises Refusal for one that Google would not take."""
    check_labels(labels or {})
    thing["labelFingerprint"] = fingerprint(labels or {})
    thing.pop("labels", None)
    if labels:
        thing["labels"] = dict(labels)


def check_labels(labels: Mapping[str, str]) -> None:
    """Raise Refusal for labels that Google would not take (Organize resources using labels: requirements)."""
    if len(labels) > MOST_LABELS:
        raise Refusal("invalid", f"Invalid value for field 'resource.labels': more than {MOST_LABELS} labels")
    for name, value in labels.items():
        if not LABEL_KEY.fullmatch(name):
            raise Refusal("invalid", f"Invalid value for field 'resource.labels': '{name}'. Label key is not valid.")
        if not LABEL_VALUE.fullmatch(value):
            said = f"'{value}'. Label value '{value}' violates format constraints. The value can only contain lowercase"
            raise Refusal("invalid", f"Invalid value for field 'resource.labels': {said} letters, numeric characters")


def with_metadata(thing: Thing, metadata: Mapping[str, Any] | None) -> None:
    """Set the metadata of a machine. Raises Refusal for some that Google would not take."""
    items = list((metadata or {}).get("items", []))
    names = [one["key"] for one in items]
    if len(set(names)) < len(names):
        raise Refusal("invalid", "Invalid value for field 'resource.metadata': duplicate keys")
    for one in items:
        if not METADATA_KEY.fullmatch(one["key"]):
            raise Refusal("invalid", f"Invalid value for field 'metadata.items.key': '{one['key']}'")
        if len(one.get("value", "").encode()) > MOST_OF_A_VALUE:
            said = f"Value for {one['key']} is too large: maximum size {MOST_OF_A_VALUE} character(s)"
            raise Refusal("invalid", f"Invalid value for field 'metadata.items': {said}.")
    if sum(len(one["key"]) + len(one.get("value", "").encode()) for one in items) > MOST_METADATA:
        raise Refusal("invalid", "Metadata has exceeded the maximum total size of 512 KB")
    thing["metadata"] = {"kind": "compute#metadata", "fingerprint": fingerprint(items)}
    if items:
        thing["metadata"]["items"] = items


def metadata_of(machine: Thing) -> dict[str, str]:
    """Return the metadata of a machine by their names."""
    return {one["key"]: one.get("value", "") for one in machine.get("metadata", {}).get("items", [])}


def check_fingerprint(given: str | None, held: str, what: str) -> None:
    """Raise Refusal (412) for a fingerprint that is not that of now."""
    if given != held:
        raise Refusal("conditionNotMet", f"Supplied fingerprint does not match current {what} fingerprint.")


def check_request_id(text: str) -> None:
    """Raise Refusal for a request id that is no UUID, or the one of zeros."""
    try:
        bad = uuid.UUID(text).int == 0
    except ValueError:
        bad = True
    if bad:
        raise Refusal("invalid", f"Invalid value for field 'requestId': '{text}'. A valid UUID is needed.")
