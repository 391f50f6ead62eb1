"""Pictures: uploaded once to where it was announced, served so that they can do no harm."""

import asyncio
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from msgspec.structs import replace

from libs.common.contracts.limits import MAX_PICTURE_BYTES
from libs.common.errors import TooManyRequests
from libs.common.identity.seal import Seal
from services.management import resources as resource_service
from services.management.resources import (
    MAX_CONCURRENT_DOWNLOADS,
    ResourceService,
    ResourceStore,
    StoredFile,
)
from tests.integration.management.dashboards.conftest import World
from tests.limits import limits_of

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
SVG = b'<?xml version="1.0"?><!-- a --><svg xmlns="http://www.w3.org/2000/svg"><script/></svg>'


async def announce(world: World, **body: object) -> dict[str, str]:
    body = {"file_name": "roof.png"} | body
    found = await world.admin.done("POST", "/resource/upload-config", body)
    assert found["resource_url"].endswith(found["key"])
    return dict(found)


async def upload(world: World, content: bytes = PNG, **body: object) -> str:
    """Upload a picture; its URL."""
    announced = await announce(world, **body)
    answer = await put(world, announced["upload_url"], content)
    assert answer.status_code == 200, answer.text
    return announced["resource_url"]


async def put(world: World, url: str, content: bytes = PNG):
    headers = {"Content-Type": "application/x-anything"}
    return await world.management.http.put(url, content=content, headers=headers)


async def stored(world: World, url: str) -> dict | None:
    resources = world.management.mongo.database["resources"]
    return await resources.find_one({"_id": url.rpartition("/")[2]}, {"content": 0})


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0" + bytes(9), "image/jpeg"),
        (b"GIF89a" + bytes(9), "image/gif"),
        (b"RIFF1234WEBP" + bytes(9), "image/webp"),
        (SVG, "image/svg+xml"),
    ],
)
async def test_a_picture_is_served_safely(world: World, content, kind):
    """As what it is, whatever the upload said; it cannot run anything, nor be sniffed."""
    url = await upload(world, content, file_name='röof (1)".png'.replace('"', ""))
    answer = await world.management.http.get(url)
    assert answer.content == content
    assert answer.headers["content-type"] == kind
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert policy.endswith("sandbox")
    assert "immutable" in answer.headers["cache-control"]
    assert "filename*=UTF-8''r%C3%B6of" in answer.headers["content-disposition"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html><svg></svg></html>",
        b'<!DOCTYPE svg [<!ENTITY a "b">]><svg/>',
        b"RIFF1234WAVE",
        b"<!--" * 3000,
    ],
)
async def test_only_pictures_are_accepted(world: World, content):
    """Others get 415, and the URL stays valid for a picture."""
    announced = await announce(world)
    answer = await put(world, announced["upload_url"], content)
    assert (answer.status_code, answer.json()["error_code"]) == (415, "unsupported_media_type")
    assert (await world.management.http.get(announced["resource_url"])).status_code == 404
    assert (await put(world, announced["upload_url"])).status_code == 200


async def test_an_upload_url_is_valid_once(world: World):
    """One of two simultaneous uploads succeeds; the stored file stays."""
    announced = await announce(world)
    answers = await asyncio.gather(
        *(put(world, announced["upload_url"], PNG + bytes([at])) for at in range(2))
    )
    assert sorted(answer.status_code for answer in answers) == [200, 400]
    refused = await put(world, announced["upload_url"], SVG)
    assert refused.json()["error_code"] == "parameter_validation_failed"
    answer = await world.management.http.get(announced["resource_url"])
    assert answer.headers["content-type"] == "image/png"


async def test_an_upload_url_is_ours_and_not_old(world: World, monkeypatch):
    """One that somebody made up, changed, sealed for something else or kept too long is a 400."""
    sound = (await announce(world))["upload_url"]
    other = Seal("A" * 43).seal("{}", "upload of a resource")
    for url in ("/resource/uploads/x", sound[:-2], f"/resource/uploads/{other}"):
        assert (await put(world, url)).status_code == 400
    monkeypatch.setattr(resource_service, "UPLOAD_URL_MINUTES", 0)
    old = (await announce(world))["upload_url"]
    assert (await put(world, old)).status_code == 400
    assert (await put(world, sound)).status_code == 200


