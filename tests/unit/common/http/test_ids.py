"""The grammar of ids, as a service reads them in paths, query parameters and bodies."""

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import pytest
from litestar.params import JSONBody, QueryParameter
from litestar.testing import TestClient

from libs.common.http.app import ServiceDescription, create_app
from libs.common.http.console import Ids, get, post
from libs.common.http.guards import users
from libs.common.http.ids import MAX_ID, Id, NamedId, OptionalId, PathId
from libs.common.identity import (
    PRINCIPAL_HEADER,
    HeaderSigner,
    HeaderVerifier,
    Principal,
    PrincipalKind,
    generate_keys,
)
from tests import apps

REFUSED = [
    "1e6",
    "1E6",
    "1.0",
    "+1",
    "-1",
    " 1",
    "1 ",
    "1\n",
    "1_000",
    "0x10",
    "0",
    "\uff19",
    "\u0663",
    "\u00b2",
    "True",
    "NaN",
    "null",
    "00000000000000001",
    str(MAX_ID + 1),
]
"""Texts that are no ids."""
REFUSED_JSON = ["1e6", "1E0", "1.0", "-1", "0", "true", str(MAX_ID + 1), "[1]", "{}", "1e400"]
"""JSON values that are no ids."""
READ = [("1", 1), ("0000000000000012", 12), (str(MAX_ID), MAX_ID)]


class Body(msgspec.Struct):
    """A body with an id of each type."""

    plain: Id | None = None
    new: OptionalId = None
    named: NamedId | None = None
    many: Ids | None = None


Many = Annotated[list[Id] | None, QueryParameter(description="Several")]


@get("/things/{thing_id:str}", guards=[users])
async def get_thing(thing_id: PathId) -> int:
    """Return the id."""
    return thing_id


@get("/things", guards=[users])
async def list_things(ids: Many = None) -> list[int]:
    """Return the ids."""
    return ids or []


@post("/things", guards=[users])
async def add_things(data: JSONBody[Body]) -> Body:
    """Return the body."""
    return data


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient[Any]]:
    """A service with three operations, called by a user."""
    private, public = generate_keys()
    header = HeaderSigner(private).sign(Principal(PrincipalKind.USER, "tenant", "1"))
    service = ServiceDescription(
        name="test",
        title="Test",
        routes=[get_thing, list_things, add_things],
        verifier=HeaderVerifier(public),
        telemetry=apps.silent(),
    )
    with TestClient(create_app(service)) as made:
        made.headers[PRINCIPAL_HEADER] = header
        yield made


def refusal(answer: Any) -> str:
    """The field of a 400."""
    assert answer.status_code == 400, answer.text
    return str(answer.json()["detail_message"])


@pytest.mark.parametrize("text", REFUSED)
def test_a_text_that_is_no_id_is_refused_with_its_field(client: TestClient[Any], text: str) -> None:
    """Paths, query parameters and texts in bodies follow one grammar."""
    quoted = "".join(f"%{byte:02x}" for byte in text.encode())
    assert refusal(client.get(f"/things/{quoted}")) == "thing_id"
    assert refusal(client.get(f"/things?ids=1&ids={quoted}")).startswith("ids")
    assert refusal(client.post("/things", json={"plain": text})) == "plain"
    assert refusal(client.post("/things", json={"new": text})) == "new"
    assert refusal(client.post("/things", json={"many": [1, text]})) == "many[1]"


@pytest.mark.parametrize("value", REFUSED_JSON)
@pytest.mark.parametrize("field", ["plain", "new", "named", "many"])
def test_a_json_value_that_is_no_id_is_refused_with_its_field(
    client: TestClient[Any], field: str, value: str
) -> None:
    """A number with a fraction or an exponent is no id, whatever its value."""
    written = f"[{value}]" if field == "many" else value
    answer = client.post(
        "/things",
        content=f'{{"{field}": {written}}}',
        headers={"Content-Type": "application/json"},
    )
    if (field, value) == ("named", "0"):
        assert answer.status_code == 200
    elif value == "1e400":
        assert answer.status_code == 400
    else:
        assert refusal(answer).startswith(field)


@pytest.mark.parametrize(("text", "number"), READ)
def test_an_id_is_read_in_both_spellings(client: TestClient[Any], text: str, number: int) -> None:
    """Handlers get a plain integer."""
    assert client.get(f"/things/{text}").json()["data"] == number
    assert client.get(f"/things?ids={text}&ids=7").json()["data"] == [number, 7]
    for spelling in (text, number):
        sent = {"plain": spelling, "new": spelling, "many": [spelling]}
        found = client.post("/things", json=sent).json()["data"]
        assert (found["plain"], found["new"], found["many"]) == (number, number, [number])


def test_an_empty_id_means_a_new_resource(client: TestClient[Any]) -> None:
    """Where a field says so, an empty text and null stay as they are."""
    assert client.post("/things", json={"new": ""}).json()["data"]["new"] == ""
    assert client.post("/things", json={"new": None}).status_code == 200


def test_a_name_stays_a_text(client: TestClient[Any]) -> None:
    """Integrations have names for ids."""
    assert client.post("/things", json={"named": "ping"}).json()["data"]["named"] == "ping"


def test_the_document_states_the_grammar(client: TestClient[Any]) -> None:
    """Bodies document both spellings, parameters the number."""
    document = client.get("/schema/openapi.json").json()
    number = {"type": "integer", "minimum": 1, "maximum": MAX_ID}
    text = {"type": "string", "pattern": "^[0-9]{1,16}$"}
    properties = document["components"]["schemas"]["Body"]["properties"]
    assert properties["plain"] == {"oneOf": [number, text, {"type": "null"}]}
    (parameter,) = document["paths"]["/things/{thing_id}"]["get"]["parameters"]
    assert parameter["schema"].items() >= number.items()
