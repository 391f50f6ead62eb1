"""The errors of the platform, each with a stable code and an HTTP status.

Services raise these errors; `libs.common.envelope` encodes them in the envelope of the API that was
called. Existing clients know the codes (`authentication_failed`, `parameter_validation_failed`,
...).
"""

import re
from collections.abc import Sequence
from typing import Any, ClassVar

INTERNAL_ERROR_MESSAGE = "internal error; search the log for this request id"
"""The message of an error whose reason is only in the log."""


class ThingwayError(Exception):
    """The base class of errors that a client may see.

    `message` is a sentence for a person. `field` is the path of the invalid input as the client
    wrote it (`properties.temperature`). `detail` is additional data for the answer.
    """

    status: ClassVar[int] = 500
    code: str = "server_error"

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        code: str | None = None,
        detail: Any = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.detail = detail
        if code is not None:
            self.code = code

    @property
    def text(self) -> str:
        """Return the message after the field, unless it begins with the field."""
        if not self.field:
            return self.message
        rest = self.message.removeprefix(self.field)
        begins = rest != self.message and not re.match(r"\w", rest)
        return self.message if begins else f"{self.field}: {self.message}"


class InvalidInput(ThingwayError):
    """400: the request has an invalid value; `field` locates it."""

    status = 400
    code = "parameter_validation_failed"
    faults: Sequence[Any] = ()
    """The faults that `from_faults` got, for callers that format them differently."""

    @classmethod
    def from_faults(cls, faults: Sequence[Any]) -> "InvalidInput":
        """Return one error for several faults, each with a `path` and a `reason`."""
        text = "; ".join(f"{fault.path}: {fault.reason}" for fault in faults)
        detail = [{"field": fault.path, "reason": fault.reason} for fault in faults]
        error = cls(text, field=faults[0].path if faults else None, detail=detail)
        error.faults = faults
        return error


class MalformedRequest(InvalidInput):
    """400: the body cannot be decoded (invalid JSON, invalid form)."""

    code = "parameter_syntax_error"


class Unauthenticated(ThingwayError):
    """401: a missing, invalid or expired token."""

    status = 401
    code = "authentication_failed"


class Forbidden(ThingwayError):
    """403: the caller has no permission."""

    status = 403
    code = "forbidden_permission"


class NotFound(ThingwayError):
    """404: the resource does not exist, or the caller may not see it."""

    status = 404
    code = "data_not_found"


class MethodNotAllowed(ThingwayError):
    """405: the path exists, the method does not."""

    status = 405
    code = "method_not_allowed"


class Conflict(ThingwayError):
    """409: the request conflicts with stored data."""

    status = 409
    code = "data_conflict"


class TooLarge(ThingwayError):
    """413: the body is larger than the limit."""

    status = 413
    code = "data_too_large"


class UnsupportedMedia(ThingwayError):
    """415: the operation does not accept the content type."""

    status = 415
    code = "unsupported_media_type"


class HeaderTooLarge(ThingwayError):
    """431: the header fields are larger than the limit."""

    status = 431
    code = "header_too_large"


class TooManyRequests(ThingwayError):
    """429: the client should retry after `retry_after` seconds."""

    status = 429
    code = "too_many_requests"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UpstreamFailed(ThingwayError):
    """502: a service closed the connection or sent an invalid answer."""

    status = 502
    code = "bad_gateway"


class Unavailable(ThingwayError):
    """503: overloaded or starting; the client retries after `retry_after` seconds."""

    status = 503
    code = "service_unavailable"

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UpstreamTimeout(ThingwayError):
    """504: a service did not answer in time."""

    status = 504
    code = "gateway_timeout"


ERRORS_BY_STATUS = {
    error.status: error
    for error in ThingwayError.__subclasses__()
    if error.__init__ is ThingwayError.__init__
}
"""The error class of each status that needs only a message."""
