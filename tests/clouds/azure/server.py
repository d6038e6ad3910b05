"""Our model of Azure Resource Manager: TLS on loopback, and unmodified SDKs talk to it.

What it says is from Azure's published models (every request and every answer is held against them), its documentation
and public reports; it never ran against Azure. What is only believed stands in README.md beside this file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from tests.clouds import azure_prices
from tests.clouds.azure import (  # each fills the table of who answers what
    contract,
    disks,  # noqa: F401
    errors,
    events,  # noqa: F401
    extensions,  # noqa: F401
    groups,  # noqa: F401
    limits,  # noqa: F401
    locks,
    market,  # noqa: F401
    roles,
    schedule,  # noqa: F401
    skus,  # noqa: F401
    tls,
    tokens,
)
from tests.clouds.azure.handlers import HANDLERS
from tests.clouds.azure.looks import Looks
from tests.clouds.azure.model import (
    LAUNCHER,
    SUBSCRIPTION,
    TENANT,
    Ask,
    Model,
    group_id,
    machine_id,
)
from tests.clouds.azure.operations import POLL, poll
from tests.clouds.azure.routes import Route, routed
from tests.clouds.price_server import Refusal as PriceRefusal
from tests.clouds.rest import Call, Refusal, Reply, Request, RestServer, Unmodelled
from tests.clouds.ssh import Machines

ENVIRON = {
    "AZURE_TENANT_ID": TENANT,
    "AZURE_CLIENT_ID": tokens.CLIENT,
    "AZURE_CLIENT_SECRET": tokens.SECRET,
    "AZURE_SUBSCRIPTION_ID": SUBSCRIPTION,
}


class AzureServer(Looks, RestServer):
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
        if request.path.endswith(tokens.TOKEN_PATH):
            return "Token.Get", {}
        if request.path.endswith(tokens.CONFIGURATION_PATH):
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
            return tokens.token(request) if call.action == "Token.Get" else tokens.configuration(self.url)
        principal = tokens.principal(request)
        if call.action == "Operations.Get":
            return poll(self.model, call.where["kind"], call.where["operation"])
        known = routed(request.method, request.path)
        assert known is not None
        return self._answered(known[0], call, request, principal)

    def _answered(self, route: Route, call: Call, request: Request, principal: str) -> Reply:
        if found := contract.of_request(route, request):
            self.wrong += [f"request {route.action}: {one}" for one in found]
            raise Refusal("InvalidRequestContent", f"The request content was invalid: {'; '.join(found)}")
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
        locks.check(self.model, route, ask)
        handler = HANDLERS.get(call.action)
        if handler is None:
            raise Unmodelled("nobody answers it")
        reply = handler(self.model, ask)
        self.wrong += [f"answer {route.action}: {one}" for one in contract.of_answer(route, reply)]
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
        asked = re.fullmatch(r"location eq '([^']+)'", call.query.get("$filter", ""))
        region = body.get("location") or call.where.get("location") or call.where.get("locationparameter")
        region = region or (asked[1] if asked else None)
        home = self.model.resources.get(group_id(group).lower()) if group else None
        said = {"region": region or (home.region if home else ""), "group": group}
        if call.action == "VirtualMachines.CreateOrUpdate":
            facts = body.get("properties") or {}
            size = (facts.get("hardwareProfile") or {}).get("vmSize", "")
            market_ = "spot" if facts.get("priority") == "Spot" else "on-demand"
            return {**said, "zone": (body.get("zones") or [""])[0], "size": size, "market": market_}
        if call.action == "VirtualMachines.Start" and group:
            one = self.model.resources.get(machine_id(group, call.where["vmName"]).lower())
            if one is not None:
                market_ = "spot" if one.facts.get("priority") == "Spot" else "on-demand"
                size = one.facts["hardwareProfile"]["vmSize"]
                return {**said, "zone": (one.body.get("zones") or [""])[0], "size": size, "market": market_}
        return said

    def power(self, verb: str, machine: str) -> None:
        assert verb == "shut-down", verb
        self.shut_down(machine)

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
