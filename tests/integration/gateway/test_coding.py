"""Compressed requests are decoded at the door, large answers compressed for those who ask."""

import gzip
import zlib

import pytest

from .conftest import DEVICES, Gateway, Recorder, Start, answer

LARGE = b'{"list":[' + b'{"temperature":21.5},' * 20_000 + b"{}]}"


@pytest.mark.parametrize(
    ("coding", "encode"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
@pytest.mark.parametrize("streams", [False, True])
async def test_a_compressed_request_is_decoded(
    gateway: Gateway, device: Recorder, coding: str, encode, streams: bool
) -> None:
    """The service gets the plain body, whole or in parts, and no word of the coding."""
    body = encode(LARGE if streams else b'{"name":"x"}')

    async def parts():
        yield body[:100]
        yield body[100:]

    headers = await gateway.bearer() | {"Content-Encoding": coding}
    reply = await gateway.http.post(DEVICES, content=parts() if streams else body, headers=headers)
    assert reply.status_code == 200
    assert device.last.body == (LARGE if streams else b'{"name":"x"}')
    assert device.last.complete
    assert "content-encoding" not in device.last.headers


@pytest.mark.parametrize(
    ("coding", "body", "status"),
    [
        ("br", b"x", 415),
        ("gzip, gzip", b"x", 415),
        ("gzip", b"plain", 400),
        ("gzip", gzip.compress(b"x")[:-2], 400),
        ("gzip", gzip.compress(b"0" * 2_000_000), 413),
    ],
    ids=["unknown", "two", "not gzip", "broken off", "bomb"],
)
async def test_undecodable_bodies_are_rejected(
    start: Start, device: Recorder, coding: str, body: bytes, status: int
) -> None:
    """The limit applies to the decoded body; 415 names the supported encodings."""
    async with start(max_body=1_000_000) as gateway:
        headers = await gateway.bearer() | {"Content-Encoding": coding}
        reply = await gateway.http.post(DEVICES, content=body, headers=headers)
    assert reply.status_code == status
    assert reply.json()["status"] == "Failed"
    assert reply.headers.get("accept-encoding") == ("gzip, deflate" if status == 415 else None)
    assert not [seen for seen in device.seen if seen.complete]


@pytest.mark.parametrize("streams", [False, True])
async def test_a_large_answer_is_compressed(
    gateway: Gateway, device: Recorder, streams: bool
) -> None:
    """For whoever asks; its tag is weak then, and caches know that there are two."""
    fields = [(b"content-type", b"application/json"), (b"etag", b'"1"')]

    async def respond(seen, receive, send):
        if streams:
            await send({"type": "http.response.start", "status": 200, "headers": fields})
            for at in range(0, len(LARGE), 50_000):
                part = LARGE[at : at + 50_000]
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        else:
            await answer(send, LARGE[:30_000], 200, fields[1])

    device.respond = respond
    headers = await gateway.bearer()
    for accepted, coding in (("gzip", "gzip"), ("deflate", "deflate"), ("identity", None)):
        reply = await gateway.http.get(DEVICES, headers=headers | {"Accept-Encoding": accepted})
        assert reply.content == (LARGE if streams else LARGE[:30_000])
        assert reply.headers.get("content-encoding") == coding
        assert reply.headers["etag"] == ('W/"1"' if coding else '"1"')
        assert reply.headers["vary"] == "Accept-Encoding"
        assert reply.num_bytes_downloaded < 5000 or not coding


async def test_a_small_answer_is_not_compressed(gateway: Gateway, device: Recorder) -> None:
    """An answer that fits a packet would not arrive sooner."""

    async def respond(seen, receive, send):
        await answer(send, b"0" * 1400)

    device.respond = respond
    reply = await gateway.http.get(DEVICES, headers=await gateway.bearer())
    assert reply.headers["content-length"] == "1400"
    assert "content-encoding" not in reply.headers
