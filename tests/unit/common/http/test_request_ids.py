"""The one id of a request: in the answer, and in the log, also of what no operation answers."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from litestar.testing import TestClient

from libs.common.http.app import ServiceDescription, create_app
from libs.common.http.console import get
from libs.common.http.guards import users
from libs.common.http.ids import PathId
from libs.common.http.request import LogRateLimit
from libs.common.identity import (
    PRINCIPAL_HEADER,
    HeaderSigner,
    HeaderVerifier,
    Principal,
    PrincipalKind,
    generate_keys,
)
from tests import apps
from tests.loglines import logged_lines

REQUEST_ID = "0123456789abcdef" * 2


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    """What is logged during a test."""
    with logged_lines() as found:
        yield found


@get("/things/{thing_id:str}", guards=[users])
async def get_thing(thing_id: PathId) -> int:
    """Return the id, or fail."""
    if thing_id == 7:
        raise RuntimeError("broken")
    return thing_id


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient[Any]]:
    """A service with one operation."""
    private, public = generate_keys()
    service = ServiceDescription(
        name="test",
        title="Test",
        routes=[get_thing],
        verifier=HeaderVerifier(public),
        telemetry=apps.silent(),
    )
    with TestClient(create_app(service)) as made:
        made.headers[PRINCIPAL_HEADER] = HeaderSigner(private).sign(
            Principal(PrincipalKind.USER, "tenant", "1")
        )
        yield made


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/device/openapi/v1/nothing", 404),
        ("POST", "/things/1", 405),
        ("GET", "/things/x", 400),
        ("GET", "/things/7", 500),
    ],
)
def test_a_failure_has_the_id_of_the_request(
    client: TestClient[Any], lines: list[dict[str, Any]], method: str, path: str, status: int
) -> None:
    """Paths and methods without an operation have it as well, in both envelopes."""
    answer = client.request(method, path, headers={"X-Request-Id": REQUEST_ID})
    body = answer.json()
    assert answer.status_code == status
    assert body.get("request_id", body.get("requestId")) == REQUEST_ID
    assert REQUEST_ID in {line.get("requestId") for line in lines}


def test_a_refused_stranger_has_the_id_of_the_request(
    client: TestClient[Any], lines: list[dict[str, Any]]
) -> None:
    """The answer before any operation runs has it as well."""
    sent = {"X-Request-Id": REQUEST_ID, PRINCIPAL_HEADER: "nobody"}
    answer = client.get("/things/1", headers=sent)
    assert (answer.status_code, answer.json()["request_id"]) == (401, REQUEST_ID)
    assert REQUEST_ID in {line.get("requestId") for line in lines}


def test_a_line_of_a_refusal_has_no_values(
    client: TestClient[Any], lines: list[dict[str, Any]]
) -> None:
    """It names method, path template, status, code and field."""
    client.get("/things/secret-value")
    assert [line["message"] for line in lines] == [
        "rejected GET /things/{thing_id}: 400 parameter_syntax_error 'thing_id'"
    ]


def test_a_flood_of_refusals_does_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit of a second lines are only counted; the next second says how many."""
    now = 5.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    limit = LogRateLimit(2)
    records = [logging.makeLogRecord({"msg": "refused"}) for _ in range(6)]
    assert [limit.filter(record) for record in records[:5]] == [True, True, False, False, False]
    now = 6.0
    assert limit.filter(records[5])
    assert records[5].getMessage() == "refused (3 similar lines were dropped)"
