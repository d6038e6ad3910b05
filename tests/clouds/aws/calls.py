"""What a request to AWS says, decoded: the service, action and region of its signature, and its parameters."""

from __future__ import annotations

import json
import re
from io import BytesIO
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from botocore.model import OperationNotFoundError
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.utils import get_service_model
from werkzeug.datastructures import Headers, MultiDict

SCOPE = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request")
XML_SERVICES = {"ec2": "ec2", "iam": "query", "sts": "query", "sns": "query", "monitoring": "query"}
BOTO_NAMES = {"servicequotas": "service-quotas", "monitoring": "cloudwatch"}


class Call(NamedTuple):
    """One request, and how it ended: the HTTP status that was made for it, and whether the client got that answer.

    A status of 0 is a call that was closed before it was done.
    """

    number: int
    service: str
    action: str
    region: str
    parameters: dict[str, Any]
    access_key: str
    status: int = 0
    error: str = ""
    answered: bool = True


def read(number: int, environ: dict[str, Any]) -> Call:
    """Return what a WSGI request asks; its body can be read again afterwards.

    Raises:
        ConnectionAbortedError: the client was killed between the head and the end of the body; nobody asked anything.
    """
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(length)
    if len(body) < length:
        raise ConnectionAbortedError
    environ["wsgi.input"] = BytesIO(body)
    found = SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    access_key, region, service = found.groups() if found else ("", "", "")
    action, parameters = _asked(service, environ, body)
    return Call(number, service, action, region, parameters, access_key)


def _asked(service: str, environ: dict[str, Any], body: bytes) -> tuple[str, dict[str, Any]]:
    if service == "scheduler":
        return _by_path(environ, body)
    if target := environ.get("HTTP_X_AMZ_TARGET"):
        return target.rpartition(".")[2], json.loads(body or b"{}")
    if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
        fields = {name: found[-1] for name, found in parse_qs(body.decode(), keep_blank_values=True).items()}
        return fields.get("Action", ""), _parsed(service, fields)
    return f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}", {}


def _by_path(environ: dict[str, Any], body: bytes) -> tuple[str, dict[str, Any]]:
    """Return the operation of EventBridge Scheduler that a method and a path stand for, and its parameters."""
    kind, _, name = environ["PATH_INFO"].lstrip("/").partition("/")
    word = {"schedules": "Schedule", "schedule-groups": "ScheduleGroup"}.get(kind, kind)
    verb = {"POST": "Create", "PUT": "Update", "GET": "Get" if name else "List", "DELETE": "Delete"}
    query = {key: found[-1] for key, found in parse_qs(environ.get("QUERY_STRING", "")).items()}
    named = {_QUERIED.get(key, key): found for key, found in query.items()} | ({"Name": name} if name else {})
    return f"{verb[environ['REQUEST_METHOD']]}{word}{'' if name else 's'}", named | json.loads(body or b"{}")


_QUERIED = {"groupName": "GroupName", "ScheduleGroup": "GroupName", "clientToken": "ClientToken"}


def _parsed(service: str, fields: dict[str, str]) -> dict[str, Any]:
    if service not in XML_SERVICES:
        return fields
    try:
        operation = get_service_model(BOTO_NAMES.get(service, service)).operation_model(fields["Action"])
    except (KeyError, OperationNotFoundError):
        return fields
    request = {
        "method": "POST",
        "values": MultiDict(fields),
        "headers": Headers(),
        "body": b"",
        "url_path": "/",
        "url_params": {},
    }
    parsed: dict[str, Any] = PROTOCOL_PARSERS[XML_SERVICES[service]](operation, map_type=dict).parse(request)
    return parsed
