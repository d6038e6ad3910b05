"""Credentials: a client's secret is exchanged for a token, a machine's identity has one of its own."""

from __future__ import annotations

from tests.clouds.azure.model import LAUNCHER, TENANT
from tests.clouds.rest import Refusal, Reply, Request

CLIENT, SECRET = "c11e0000-0000-4000-8000-000000000001", "model-of-azure"
TOKEN = "model.of.azure."
TOKEN_PATH, CONFIGURATION_PATH = "/oauth2/v2.0/token", "/.well-known/openid-configuration"


def configuration(url: str) -> Reply:
    """Return what MSAL asks of an authority before anything else."""
    at = f"{url}/{TENANT}"
    places = {"authorization_endpoint": f"{at}/oauth2/v2.0/authorize", "issuer": f"{at}/v2.0"}
    return Reply(200, {**places, "token_endpoint": f"{at}{TOKEN_PATH}"})


def token(request: Request) -> Reply:
    """Return a token for the one client that is known. Raises Refusal for another, or another secret."""
    form = request.body or {}
    if form.get("client_id") != CLIENT or form.get("client_secret") != SECRET:
        sentence = f"AADSTS7000215: Invalid client secret provided for app '{form.get('client_id')}'."
        raise Refusal("invalid_client", sentence, 401)
    return Reply(200, {"token_type": "Bearer", "expires_in": 3599, "access_token": f"{TOKEN}{LAUNCHER}"})


def principal(request: Request) -> str:
    """Return whose token a request has. Raises Refusal for none, and for one that is not from here."""
    given = request.headers.get("Authorization", "")
    if not given.startswith(f"Bearer {TOKEN}"):
        sentence = "Authentication failed. The 'Authorization' header is missing or invalid."
        raise Refusal("InvalidAuthenticationToken" if given else "AuthenticationFailed", sentence, 401)
    return given.removeprefix(f"Bearer {TOKEN}")
