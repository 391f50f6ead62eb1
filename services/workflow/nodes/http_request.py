"""`httpRequest`: sends an HTTP request and returns the response."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec

from libs.common.bus.hops import hops_header
from libs.common.decoding import INVALID_JSON, decode_json, decode_text, is_json
from services.workflow.errors import NodeFailed
from services.workflow.expressions.references import format_text
from services.workflow.nodes.base import Group, NodeContext, Sample, Step
from services.workflow.nodes.parameters import Fault, Parameters, parameter
from services.workflow.outgoing.http import HttpAnswer, HttpRequest, Method, OutgoingHttp

LONGEST_URL, LONGEST_BODY = 4096, 100_000
MOST_NAMES = 50
MOST_REDIRECTS = 3
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
CONTENT_TYPES = (JSON, FORM, "text/plain")
_TYPE = "content-type"


class HttpRequestParameters(Parameters):
    """The request to send."""

    secrets_go_to = ("url",)

    url: Annotated[str, parameter("URL", "Address to call", min_length=1, max_length=LONGEST_URL)]
    method: Annotated[Method, parameter("Method")] = "GET"
    header: Annotated[
        dict[str, Any],
        parameter(
            "Headers",
            "Headers of the request, which may contain credentials",
            ui="paramAssignInput",
            secret=True,
            max_length=MOST_NAMES,
        ),
    ] = msgspec.field(default_factory=dict)
    params: Annotated[
        dict[str, Any],
        parameter("Query", "Added to the URL", ui="paramAssignInput", max_length=MOST_NAMES),
    ] = msgspec.field(default_factory=dict)
    body: Annotated[
        Any,
        parameter(
            "Body",
            "Text is sent unchanged, all other values as JSON. `{type, value}` sets the content "
            "type: `application/json`, `application/x-www-form-urlencoded` or `text/plain`",
            ui="httpBodyInput",
        ),
    ] = None

    def faults(self) -> Iterable[Fault]:
        """Yield a fault for a body that the method does not allow."""
        _, content = _split_body(self.body)
        if content not in (None, "") and self.method in ("GET", "HEAD"):
            yield Fault("body", f"must be empty for {self.method}; choose another method")


class HttpRequestNode(Step[HttpRequestParameters]):
    """Sends a request. Returns `statusCode`, `responseHeaders`, `responseBody`.

    `responseBody` is None if the body cannot be decoded; `responseFault` is the reason, else None.
    """

    name = "httpRequest"
    title = "HTTP Request"
    description = "Sends a request to another system over HTTP"
    group = Group.EXTERNAL

    def __init__(self, http: OutgoingHttp) -> None:
        self._http = http

    async def run(
        self, context: NodeContext, parameters: HttpRequestParameters, body: Any
    ) -> dict[str, Any] | Sample:
        """Send the request; any status is a response. A dry run returns a sample."""
        request = _build_request(context, parameters)
        if context.dry_run:
            await self._http.check(request, context.seconds_left)
            supposed = {"statusCode": 200, "responseHeaders": {}, "responseBody": {}}
            return Sample(supposed | {"responseFault": None})
        answer = await self._http.send(request, context.seconds_left)
        return {
            "statusCode": answer.status,
            "responseHeaders": dict(answer.headers),
            "responseBody": _decode_content(answer),
            "responseFault": answer.fault or None,
        }


def _build_request(context: NodeContext, parameters: HttpRequestParameters) -> HttpRequest:
    url = str(context.resolve(parameters.url))
    if query := _texts(context.resolve(parameters.params)):
        url = _with_query(url, urlencode(query))
    headers = _texts(context.resolve(parameters.header)) | hops_header(context.hops + 1)
    kind, content = _split_body(context.resolve(parameters.body))
    encoded = b""
    if kind == FORM and isinstance(content, Mapping):
        encoded = urlencode(_texts(content)).encode()
    elif isinstance(content, str):
        encoded = content.encode()
    elif content is not None:
        encoded, kind = msgspec.json.encode(content), kind or JSON
    if kind and encoded and _TYPE not in (name.lower() for name in headers):
        headers["Content-Type"] = kind
    if len(encoded) > LONGEST_BODY:
        raise NodeFailed(f"the body must have at most {LONGEST_BODY} bytes")
    return HttpRequest(
        method=parameters.method,
        url=url,
        headers=headers,
        body=encoded,
        redirects=MOST_REDIRECTS,
    )


def _with_query(url: str, query: str) -> str:
    """Add a query to a URL, keeping its own query and dropping its fragment."""
    url, _, _ = url.partition("#")
    if "?" not in url:
        return f"{url}?{query}"
    return url + query if url.endswith(("?", "&")) else f"{url}&{query}"


def _split_body(body: Any) -> tuple[str, Any]:
    """Return the content type and content of a body in the form of editors."""
    if isinstance(body, dict) and body.keys() == {"type", "value"}:
        kind = body["type"] or ""
        if kind in ("", *CONTENT_TYPES):
            content = body["value"]
            return kind, None if not kind and not content else content
    return "", body


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: format_text(value) for name, value in values.items() if value is not None}


def _decode_content(answer: HttpAnswer) -> Any:
    """Return decoded JSON, or text for any other body; None for an empty body."""
    if answer.fault:
        return None
    if is_json(answer.content_type):
        if not decode_text(answer.body, answer.content_type).strip():
            return None
        with suppress(*INVALID_JSON):
            return decode_json(answer.body, answer.content_type)
    return decode_text(answer.body, answer.content_type)
