"""Addresses of flows: `/workflow/hooks/{token}` and `/workflow-http-in/{access_key}/…`.

The first is open to whoever knows the token, the second to whoever has the tenant's HTTP
credential.
"""

import base64
from typing import Any
from urllib.parse import unquote

import msgspec
from litestar import Router
from litestar.datastructures import UploadFile
from litestar.di import NamedDependency
from litestar.exceptions import ClientException
from litestar.params import FromPath

from libs.common.bus.hops import HOPS, read_hops
from libs.common.decoding import INVALID_JSON, decode_json, decode_text, is_json
from libs.common.errors import MalformedRequest, TooLarge
from libs.common.http import HttpRequest, provide
from libs.common.http.console import post, route
from libs.common.http.request import address_of, basic_login, host_of
from services.workflow.triggers.hooks import HookCaller, HttpLogins
from services.workflow.triggers.wiring import Triggers

LARGEST_BODY = 256 * 1024
OPEN_PATHS = frozenset({"/workflow/hooks/", "/workflow-http-in/"})
KEPT_BACK = frozenset({"authorization", "cookie", "proxy-authorization"})
"""Headers that flows do not see; nor those of the gateway (`x-…`, `thingway-…`)."""
_OURS = ("x-", "thingway-")


class Begun(msgspec.Struct):
    """A run that has begun."""

    run_id: str


@post("/hooks/{token:str}", body=Any, example={"door": "open"}, waits=True)
async def begin_flow(
    request: HttpRequest, hooks: NamedDependency[HookCaller], token: FromPath[str]
) -> Begun:
    """Begin the flow; it is recorded when this is answered, and ends later.

    The body may be JSON or text, of 256 KiB at most. The token is all that is asked for.
    """
    given = await _given(request)
    return Begun(str(await hooks.call(token, given, _hops(request))))


@route(
    ["/workflow-http-in/{access_key:str}", "/workflow-http-in/{access_key:str}/{rest:path}"],
    http_method=["GET", "POST", "PUT", "DELETE"],
    include_in_schema=False,
    waits=True,
)
async def call_flows(
    request: HttpRequest, hooks: NamedDependency[HookCaller], logins: NamedDependency[HttpLogins]
) -> None:
    """Begin every flow that has this address; they are recorded when this is answered.

    HTTP Basic, with the access key of the path and its secret. The answer is the same when there is
    no flow with this very address. The body is as that of hooks, or a form of texts and files.
    """
    path = request.scope["raw_path"].decode("latin-1").removeprefix("/workflow-http-in/")
    access_key, _, rest = path.partition("/")
    login = basic_login(request.headers.get("authorization", "").encode("latin-1"))
    tenant = await logins.tenant(unquote(access_key), login, address_of(request))
    given = await _given(request) | {"url": rest}
    method = request.scope["method"]
    await hooks.call_address(tenant, method, rest, given, _hops(request))


async def _given(request: HttpRequest) -> dict[str, Any]:
    params: dict[str, Any] = {name: request.query_params[name] for name in request.query_params}
    body = await request.body()
    content = None
    if request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        _check_size(body)
        params |= await _parts(request)
    else:
        content = _content(request, body)
    return {"body": content, "params": params, "header": _shown(request)}


async def _parts(request: HttpRequest) -> dict[str, str]:
    """The parts of a form: texts, and files as base64."""
    try:
        form = await request.form()
    except ClientException as error:
        raise MalformedRequest("the body is no form", field="body") from error
    found = {}
    for name, part in form.items():
        if isinstance(part, UploadFile):
            found[name] = base64.b64encode(await part.read()).decode()
        else:
            found[name] = str(part)
    return found


def _hops(request: HttpRequest) -> int:
    return read_hops({HOPS: request.headers.get(HOPS, "")})


def _check_size(body: bytes) -> None:
    if len(body) > LARGEST_BODY:
        raise TooLarge(f"the body has more than {LARGEST_BODY} bytes", field="body")


def _shown(request: HttpRequest) -> dict[str, str]:
    """The headers of the client, and the host that it called."""
    shown = {
        name: value
        for name, value in request.headers.items()
        if name not in KEPT_BACK and not name.startswith(_OURS)
    }
    return shown | {"host": host_of(request)}


def _content(request: HttpRequest, body: bytes) -> Any:
    """JSON as values, everything else as text, nothing as nothing."""
    _check_size(body)
    content_type = request.headers.get("content-type", "")
    if not body:
        return None
    if is_json(content_type):
        try:
            return decode_json(body, content_type)
        except INVALID_JSON as error:
            raise MalformedRequest(f"the body is no JSON: {error}", field="body") from error
    return decode_text(body, content_type)


def hook_router(triggers: Triggers) -> Router:
    """Return the router of all addresses."""
    workflow = Router("/workflow", route_handlers=[begin_flow], tags=["Workflows"])
    return Router("/", route_handlers=[workflow, call_flows], dependencies=provide(triggers))
