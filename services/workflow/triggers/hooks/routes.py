"""`/workflow/hooks/{token}`: open to whoever knows the token."""

from typing import Any

import msgspec
from litestar.di import NamedDependency
from litestar.params import FromPath

from libs.common.bus.hops import HOPS, hops_of
from libs.common.errors import MalformedRequest, TooLarge
from libs.common.http import HttpRequest
from libs.common.http.console import Answer, answer, post
from libs.common.http.request import host_of
from services.workflow.triggers.hooks.service import HookCaller

LARGEST_BODY = 256 * 1024
OPEN_PATHS = frozenset({"/workflow/hooks/"})
KEPT_BACK = frozenset({"authorization", "cookie", "proxy-authorization"})
"""Headers that flows do not see; nor those of the gateway (`x-…`, `thingway-…`)."""
_OURS = ("x-", "thingway-")


class Begun(msgspec.Struct):
    """A run that has begun."""

    run_id: str


@post(
    "/hooks/{token:str}",
    summary="Begin a flow that waits for this",
    body=Any,
    example={"door": "open"},
)
async def begin_flow(
    request: HttpRequest, hooks: NamedDependency[HookCaller], token: FromPath[str]
) -> Answer[Begun]:
    """Begin the flow; it is recorded when this is answered, and ends later.

    The body may be JSON or text, of 256 KiB at most. The token is all that is asked for.
    """
    given = {
        "body": _content(request, await request.body()),
        "params": {name: request.query_params[name] for name in request.query_params},
        "header": _shown(request),
    }
    hops = hops_of({HOPS: request.headers.get(HOPS, "")})
    return answer(request, Begun(str(await hooks.call(token, given, hops))))


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
    if len(body) > LARGEST_BODY:
        raise TooLarge(f"the body has more than {LARGEST_BODY} bytes", field="body")
    if not body:
        return None
    if "json" in request.headers.get("content-type", "").partition(";")[0].lower():
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise MalformedRequest(f"the body is no JSON: {error}", field="body") from error
    return body.decode(errors="replace")
