"""The two response envelopes, and the choice between them by path.

The device open API uses camelCase (`requestId`, `errCode`, `errMsg`), the management API snake_case
(`request_id`, `error_code`, ...). Both omit null fields.
"""

from typing import Any, Generic, Literal, TypeVar

import msgspec

from libs.common.errors import ThingwayError

T = TypeVar("T")

OPEN_API_PREFIXES = ("/device/openapi/", "/oauth/token", "/ingest/")
"""Prefixes of paths with the open API's envelope; others have the management API's."""


class Success(msgspec.Struct, Generic[T], omit_defaults=False, kw_only=True):
    """An open API answer: `{data?, status: "Success", requestId}`."""

    data: T | msgspec.UnsetType = msgspec.UNSET
    """The result. Absent if the operation returns none."""
    status: Literal["Success"] = "Success"
    request_id: str = msgspec.field(name="requestId")


class Answer(msgspec.Struct, Generic[T], omit_defaults=False, kw_only=True):
    """An answer of the management API: `{data?, status: "Success", request_id}`."""

    data: T | msgspec.UnsetType = msgspec.UNSET
    """The result. Absent if the operation returns none."""
    status: Literal["Success"] = "Success"
    request_id: str


def _failed() -> Literal["Failed"]:
    """Return a default that `omit_defaults` encodes: it omits only plain values."""
    return "Failed"


class Failure(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An open API error: `{status: "Failed", requestId, errCode, errMsg}`."""

    status: Literal["Failed"] = msgspec.field(default_factory=_failed)
    requestId: str  # noqa: N815
    errCode: str  # noqa: N815
    errMsg: str  # noqa: N815
    """The message, which lists every invalid field."""


class ConsoleFailure(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An error of the management API."""

    status: Literal["Failed"] = msgspec.field(default_factory=_failed)
    request_id: str
    error_code: str
    error_message: str
    detail_message: str | None = None
    """Field at fault, for example `config.properties.mode`."""
    data: Any = None
    """Details by error code, such as the list of invalid fields."""


_CONSOLE_CODE_BY_CODE = {
    "data_not_found": "data_no_found",
    "too_many_requests": "request_too_frequently",
}
"""Codes that differ in the management API."""


def console_code(error: ThingwayError) -> str:
    """Return the code of an error in the management API."""
    return _CONSOLE_CODE_BY_CODE.get(error.code, error.code)


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
    """Return the headers of an error: `Retry-After` in whole seconds, rounded up."""
    retry_after = getattr(error, "retry_after", None)
    if retry_after is None:
        return {}
    return {"Retry-After": str(max(1, -int(-retry_after // 1)))}
