"""Our model of Azure Resource Manager: TLS on loopback, and unmodified SDKs talk to it.

What it says is from Azure's published models (every request and every answer is held against them), its documentation
and public reports; it never ran against Azure. What is only believed stands in README.md beside this file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.clouds import azure_prices, userdata
from tests.clouds.azure import (  # each fills the table of who answers what
    disks,  # noqa: F401
    errors,
    extensions,  # noqa: F401
    groups,  # noqa: F401
    limits,  # noqa: F401
    market,  # noqa: F401
    networks,
    power,
    roles,
    schedule,  # noqa: F401
    skus,  # noqa: F401
    tls,
)
from tests.clouds.azure.handlers import HANDLERS
from tests.clouds.azure.model import (
    ADDRESSES,
    DISKS,
    LAUNCHER,
    MACHINES,
    SUBSCRIPTION,
    TENANT,
    Ask,
    Model,
    Thing,
    group_id,
    machine_id,
)
from tests.clouds.azure.operations import POLL, poll
from tests.clouds.azure.routes import Route, Shape, routed
from tests.clouds.azure.schemas import faults, schemas
from tests.clouds.price_server import Refusal as PriceRefusal
from tests.clouds.rest import Call, Refusal, Reply, Request, RestServer, Unmodelled
from tests.clouds.rest_faults import FOREVER, Fault
from tests.clouds.ssh import Machine, Machines

CLIENT, SECRET = "c11e0000-0000-4000-8000-000000000001", "model-of-azure"
TOKEN = "model.of.azure."
ENVIRON = {
    "AZURE_TENANT_ID": TENANT,
    "AZURE_CLIENT_ID": CLIENT,
    "AZURE_CLIENT_SECRET": SECRET,
    "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
}
IGNORED = {"api-version", "$skiptoken"}
_VALID: set[tuple[str, str]] = set()  # answers that were held against their models before


@dataclass(frozen=True)
class Seen:
    """A machine as tests look at it: `id` is ours, `REGION/GROUP`; `state` is that of its power."""

    id: str
    group: str
    region: str
    state: str
    size: str
    spot: bool
    tags: dict[str, str] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()
    provisioning: str = "Succeeded"


class AzureServer(RestServer):
    """One server. `wrong` are the requests and answers that Azure's published models do not have."""

    def __init__(self, port: int = 0, ssh_port: int = 0) -> None:
        self.authority, context = tls.authority()
        self._ssh_port = ssh_port
        self._machines: Machines | None = None
        super().__init__(port, context)

    def forget(self) -> None:
        super().forget()
        self.model = Model(self.clock)
        self.wrong: list[str] = []
        if self._machines is not None:
            self._machines.close_all()

    def stop(self) -> None:
        if self._machines is not None:
            self._machines.end()
            self._machines = None
        super().stop()

    @property
    def environ(self) -> dict[str, str]:
        """The environment in which our program and the SDKs talk to it."""
        here = {"CLOUDGPU_AZURE_ENDPOINT": self.url, "AZURE_AUTHORITY_HOST": self.url}
        return {**here, "REQUESTS_CA_BUNDLE": os.fspath(self.authority), **ENVIRON}

    # How a request is read and answered.

    def read(self, request: Request) -> tuple[str, dict[str, str]]:
        request.path = "/" + unquote(request.path).lstrip("/")
        if request.path == azure_prices.PATH:
            return "RetailPrices.List", {}
        if request.path.endswith("/oauth2/v2.0/token"):
            return "Token.Get", {}
        if request.path.endswith("/.well-known/openid-configuration"):
            return "Token.Configuration", {}
        if found := POLL.fullmatch(request.path):
            return "Operations.Get", {"kind": found[1], "operation": found[2]}
        known = routed(request.method, request.path)
        if known is None:
            raise Unmodelled(f"{request.method} {request.path}")
        return known[0].action, known[1]

    def answer(self, call: Call, request: Request) -> Reply:
        if call.action == "RetailPrices.List":
            return self._prices(request)
        if call.action.startswith("Token."):
            return self._token(call, request)
        principal = self._principal(request)
        if call.action == "Operations.Get":
            return poll(self.model, call.where["kind"], call.where["operation"])
        known = routed(request.method, request.path)
        assert known is not None
        return self._answered(known[0], call, request, principal)

    def _answered(self, route: Route, call: Call, request: Request, principal: str) -> Reply:
        self._check_request(route, request)
        if call.where.get("subscriptionId", SUBSCRIPTION) != SUBSCRIPTION:
            name = call.where["subscriptionId"]
            raise Refusal("SubscriptionNotFound", f"The subscription '{name}' could not be found.")
        ask = Ask(
            call.action,
            _id(route, call.where),
            call.where,
            request.query,
            request.body,
            principal,
            request.fault,
            self.url,
            request.path,
        )
        self._check_access(route, ask)
        handler = HANDLERS.get(call.action)
        if handler is None:
            raise Unmodelled("nobody answers it")
        reply = handler(self.model, ask)
        self._check_answer(route, reply)
        return reply

    def _check_access(self, route: Route, ask: Ask) -> None:
        space = ask.id.rpartition("/providers/")[2].partition("/")[0] if "/providers/" in ask.id else ""
        if self.model.subscription["state"] != "Enabled" and route.method not in {"GET", "HEAD", "DELETE"}:
            sentence = f"The subscription '{SUBSCRIPTION}' is disabled and therefore marked as read only."
            raise Refusal("ReadOnlyDisabledSubscription", sentence)
        if self.model.providers.get(space, "Registered") != "Registered" and route.method == "PUT":
            sentence = f"The subscription is not registered to use namespace '{space}'."
            raise Refusal("MissingSubscriptionRegistration", f"{sentence} See https://aka.ms/rps-not-found")
        for permission, scope in [(roles.permission_of(route, ask.where), ask.id), *roles.linked(ask)]:
            self.model.used.append((permission, scope))
            if not roles.may(self.model, ask.principal, permission, scope):
                raise roles.refusal(ask.principal, permission, scope)

    def _check_request(self, route: Route, request: Request) -> None:
        """Hold a request against the SDK's models: what they lack is a fault of ours."""
        known = route.query | IGNORED
        found = [f"the query {name} is unknown" for name in request.query if name not in known]
        version = request.query.get("api-version", "")
        ours = request.headers.get("User-Agent", "").startswith("azsdk-python-mgmt")
        if not version or (ours and version != route.version and "Authorization" not in route.path):
            found.append(f"the version {version!r} is not {route.version}")
        if route.body is not None and request.body is not None:
            found += _against(route.body, request.body, request=True)
        if route.body is None and request.body not in (None, {}, ""):
            found.append("it takes no body")
        if found:
            self.wrong += [f"request {route.action}: {one}" for one in found]
            raise Refusal("InvalidRequestContent", f"The request content was invalid: {'; '.join(found)}")

    def _check_answer(self, route: Route, reply: Reply) -> None:
        if reply.status not in route.statuses:
            self.wrong.append(f"answer {route.action}: the SDK takes no status {reply.status}")
        if route.answer is None or reply.body is None or reply.status == 202:
            return
        text = json.dumps(reply.body, sort_keys=True)
        if (route.action, text) not in _VALID:
            found = list(_against(route.answer, reply.body, request=False))
            self.wrong += [f"answer {route.action}: {one}" for one in found]
            if not found:
                _VALID.add((route.action, text))

    def refusal(self, call: Call, refusal: Refusal) -> Reply:
        if call.action.startswith("Token."):
            body = {"error": refusal.code, "error_description": refusal.message, "error_codes": [7000215]}
            return Reply(refusal.status or 401, body, {}, refusal.code)
        return errors.said(refusal.code, refusal.message, refusal.status)

    def denial(self, call: Call) -> Refusal:
        found = next((one for one in _all_routes() if one.action == call.action), None)
        permission = roles.permission_of(found, call.where) if found else call.action
        return roles.refusal(LAUNCHER, permission, _id(found, call.where) if found else "/")

    def place(self, call: Call) -> Mapping[str, Any]:
        """Return the region of a call, and the zone, size and market of what it makes or starts."""
        group = call.where.get("resourceGroupName")
        body = call.body if isinstance(call.body, dict) else {}
        region = body.get("location") or call.where.get("location") or call.where.get("locationparameter")
        home = self.model.things.get(group_id(group).lower()) if group else None
        said = {"region": region or (home.region if home else ""), "group": group}
        if call.action == "VirtualMachines.CreateOrUpdate":
            facts = body.get("properties") or {}
            size = (facts.get("hardwareProfile") or {}).get("vmSize", "")
            market_ = "spot" if facts.get("priority") == "Spot" else "on-demand"
            return {**said, "zone": (body.get("zones") or [""])[0], "size": size, "market": market_}
        if call.action == "VirtualMachines.Start" and group:
            one = self.model.things.get(machine_id(group, call.where["vmName"]).lower())
            if one is not None:
                market_ = "spot" if one.facts.get("priority") == "Spot" else "on-demand"
                size = one.facts["hardwareProfile"]["vmSize"]
                return {**said, "zone": (one.body.get("zones") or [""])[0], "size": size, "market": market_}
        return said

    def power(self, verb: str, machine: str) -> None:
        assert verb == "shut-down", verb
        self.shut_down(machine)

    # Credentials.

    def _token(self, call: Call, request: Request) -> Reply:
        at = f"{self.url}/{TENANT}"
        if call.action == "Token.Configuration":
            places = {"authorization_endpoint": f"{at}/oauth2/v2.0/authorize", "issuer": f"{at}/v2.0"}
            return Reply(200, {**places, "token_endpoint": f"{at}/oauth2/v2.0/token"})
        form = request.body or {}
        if form.get("client_id") != CLIENT or form.get("client_secret") != SECRET:
            sentence = f"AADSTS7000215: Invalid client secret provided for app '{form.get('client_id')}'."
            raise Refusal("invalid_client", sentence, 401)
        return Reply(200, {"token_type": "Bearer", "expires_in": 3599, "access_token": f"{TOKEN}{LAUNCHER}"})

    def _principal(self, request: Request) -> str:
        """Return whose token a request has. Raises Refusal for none, and for one that is not from here."""
        given = request.headers.get("Authorization", "")
        if not given.startswith(f"Bearer {TOKEN}"):
            sentence = "Authentication failed. The 'Authorization' header is missing or invalid."
            raise Refusal("InvalidAuthenticationToken" if given else "AuthenticationFailed", sentence, 401)
        return given.removeprefix(f"Bearer {TOKEN}")

    def machine_token(self, machine: str) -> str:
        """Return the token of a machine's own identity, as its metadata service would give it."""
        return f"{TOKEN}{self.thing(machine).body['identity']['principalId']}"

    def may(self, machine: str, permission: str, target: str) -> bool:
        """Say whether a machine's own identity may do something to a machine."""
        principal = self.thing(machine).body.get("identity", {}).get("principalId", "nobody")
        return roles.may(self.model, principal, permission, self.thing(target).id)

    def _prices(self, request: Request) -> Reply:
        """Answer the price list, which is another service: it takes no credential."""
        if request.headers.get("Authorization"):
            raise Refusal("BadRequest", "A credential was sent to the price list.")
        query = request.query
        try:
            rows = [one for one in azure_prices.usual() if azure_prices.fits(one, query.get("$filter", ""))]
        except PriceRefusal as refusal:
            raise Refusal("BadRequest", str(refusal), refusal.status) from None
        page = {"BillingCurrency": "USD", "CustomerEntityId": "Default", "CustomerEntityType": "Retail"}
        return Reply(200, {**page, "Items": rows, "NextPageLink": None, "Count": len(rows)})

    # What tests do to it, and ask of it. A machine is named as we name it, or by its group.

    def thing(self, machine: str) -> Thing:
        """Return the model's own record of a machine. Raises KeyError when there is none."""
        group = machine.rpartition("/")[2].lower()
        found = [one for one in self.model.of_kind(MACHINES) if group in {one.group, one.name.lower()}]
        if not found:
            raise KeyError(machine)
        return found[0]

    def instances(self, *, live: bool = False) -> list[Seen]:
        """Return the machines; `live` are those that are neither failed nor on their way out."""
        with self.lock:
            self.clock.settle()
            found = [self._seen(one) for one in self.model.of_kind(MACHINES)]
        return [one for one in found if not live or one.provisioning not in {"Failed", "Deleting"}]

    def instance(self, machine: str) -> Seen:
        with self.lock:
            self.clock.settle()
            return self._seen(self.thing(machine))

    def _seen(self, thing: Thing) -> Seen:
        group = self.model.group_of(thing.id)
        name = group.name if group else thing.group
        return Seen(
            f"{thing.region}/{name}",
            name,
            thing.region,
            thing.hidden["power"],
            thing.facts["hardwareProfile"]["vmSize"],
            thing.facts.get("priority") == "Spot",
            dict(thing.tags),
            tuple(networks.addresses(self.model, self._interfaces(thing))),
            thing.facts["provisioningState"],
        )

    def _interfaces(self, thing: Thing) -> list[Thing]:
        rows = thing.facts["networkProfile"]["networkInterfaces"]
        known = [self.model.things.get(row["id"].lower()) for row in rows]
        return [one for one in known if one is not None]

    def billable(self) -> list[tuple[str, str]]:
        """Return what costs money now, by kind and name: an independent look, for tests that nothing is left."""
        with self.lock:
            self.clock.settle()
            return sorted((word, one.name) for one in self.model.things.values() if (word := _costs(one)))

    def things(self, kind: str = "") -> list[str]:
        """Return the ids of all there is, or of a kind (`Microsoft.Network/networkInterfaces`)."""
        with self.lock:
            self.clock.settle()
            return [one.id for one in self.model.things.values() if not kind or one.kind == kind]

    def allows(self, machine: str, address: str, port: int) -> bool:
        """Say whether somebody at an address gets to a port of a machine."""
        with self.lock:
            found = self._interfaces(self.thing(machine))
            return any(networks.allows(self.model, one, address, port) for one in found)

    def interrupt(self, machine: str) -> None:
        """Evict a spot machine as its policy says; the notice is over."""
        with self.lock:
            self.clock.settle()
            power.evict(self.model, self.thing(machine))

    def shut_down(self, machine: str) -> None:
        """Shut a machine down from inside: it stays allocated."""
        with self.lock:
            self.clock.settle()
            power.shut_down(self.model, self.thing(machine))

    def finish(self, what: str) -> None:
        """End the operation on a machine or a group, which are called alike: on the machine first."""
        with self.lock:
            group = what.rpartition("/")[2]
            for id_ in (machine_id(group), group_id(group), what):
                if self.clock.when(f"operation:{id_.lower()}") is not None:
                    self.clock.hurry(f"operation:{id_.lower()}")
                    return
            raise KeyError(what)

    def user_data(self, machine: str) -> list[userdata.Part]:
        """Return the parts of what a machine was given at its launch."""
        return userdata.parts(self.thing(machine).hidden["custom_data"])

    def quota(self, region: str, name: str, limit: int) -> None:
        """Set a limit: `cores`, `lowPriorityCores`, a family."""
        self.model.quotas[region, name] = limit

    def restrict(self, size: str, region: str, zone: str = "") -> None:
        """Withhold a size from this account in a region or a zone."""
        self.model.restrictions.append((size, region, zone))

    def fail(self, action: str, error: str, *, message: str = "", times: int = 1, **where: Any) -> Fault:
        """Let operations of a call fail after it was accepted; `where` may name size, region, zone, market, group."""
        return self.faults.put(Fault("operation", action, where, times, error, 0, message))

    def stockout(self, *, error: str = "AllocationFailed", times: int = FOREVER, **where: Any) -> list[Fault]:
        """Let there be no capacity: creates and starts are accepted and fail in their operation."""
        calls = ("VirtualMachines.CreateOrUpdate", "VirtualMachines.Start")
        return [self.fail(one, error, times=times, **where) for one in calls]

    @property
    def ssh_port(self) -> int:
        """The port of SSH on every machine."""
        return self._ssh_port or self.port

    def serve_ssh(self) -> Machines:
        """Let machines answer SSH from now on until the next reset, at their own addresses."""
        if self._machines is None:
            self._machines = Machines(self.url, self.ssh_port)
        self.model.watchers.append(self._follow)
        return self._machines

    def _follow(self, thing: Thing) -> None:
        assert self._machines is not None
        seen = self._seen(thing)
        gone = thing.id.lower() not in self.model.things
        given = userdata.cloud_config(userdata.parts(thing.hidden["custom_data"]))
        state = "terminated" if gone else seen.state
        self._machines.watch(Machine(seen.id, state, given, list(seen.addresses)))


