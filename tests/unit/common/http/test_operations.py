"""Operations of the management API, and of a module."""

from types import SimpleNamespace
from typing import Any

import pytest
from litestar import Response
from litestar.testing import create_test_client

from libs.common.envelope import Answer
from libs.common.http.console import get, route
from libs.common.http.operations import list_operations, route_operations


class More(Answer[int], kw_only=True):
    """An envelope of its own."""

    detail: str


@get("/value")
async def value() -> list[int] | None:
    """Give something."""
    return [1]


@get("/nothing")
async def nothing() -> None:
    """Give nothing."""


@get("/own")
async def own() -> More:
    """Give an envelope."""
    return More(data=1, request_id="r", detail="d")


@route("/file", http_method=["POST", "PUT"])
async def file() -> Response[bytes]:
    """Give a response."""
    return Response(b"bytes", media_type="text/plain")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/value", {"data": [1], "status": "Success"}),
        ("/nothing", {"status": "Success"}),
        ("/own", {"data": 1, "status": "Success", "detail": "d"}),
    ],
)
def test_results_of_handlers_are_wrapped_in_the_envelope(path: str, expected: dict[str, Any]):
    """None has no `data`, and an envelope is not wrapped again."""
    with create_test_client(list_operations(globals())) as client:
        answer = client.get(path)
    assert answer.status_code == 200
    body = answer.json()
    assert body.pop("request_id")
    assert body == expected


def test_a_response_is_answered_as_it_is():
    """A file has no envelope."""
    with create_test_client([file]) as client:
        assert client.put("/file").content == b"bytes"


def test_a_module_has_the_operations_that_stand_in_it():
    """In their order; what it imports belongs to another one."""
    assert list_operations(globals()) == [value, nothing, own, file]
    other = SimpleNamespace(__name__="elsewhere", value=value)
    assert list_operations(vars(other)) == []


def test_a_router_gets_the_operations_that_have_none_yet():
    """A router that the module defined earlier keeps its operations."""
    module = {"__name__": __name__, "value": value, "first": None, "nothing": nothing}
    module["first"] = route_operations(module | {"nothing": None}, "/first")
    second = route_operations(module, "/second")
    assert [route.path for route in second.routes] == ["/second/nothing"]
