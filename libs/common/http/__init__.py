"""HTTP services: applications, the server, requests and answers."""

from libs.common.http.app import Service, create_app
from libs.common.http.open_api import REJECTIONS
from libs.common.http.operations import provide
from libs.common.http.request import (
    HttpRequest,
    RequestCaller,
    RequestPrincipal,
    get_principal,
    ok,
)
from libs.common.http.server import run_service, serve

__all__ = [
    "REJECTIONS",
    "HttpRequest",
    "RequestCaller",
    "RequestPrincipal",
    "Service",
    "create_app",
    "get_principal",
    "ok",
    "provide",
    "run_service",
    "serve",
]
