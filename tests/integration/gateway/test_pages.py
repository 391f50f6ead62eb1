"""The gateway's own pages: readiness, and the documentation of all services."""

import re

from .conftest import DEVICES, Gateway, Recorder, Start

SCHEMA = {
    "openapi": "3.1.0",
    "paths": {
        DEVICES: {
            "post": {
                "operationId": "add",
                "requestBody": {"content": {}},
                "responses": {
                    "201": {"$ref": "#/components/responses/Made"},
                    "401": {"description": "own words"},
                },
            }
        },
        "/internal/only": {"get": {"responses": {}}},
        "/ingest/v1/{sn}/report": {"post": {"responses": {}}},
    },
    "components": {"schemas": {"Thing": {"type": "object"}}},
}


async def test_ready_when_all_parts_are(gateway: Gateway) -> None:
    """Ready says so of Redis and of each service."""
    reply = await gateway.http.get("/readyz")
    assert (reply.status_code, reply.json()) == (
        200, {"redis": "ok", "auth": "ok", "device": "ok"},
    )  # fmt: skip


async def test_not_ready_when_a_service_is_not(gateway: Gateway, device: Recorder) -> None:
    """One part that is not ready makes 503 and is named."""
    device.ready = False
    reply = await gateway.http.get("/readyz")
    assert (reply.status_code, reply.json()["auth"]) == (503, "ok")
    assert reply.json()["device"] == "not ready", "without an address or exception"


async def test_readiness_is_cached(gateway: Gateway, device: Recorder) -> None:
    """Within a second the answer is given again without asking."""
    assert (await gateway.http.get("/readyz")).status_code == 200
    device.ready = False
    assert (await gateway.http.get("/readyz")).status_code == 200


async def test_merged_document(gateway: Gateway, device: Recorder, auth: Recorder) -> None:
    """The document has the public operations of all services, with what the gateway adds."""
    device.schema = SCHEMA
    auth.schema = {"openapi": "3.1.0", "paths": {"/oauth/token": {"post": {"responses": {}}}}}
    document = (await gateway.http.get("/openapi.json")).json()
    assert document["openapi"] == "3.1.0"
    assert set(document["paths"]) == {DEVICES, "/ingest/v1/{sn}/report", "/oauth/token"}
    add = document["paths"][DEVICES]["post"]
    assert add["security"] == [{"bearer": []}, {"accessToken": []}]
    assert set(add["responses"]) == {"201", "401", "413", "429", "502", "503", "504"}
    assert add["responses"]["401"] == {"description": "own words"}
    assert document["paths"]["/oauth/token"]["post"]["security"] == []
    assert document["paths"]["/ingest/v1/{sn}/report"]["post"]["security"] == [{"deviceKey": []}]
    schemes = document["components"]["securitySchemes"]
    assert set(schemes) == {"bearer", "accessToken", "deviceKey", "user"}
    assert schemes["user"]["flows"]["password"]["tokenUrl"] == "/oauth2/token"


async def test_documents_of_single_apis(gateway: Gateway, device: Recorder) -> None:
    """Each API has its own; a further name is a 404."""
    console = {"get": {"responses": {}}}
    device.schema = SCHEMA | {"paths": {**SCHEMA["paths"], "/entity/{entity_id}/meta": console}}
    for name, paths in (
        ("device", {DEVICES, "/ingest/v1/{sn}/report"}),
        ("management", {"/entity/{entity_id}/meta"}),
    ):
        document = (await gateway.http.get(f"/openapi/{name}.json")).json()
        assert set(document["paths"]) == paths
    assert (await gateway.http.get("/openapi/other.json")).status_code == 404


async def test_documents_travel_once(gateway: Gateway, device: Recorder) -> None:
    """Compressed when asked for; 304 while a client has the newest; HEAD has no body."""
    device.schema = SCHEMA | {"info": {"description": "x" * 5000}} | {"tags": []}
    for path in ("/openapi.json", "/openapi/device.json", "/docs/swagger-ui.css", "/docs"):
        first = await gateway.http.get(path)
        large = len(first.content) > 1400
        assert first.headers.get("content-encoding") == ("gzip" if large else None)
        plain = await gateway.http.get(path, headers={"Accept-Encoding": "identity"})
        assert (plain.content, plain.headers["etag"]) == (first.content, first.headers["etag"])
        known = {"If-None-Match": f'"other", {first.headers["etag"]}'}
        again = await gateway.http.get(path, headers=known)
        assert (again.status_code, again.content) == (304, b"")
        head = await gateway.http.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["etag"] == first.headers["etag"]


async def test_start_page(gateway: Gateway) -> None:
    """It tells what this is, and its links lead somewhere."""
    page = await gateway.http.get("/")
    assert (page.status_code, "Thingway" in page.text) == (200, True)
    for path in re.findall(r'href="([^"]+)"', page.text):
        assert (await gateway.http.get(path)).status_code == 200, path


async def test_document_without_a_service(start: Start, auth: Recorder) -> None:
    """A service that is away is missing from the document, which is there all the same."""
    auth.schema = {"openapi": "3.1.0", "paths": {"/oauth/token": {"post": {"responses": {}}}}}
    upstreams = f"device=http://127.0.0.1:1,auth=http://127.0.0.1:{auth.port}"
    async with start(upstreams=upstreams) as gateway:
        reply = await gateway.http.get("/openapi.json")
    assert (reply.status_code, list(reply.json()["paths"])) == (200, ["/oauth/token"])


async def test_documentation_page_works_offline(gateway: Gateway) -> None:
    """The page and all that it loads come from here, and its policy allows nothing else."""
    page = await gateway.http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(loaded) == 4
    for path in loaded:
        reply = await gateway.http.get(path)
        assert (reply.status_code, len(reply.content) > 100) == (200, True), path
    assert (await gateway.http.get("/docs/nothing.js")).status_code == 404
