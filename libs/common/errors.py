"""The one exception tree: every error has a stable code, a status and the field at fault.

Services raise these; the two encoders in `libs.common.envelope` turn them into the
envelope of the API that was called. Codes are those that existing clients know
(`authentication_failed`, `parameter_validation_failed`, ...).
"""

import re
from collections.abc import Sequence
from typing import Any, ClassVar

OUR_FAULT = "an error of ours; the log has it under this request id"
"""The message of a failure whose reason only the log has."""


class ThingwayError(Exception):
    """Base of all errors that a client may see.

    `message` is a sentence for a person; `field` names the input at fault, as the
    client wrote it (`properties.temperature`); `detail` is extra data for the answer.
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
        """The message, with the field in front when it does not begin with it already."""
        if not self.field:
            return self.message
        rest = self.message.removeprefix(self.field)
        begins = rest != self.message and not re.match(r"\w", rest)
        return self.message if begins else f"{self.field}: {self.message}"


class InvalidInput(ThingwayError):
    """400: the request is well meant and wrong; `field` says where."""

    status = 400
    code = "parameter_validation_failed"
    faults: Sequence[Any] = ()
    """What `of_faults` was given, for who says it in other words."""

    @classmethod
    def of_faults(cls, faults: Sequence[Any]) -> "InvalidInput":
        """Make one error of several faults, each with a `path` and a `reason`."""
        text = "; ".join(f"{fault.path}: {fault.reason}" for fault in faults)
        detail = [{"field": fault.path, "reason": fault.reason} for fault in faults]
        error = cls(text, field=faults[0].path if faults else None, detail=detail)
        error.faults = faults
        return error


class MalformedRequest(InvalidInput):
    """400: the body cannot be read at all (broken JSON, broken form)."""

    code = "parameter_syntax_error"


class Unauthenticated(ThingwayError):
    """401: no token, a wrong one, or one that is no longer valid."""

    status = 401
    code = "authentication_failed"


class Forbidden(ThingwayError):
    """403: known, and not allowed."""

    status = 403
    code = "forbidden_permission"


class NotFound(ThingwayError):
    """404: there is no such thing, or none that the caller may see."""

    status = 404
    code = "data_not_found"


class MethodNotAllowed(ThingwayError):
    """405: the path exists, the method does not."""

    status = 405
    code = "method_not_allowed"


class Conflict(ThingwayError):
    """409: the request contradicts what is stored."""

    status = 409
    code = "data_conflict"


class TooLarge(ThingwayError):
    """413: the body is larger than the limit."""

    status = 413
    code = "data_too_large"


class UnsupportedMedia(ThingwayError):
    """415: the content type is not one the operation reads."""

    status = 415
    code = "unsupported_media_type"


class HeaderTooLarge(ThingwayError):
    """431: the header fields are larger than the limit."""

    status = 431
    code = "header_too_large"


class TooManyRequests(ThingwayError):
    """429: come back after `retry_after` seconds."""

    status = 429
    code = "too_many_requests"

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UpstreamFailed(ThingwayError):
    """502: a service of ours broke off or answered nonsense."""

    status = 502
    code = "bad_gateway"


class Unavailable(ThingwayError):
    """503: overloaded or starting; come back after `retry_after` seconds."""

    status = 503
    code = "service_unavailable"

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UpstreamTimeout(ThingwayError):
    """504: a service of ours did not answer in time."""

    status = 504
    code = "gateway_timeout"


BY_STATUS = {
    error.status: error
    for error in ThingwayError.__subclasses__()
    if error.__init__ is ThingwayError.__init__
}
"""The error class of each status that carries nothing but a message."""
