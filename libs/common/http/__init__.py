"""HTTP services: applications, the server, requests and answers."""

from libs.common.http.app import ServiceDescription, create_app
from libs.common.http.open_api import OPEN_API_ERROR_RESPONSES
from libs.common.http.operations import build_dependencies
from libs.common.http.request import (
    HttpRequest,
    RequestCaller,
    RequestPrincipal,
    get_principal,
    wrap_success,
)
from libs.common.http.server import run_service, serve

__all__ = [
    "OPEN_API_ERROR_RESPONSES",
    "HttpRequest",
    "RequestCaller",
    "RequestPrincipal",
    "ServiceDescription",
    "build_dependencies",
    "create_app",
    "get_principal",
    "run_service",
    "serve",
    "wrap_success",
]
