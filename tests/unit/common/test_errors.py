"""Errors and the two envelopes."""

import msgspec
import pytest
from litestar.exceptions import (
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)

from libs.common.envelope import Success, encode_error, error_headers
from libs.common.errors import (
    ERRORS_BY_STATUS,
    InvalidInput,
    NotFound,
    ThingwayError,
    TooManyRequests,
    Unavailable,
)
from libs.common.http.failures import as_thingway_error
from libs.common.store.mongo import StoreUnavailable
from libs.common.store.redis import RedisConnectionError
from libs.common.tsl import Fault

OPEN = "/device/openapi/v1/devices"


def test_errors_of_the_open_api_are_in_camel_case():
    """`status`, `requestId`, `errCode` and `errMsg` with the field in it; never `data`."""
    error = InvalidInput("must be at least 1", field="pageSize", detail={"a": 1})
    assert msgspec.json.decode(encode_error(error, path=OPEN, request_id="r")) == {
        "status": "Failed",
        "requestId": "r",
        "errCode": "parameter_validation_failed",
        "errMsg": "pageSize: must be at least 1",
    }


def test_errors_of_the_management_api_are_in_snake_case():
    """`request_id`, `error_code`, `error_message` and the field as detail."""
    error = NotFound("there is none", field="id", detail={"a": 1})
    assert msgspec.json.decode(encode_error(error, path="/api/v1/users", request_id="r")) == {
        "status": "Failed",
        "request_id": "r",
        "error_code": "data_no_found",
        "error_message": "there is none",
        "detail_message": "id",
        "data": {"a": 1},
    }


def test_a_success_without_data_has_none():
    """`data` is left out, not null."""
    assert msgspec.json.decode(msgspec.json.encode(Success(request_id="r"))) == {
        "status": "Success",
        "requestId": "r",
    }


@pytest.mark.parametrize(("seconds", "header"), [(0.01, "1"), (1.0, "1"), (1.2, "2"), (30, "30")])
def test_retry_after_is_whole_seconds_rounded_up(seconds: float, header: str):
    """Nobody comes back too early."""
    assert error_headers(TooManyRequests("slow", retry_after=seconds)) == {"Retry-After": header}
    assert error_headers(NotFound("x")) == {}


def test_several_faults_make_one_error():
    """All are in the message and in the detail; the first names the field."""
    error = InvalidInput.from_faults([Fault("a.b", "is bad"), Fault("c", "is worse")])
    assert error.field == "a.b"
    assert error.text == "a.b: is bad; c: is worse"
    assert error.detail == [
        {"field": "a.b", "reason": "is bad"},
        {"field": "c", "reason": "is worse"},
    ]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NotFound("x"), 404),
        (NotFoundException(), 404),
        (MethodNotAllowedException(), 405),
        (ValidationException("x", extra=[{"key": "a_b", "message": "`m`"}]), 400),
        (ValidationException("x"), 400),
        (StoreUnavailable("away"), 503),
        (RedisConnectionError("away"), 503),
        (Unavailable("x"), 503),
        (RecursionError(), 400),
        (KeyError("bug"), 500),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_every_exception_has_a_status(error: Exception, status: int):
    """Clients' mistakes are 4xx, stores that are away 503, bugs 500 without their text."""
    known = as_thingway_error(error, OPEN)
    assert known.status == status
    assert "bug" not in known.message


def test_parameters_are_named_as_the_client_wrote_them():
    """A query parameter of the open API is in camelCase."""
    extra = [{"key": "page_size", "message": "Expected `int`", "source": "query"}]
    error = as_thingway_error(ValidationException("x", extra=extra), OPEN)
    assert error.field == "pageSize"


@pytest.mark.parametrize(
    ("path", "code"), [(OPEN, "parameter_missing"), ("/device", "parameter_validation_failed")]
)
def test_a_missing_value_has_its_own_code_in_the_open_api(path: str, code: str):
    """The message names its path once."""
    message = "Object missing required field `data`"
    found = ValidationException("x", extra=[{"key": "widgets[0]", "message": message}])
    error = as_thingway_error(found, path)
    assert (error.code, error.field) == (code, "widgets[0].data")
    assert error.text == error.message == "widgets[0].data: is required"


def test_a_field_precedes_a_message_that_does_not_begin_with_it():
    """The message may contain the letters of the field elsewhere."""
    assert InvalidInput("must be a number", field="a").text == "a: must be a number"
    assert InvalidInput("a.b: must be it", field="a.b").text == "a.b: must be it"
    assert InvalidInput("nameless", field="name").text == "name: nameless"


def test_codes_and_statuses_are_one_to_one():
    """The table that rpc reads finds each class by its status."""
    assert all(kind.status == status for status, kind in ERRORS_BY_STATUS.items())
    assert ThingwayError.status not in ERRORS_BY_STATUS
