"""HTTP services: applications, the server, requests and answers."""

from libs.common.http.app import Check, Service, create_app
from libs.common.http.open_api import REFUSALS
from libs.common.http.operations import provide
from libs.common.http.request import (
    HttpRequest,
    RequestCaller,
    RequestPrincipal,
    ok,
    principal_of,
    request_id_of,
)
from libs.common.http.server import run_service, serve

__all__ = [
    "REFUSALS",
    "Check",
    "HttpRequest",
    "RequestCaller",
    "RequestPrincipal",
    "Service",
    "create_app",
    "ok",
    "principal_of",
    "provide",
    "request_id_of",
    "run_service",
    "serve",
]
