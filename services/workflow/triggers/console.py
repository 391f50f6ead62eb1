"""HTTP addresses of flows: `/workflow/hooks/`, `/workflow-http-in/{access_key}/`.

The first needs the token of the hook, the second the tenant's HTTP credential.
"""

import base64
from typing import Annotated, Any
from urllib.parse import unquote

import msgspec
from litestar import Router
from litestar.datastructures import UploadFile
from litestar.di import NamedDependency
from litestar.exceptions import ClientException
from litestar.params import PathParameter

from libs.common.bus.hops import HOPS_HEADER, read_hops
from libs.common.decoding import JSON_ERRORS, decode_json, decode_text, is_json
from libs.common.errors import MalformedRequest, TooLarge
from libs.common.http import HttpRequest, build_dependencies
from libs.common.http.console import post, route
from libs.common.http.request import basic_login, get_address, get_host
from services.workflow.triggers.hooks import HookCaller, HttpLogins
from services.workflow.triggers.wiring import Triggers

MAX_BODY_BYTES = 256 * 1024
PUBLIC_PATHS = frozenset({"/workflow/hooks/", "/workflow-http-in/"})
HIDDEN_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})
"""Headers hidden from flows, in addition to those of the gateway (`_GATEWAY_HEADERS`)."""
_GATEWAY_HEADERS = ("x-", "thingway-")


class StartedRun(msgspec.Struct):
    """A started run."""

    run_id: str
    """Id of the run."""


@post(
    "/hooks/{token:str}",
    body=Any,
    example={"door": "open"},
    waits=True,
    summary="Start flow by webhook",
)
async def begin_flow(
    request: HttpRequest,
    hooks: NamedDependency[HookCaller],
    token: Annotated[str, PathParameter(description="Token of the flow's webhook node.")],
) -> StartedRun:
    """Start the flow and return when its run is recorded.

    The body may be JSON or text of up to 256 KiB. The token is the only authentication.
    """
    request_input = await _read_request_input(request)
    return StartedRun(str(await hooks.start_by_token(token, request_input, _read_hops(request))))


@route(
    ["/workflow-http-in/{access_key:str}", "/workflow-http-in/{access_key:str}/{rest:path}"],
    http_method=["GET", "POST", "PUT", "DELETE"],
    include_in_schema=False,
    waits=True,
)
async def call_flows(
    request: HttpRequest, hooks: NamedDependency[HookCaller], logins: NamedDependency[HttpLogins]
) -> None:
    """Start all flows with this address and return when their runs are recorded.

    It needs HTTP Basic with the access key of the path and its secret. The response is the same if
    no flow matches, but 400 if no enabled flow of the tenant has an address with a login. The body
    is JSON, text, or a multipart form of texts and files.
    """
    path = request.scope["raw_path"].decode("latin-1").removeprefix("/workflow-http-in/")
    access_key, _, rest = path.partition("/")
    login = basic_login(request.headers.get("authorization", "").encode("latin-1"))
    tenant = await logins.verify(unquote(access_key), login, get_address(request))
    request_input = await _read_request_input(request) | {"url": rest}
    method = request.scope["method"]
    await hooks.start_by_address(tenant, method, rest, request_input, _read_hops(request))


async def _read_request_input(request: HttpRequest) -> dict[str, Any]:
    params: dict[str, Any] = {name: request.query_params[name] for name in request.query_params}
    body = await request.body()
    content = None
    if request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        _check_body_size(body)
        params |= await _read_form(request)
    else:
        content = _decode_body(request, body)
    return {"body": content, "params": params, "header": _visible_headers(request)}


async def _read_form(request: HttpRequest) -> dict[str, str]:
    """Return the parts of a form: texts, and files as base64."""
    try:
        form = await request.form()
    except ClientException as error:
        raise MalformedRequest("must be a multipart form", field="body") from error
    parts = {}
    for name, part in form.items():
        if isinstance(part, UploadFile):
            parts[name] = base64.b64encode(await part.read()).decode()
        else:
            parts[name] = str(part)
    return parts


def _read_hops(request: HttpRequest) -> int:
    return read_hops({HOPS_HEADER: request.headers.get(HOPS_HEADER, "")})


def _check_body_size(body: bytes) -> None:
    if len(body) > MAX_BODY_BYTES:
        raise TooLarge(f"must have at most {MAX_BODY_BYTES} bytes", field="body")


def _visible_headers(request: HttpRequest) -> dict[str, str]:
    """Return the headers of the client, and the called host."""
    visible = {
        name: value
        for name, value in request.headers.items()
        if name not in HIDDEN_HEADERS and not name.startswith(_GATEWAY_HEADERS)
    }
    return visible | {"host": get_host(request)}


def _decode_body(request: HttpRequest, body: bytes) -> Any:
    """Return decoded JSON, or text for any other body; None for an empty body."""
    _check_body_size(body)
    content_type = request.headers.get("content-type", "")
    if not body:
        return None
    if is_json(content_type):
        try:
            return decode_json(body, content_type)
        except JSON_ERRORS as error:
            raise MalformedRequest(f"must be JSON: {error}", field="body") from error
    return decode_text(body, content_type)


def hook_router(triggers: Triggers) -> Router:
    """Return the router of all addresses."""
    workflow = Router("/workflow", route_handlers=[begin_flow], tags=["Workflows"])
    return Router(
        "/", route_handlers=[workflow, call_flows], dependencies=build_dependencies(triggers)
    )