def _costs(one: Thing) -> str:
    if one.kind == MACHINES:
        return "machine" if one.hidden["power"] in power.BILLED else ""
    words = {
        DISKS: "disk",
        ADDRESSES: "address",
        "Microsoft.Compute/snapshots": "snapshot",
        "Microsoft.Compute/images": "image",
        "Microsoft.Compute/galleries/images/versions": "version",
    }
    return words.get(one.kind, "")


def _id(route: Route, where: Mapping[str, str]) -> str:
    """Return the ARM id that a path names, as Azure writes it."""
    path = route.path.replace("/resourcegroups/", "/resourceGroups/")
    if route.action.startswith("VirtualMachines."):
        path = path.partition("{vmName}")[0] + "{vmName}" if "{vmName}" in path else path  # a verb is no part of it
    made = path.format(**{name: text.strip("/") if name == "scope" else text for name, text in where.items()})
    return "/" + made.lstrip("/")


def _all_routes() -> tuple[Route, ...]:
    from tests.clouds.azure.routes import routes

    return routes()


def _against(shape: Shape, body: Any, *, request: bool) -> list[str]:
    """Return what of a body is not in its model."""
    found = schemas(shape.package)
    schema = found.of(shape.model, request=request)
    if shape.kind == "one":
        return list(faults(body, schema, found.definitions))
    rows = body["value"] if shape.kind == "pages" else body
    return [one for row in rows for one in faults(row, schema, found.definitions)]