async def test_a_picture_has_bounds(world: World):
    """One that is too large is 413; a file name that no file system takes is a 400."""
    announced = await announce(world)
    answer = await put(world, announced["upload_url"], PNG + bytes(MAX_PICTURE_BYTES))
    assert (answer.status_code, answer.json()["error_code"]) == (413, "data_too_large")
    for bad in ({"file_name": "a/b"}, {"file_name": ""}, {"file_name": "x" * 256}, {}):
        await world.admin.refused(400, "POST", "/resource/upload-config", bad, field="file_name")
    body = {"file_name": "a.png", "temp_resource_live_minutes": 361}
    await world.admin.refused(
        400, "POST", "/resource/upload-config", body, field="temp_resource_live_minutes"
    )


async def test_files_of_a_tenant_are_in_memory_a_few_at_a_time(world: World):
    """Those who read slowly wait for each other, and a file of another tenant is read at once."""
    keys = [(await upload(world)).rpartition("/")[2] for _ in range(MAX_CONCURRENT_DOWNLOADS)]
    store = ResourceStore(world.management.mongo.database, limits_of())
    service = ResourceService(store, Seal("A" * 43))
    slow = [service.stream_content(await service.get(key)) for key in keys]
    begun = [asyncio.ensure_future(anext(one)) for one in slow]
    half = MAX_CONCURRENT_DOWNLOADS // 2
    assert await asyncio.gather(*begun[:half]) == [PNG] * half
    other = replace(await service.get(keys[0]), tenant="other")
    assert [part async for part in service.stream_content(other)] == [PNG]
    assert not any(one.done() for one in begun[half:])
    for one in slow[:half]:
        await one.aclose()
    assert await asyncio.gather(*begun[half:]) == [PNG] * half
    for one in slow[half:]:
        await one.aclose()


async def test_a_tenant_has_so_many_bytes(world: World):
    """The upload that would be too much is refused, and nothing is kept of it."""
    store = ResourceStore(world.management.mongo.database, limits_of(resource_bytes=150))
    first, second = (
        StoredFile(
            id=uuid4().hex,
            created_at=datetime.now(UTC),
            tenant=world.tenant,
            name="a.png",
            type="image/png",
            content=PNG,
            size=len(PNG),
            expires_at=datetime.now(UTC),
        )
        for _ in range(2)
    )
    assert await store.insert(first)
    with pytest.raises(TooManyRequests, match="resourceBytes: the tenant has"):
        await store.insert(second)
    assert await stored(world, second.id) is None


async def test_an_unused_upload_expires(world: World):
    """An upload expires until a saved cover or widget refers to it, and again when none does."""
    cover, picture = await upload(world), await upload(world, temp_resource_live_minutes=60)
    ends = [(await stored(world, url))["expiresAt"] for url in (cover, picture)]
    minutes = [(end - datetime.now(UTC)).total_seconds() / 60 for end in ends]
    assert 10 < minutes[0] <= 15
    assert 50 < minutes[1] <= 60
    one = await world.dashboard(cover_type="RESOURCE", cover_data=cover)
    device = world.device()
    canvas = await world.canvas_of(device)
    widget = {"data": {"type": "image", "config": {"file": {"url": picture}}}}
    await world.admin.done("PUT", f"/canvas/{one}", {"name": "A", "widgets": [widget]})
    await world.admin.done("PUT", f"/canvas/{canvas}", {"name": "B", "widgets": [widget]})
    for url in (cover, picture):
        assert "expiresAt" not in await stored(world, url)

    await world.admin.done("PUT", f"/canvas/{one}", {"name": "A", "widgets": []})
    assert (await stored(world, picture))["usedBy"] == [int(canvas)]
    assert "expiresAt" not in await stored(world, cover)
    await world.admin.done("PUT", f"/canvas/{canvas}", {"name": "B", "widgets": []})
    assert "expiresAt" in await stored(world, picture)
    await world.admin.done("POST", "/dashboard/batch-delete", {"dashboard_ids": [one]})
    assert "expiresAt" in await stored(world, cover)


async def test_a_tenant_holds_only_its_own(world: World):
    """A picture of another tenant is no cover, and to name it in a widget does not keep it."""
    url = await upload(world)
    stranger = world.management.admin("stranger")
    cover = {"name": "x", "cover_type": "RESOURCE", "cover_data": url}
    await stranger.refused(400, "POST", "/dashboard", cover, field="cover_data")
    made = await stranger.done("POST", "/dashboard", {"name": "x"})
    body = {"name": "x", "widgets": [{"data": {"url": url}}]}
    await stranger.done("PUT", f"/canvas/{made['main_canvas_id']}", body)
    assert (await stored(world, url))["usedBy"] == []


async def test_mongodb_deletes_expired_uploads(world: World):
    """The TTL index exists."""
    indexes = await world.management.mongo.database["resources"].index_information()
    assert indexes["expiresAt_1"]["expireAfterSeconds"] == 0
