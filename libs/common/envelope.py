"""The two envelopes, and which of them answers a path.

The device open API writes camelCase (`requestId`, `errCode`, `errMsg`); the management API
snake_case (`request_id`, `error_code`, ...). Null fields are left out of both.
"""

from typing import Any, Generic, Literal, TypeVar

import msgspec

from libs.common.errors import ThingwayError

T = TypeVar("T")

OPEN_API_PREFIXES = ("/device/openapi/", "/oauth/token", "/ingest/")
"""Paths whose answers wear the open API's envelope; all others wear the console's."""


class Success(msgspec.Struct, Generic[T], omit_defaults=False, kw_only=True):
    """An open API answer: `{data?, status: "Success", requestId}`."""

    data: T | msgspec.UnsetType = msgspec.UNSET
    status: Literal["Success"] = "Success"
    request_id: str = msgspec.field(name="requestId")


class Answer(msgspec.Struct, Generic[T], omit_defaults=False, kw_only=True):
    """An answer of the management API: `{data?, status: "Success", request_id}`."""

    data: T | msgspec.UnsetType = msgspec.UNSET
    status: Literal["Success"] = "Success"
    request_id: str


def _failed() -> Literal["Failed"]:
    """A default that is written: `omit_defaults` leaves out only values."""
    return "Failed"


class Failure(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An open API refusal: `{status: "Failed", requestId, errCode, errMsg}`, never with `data`."""

    status: Literal["Failed"] = msgspec.field(default_factory=_failed)
    requestId: str  # noqa: N815
    errCode: str  # noqa: N815
    errMsg: str  # noqa: N815
    """Names every fault."""


class ConsoleFailure(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A refusal of the management API."""

    status: Literal["Failed"] = msgspec.field(default_factory=_failed)
    request_id: str
    error_code: str
    error_message: str
    detail_message: str | None = None
    data: Any = None


_CONSOLE_CODES = {
    "data_not_found": "data_no_found",
    "too_many_requests": "request_too_frequently",
}
"""Codes that consoles know under another spelling."""


def console_code(error: ThingwayError) -> str:
    """The code of an error as consoles know it."""
    return _CONSOLE_CODES.get(error.code, error.code)


def encode_error(error: ThingwayError, *, path: str, request_id: str) -> bytes:
    """Encode `error` in the envelope of the API that `path` belongs to."""
    if path.startswith(OPEN_API_PREFIXES):
        return msgspec.json.encode(
            Failure(requestId=request_id, errCode=error.code, errMsg=error.text)
        )
    return msgspec.json.encode(
        ConsoleFailure(
            request_id=request_id,
            error_code=console_code(error),
            error_message=error.message,
            detail_message=error.field,
            data=error.detail,
        )
    )


def error_headers(error: ThingwayError) -> dict[str, str]:
    """Headers that belong to an error: `Retry-After` in whole seconds, rounded up."""
    retry_after = getattr(error, "retry_after", None)
    if retry_after is None:
        return {}
    return {"Retry-After": str(max(1, -int(-retry_after // 1)))}
