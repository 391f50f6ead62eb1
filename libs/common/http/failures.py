"""Conversion of every exception into a `ThingwayError` in the right envelope."""

import logging
import re
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.types import ExceptionHandlersMap

from libs.common.decoding import InputFault, parse_validation_error
from libs.common.envelope import OPEN_API_PREFIXES, encode_error, error_headers
from libs.common.errors import (
    ERRORS_BY_STATUS,
    INTERNAL_ERROR_MESSAGE,
    InvalidInput,
    MalformedRequest,
    MethodNotAllowed,
    ThingwayError,
    TooLarge,
    Unavailable,
)
from libs.common.http.request import IS_OPTIONS_KEY, get_request_id, log_rejection
from libs.common.store.mongo import StoreUnavailable, WriteNotAcknowledged
from libs.common.store.redis import RedisConnectionError, RedisTimeoutError

log = logging.getLogger(__name__)

_match_missing_parameter = re.compile("Missing required [a-z]+ parameter '([^']+)'").match
"""Matches Litestar's message for a missing parameter."""
MISSING_VALUE_CODE = "parameter_missing"
"""The open API's code for a missing value; the management API has no such code."""


def _validation_error(error: ValidationException, path: str) -> ThingwayError:
    entries: list[dict[str, Any]] = error.extra if isinstance(error.extra, list) else []
    faults = [_input_fault(entry, path) for entry in entries]
    if not faults and (match := _match_missing_parameter(error.detail)):
        faults = [InputFault(match[1], "is required", missing=True)]
    if not faults:
        return InvalidInput(error.detail)
    first, text = faults[0], "; ".join(fault.text for fault in faults)
    of_open_api = path.startswith(OPEN_API_PREFIXES)
    in_path = bool(entries) and entries[0].get("source") == "path" and not of_open_api
    kind = MalformedRequest if in_path else InvalidInput  # the code that consoles expect
    code = MISSING_VALUE_CODE if first.missing and of_open_api else None
    return kind(text, field=first.place or None, code=code)


def _input_fault(entry: dict[str, Any], path: str) -> InputFault:
    """Return field and reason, with the field's name in the API.

    Litestar calls the body `data`, and a parameter by its name in the handler; parameters of the
    open API are in camelCase.
    """
    key, message = str(entry.get("key", "")), str(entry.get("message", ""))
    if key == "data":
        key = ""
        if message == "'data'":
            return InputFault("", "a JSON body is required", missing=True)
    if entry.get("source") in {"query", "path"} and path.startswith(OPEN_API_PREFIXES):
        first, *rest = key.split("_")
        key = first + "".join(part.capitalize() for part in rest)
    return parse_validation_error(message, key)


def as_thingway_error(error: Exception, path: str = "") -> ThingwayError:  # noqa: PLR0911 - a table of cases
    """Return the error to answer: 503 for a database failure, 500 for an unexpected exception.

    Invalid input and errors of Litestar get their 4xx status; `path` determines field names.
    """
    match error:
        case ThingwayError():
            return error
        case ValidationException():
            return _validation_error(error, path)
        case HTTPException(status_code=400):
            return MalformedRequest(error.detail)
        case HTTPException(status_code=413):
            return TooLarge("the body is larger than the limit")
        case HTTPException() if error.status_code in ERRORS_BY_STATUS:
            return ERRORS_BY_STATUS[error.status_code](error.detail)
        case msgspec.ValidationError():
            fault = parse_validation_error(str(error))
            return InvalidInput(fault.reason, field=fault.place or None)
        case msgspec.DecodeError():
            return MalformedRequest(f"the body is not JSON: {error}")
        case RecursionError():
            return MalformedRequest("the body is nested too deeply")
        case UnicodeDecodeError():
            return MalformedRequest("the body is not UTF-8")
        case (
            StoreUnavailable()
            | WriteNotAcknowledged()
            | RedisConnectionError()
            | RedisTimeoutError()
        ):
            log.warning("a database does not answer: %r", error)
            return Unavailable("a database does not answer at the moment")
        case _:
            return ThingwayError(INTERNAL_ERROR_MESSAGE)


def handle_exception(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Answer an exception; log an internal error with its trace."""
    path = request.scope.get("raw_path", b"").decode() or request.url.path
    answered_error = as_thingway_error(error, path)
    if isinstance(answered_error, MethodNotAllowed) and IS_OPTIONS_KEY in request.scope:
        return Response(b"", status_code=204, headers=_response_headers(error))
    request_id = get_request_id(request)
    if answered_error.status == ThingwayError.status:
        log.error("request %s %s failed", request_id, request.url.path, exc_info=error)
    else:
        log_rejection(answered_error, request.method, request.scope.get("path_template", ""))
    return Response(
        encode_error(answered_error, path=path, request_id=request_id),
        status_code=answered_error.status,
        media_type="application/json",
        headers={**_response_headers(error), **error_headers(answered_error)},
    )


def _response_headers(error: Exception) -> dict[str, str]:
    """Return Litestar's headers, with `Allow` for a 405 (RFC 9110, 15.5.6)."""
    litestar_headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return {
        name: _allow_header(value.split(", ")) if name == "allow" else value
        for name, value in litestar_headers.items()
    }


def _allow_header(methods: list[str]) -> str:
    """Return `Allow` for methods: HEAD is allowed wherever GET is (RFC 9110, 9.3.2)."""
    return ", ".join(sorted({*methods, "HEAD"} if "GET" in methods else methods))


EXCEPTION_HANDLERS: ExceptionHandlersMap = {
    Exception: handle_exception,
    HTTPException: handle_exception,
}
