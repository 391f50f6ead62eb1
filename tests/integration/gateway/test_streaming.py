"""Bodies stream both ways, within limits, and nobody works for a client that has gone."""

import asyncio
import contextlib
import json
import re

import httpx
import pytest

from services.gateway.proxy import forward as refusal

from .conftest import DEVICES, Gateway, Recorder, Start, answer, read

PART = b"p" * 65_536


async def head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Status and fields of the answer on a raw connection."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), fields


async def test_request_streams(gateway: Gateway, device: Recorder) -> None:
    """The service has the first part of a chunked body before the client sends the last."""

    async def body():
        yield b"first"
        async with asyncio.timeout(30):
            while not device.seen:
                await asyncio.sleep(0.01)
            await device.last.first_part.wait()
        yield b" last"

    reply = await gateway.http.post(DEVICES, content=body(), headers=await gateway.bearer())
    assert (reply.status_code, device.last.body) == (200, b"first last")
    assert "content-length" not in device.last.headers


async def test_declared_length_is_kept(gateway: Gateway, device: Recorder) -> None:
    """A body of declared length arrives with that length, however it is cut."""
    token = await gateway.token()
    reader, writer = await gateway.wire(
        f"PUT {DEVICES} HTTP/1.1\nHost: a\nAuthorization: Bearer {token}\nContent-Length: 10\n\n"
        "01234"
    )
    await asyncio.sleep(0.1)
    writer.write(b"56789")
    assert (await head(reader))[0] == 200
    assert (device.last.body, device.last.headers["content-length"]) == (b"0123456789", "10")
    assert "transfer-encoding" not in device.last.headers
    writer.close()


async def test_large_body_arrives_whole(gateway: Gateway, device: Recorder) -> None:
    """A body of 8 MiB, the default limit, passes."""
    content = PART * 128
    reply = await gateway.http.post(DEVICES, content=content, headers=await gateway.bearer())
    assert (reply.status_code, device.last.body == content) == (200, True)


async def test_answer_streams(gateway: Gateway, device: Recorder) -> None:
    """The client has the first part of an answer before the service sends the last."""
    go_on = asyncio.Event()

    async def respond(seen, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        await asyncio.wait_for(go_on.wait(), 3)
        await send({"type": "http.response.body", "body": b" last"})

    device.respond = respond
    headers = await gateway.bearer()
    async with gateway.http.stream("GET", f"{DEVICES}/5", headers=headers) as reply:
        parts = reply.aiter_bytes()
        assert await anext(parts) == b"first"
        go_on.set()
        assert await anext(parts) == b" last"


async def test_answer_waits_for_a_slow_client(gateway: Gateway, device: Recorder) -> None:
    """A client that does not read makes the service wait: the gateway holds little."""
    sent = 0

    async def respond(seen, receive, send):
        nonlocal sent
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(1, 301):
            await send({"type": "http.response.body", "body": PART, "more_body": number < 300})
            sent = number

    device.respond = respond
    token = await gateway.token()
    reader, writer = await gateway.wire(
        f"GET {DEVICES}/5 HTTP/1.1\nHost: a\nConnection: close\nAuthorization: Bearer {token}\n\n"
    )
    assert (await head(reader))[0] == 200
    await asyncio.sleep(0.5)
    assert 0 < sent < 200
    body = b""
    while part := await reader.read(1 << 20):
        body += part
    assert body.count(b"p") == 300 * len(PART)
    writer.close()


async def test_request_waits_for_a_slow_service(start: Start, device: Recorder) -> None:
    """A service that does not read makes the client wait: the gateway holds little."""
    go_on = asyncio.Event()

    async def respond(seen, receive, send):
        await go_on.wait()
        await read(seen, receive)
        await answer(send, b"{}")

    device.respond = respond
    given = 0

    async def body():
        nonlocal given
        for _ in range(300):
            given += 1
            yield PART

    async with start(max_body=100_000_000) as gateway:
        headers = await gateway.bearer()
        request = asyncio.ensure_future(gateway.http.post(DEVICES, content=body(), headers=headers))
        await asyncio.sleep(1)
        assert 0 < given < 200
        go_on.set()
        assert (await request).status_code == 200
    assert len(device.last.body) == 300 * len(PART)


async def test_head_has_no_body(gateway: Gateway, device: Recorder) -> None:
    """HEAD gets the fields without a body, and its connections go on working."""
    headers = await gateway.bearer()
    for _ in range(3):
        reply = await gateway.http.head(f"{DEVICES}/5", headers=headers)
        assert (reply.status_code, reply.headers["content-length"]) == (200, "20")
        assert (await gateway.http.get(f"{DEVICES}/5", headers=headers)).status_code == 200
    assert device.last.method == "GET"


@pytest.mark.parametrize(
    ("status", "length"), [(204, None), (204, b"0"), (304, None), (304, b"20")]
)
async def test_status_without_a_body(
    gateway: Gateway, device: Recorder, status: int, length: bytes | None
) -> None:
    """204 and 304 end with their head and have no length, also when the service gives one."""

    async def respond(seen, receive, send):
        fields = [(b"etag", b"x")] + ([(b"content-length", length)] if length else [])
        await send({"type": "http.response.start", "status": status, "headers": fields})
        with contextlib.suppress(RuntimeError):  # uvicorn minds the length
            await send({"type": "http.response.body", "body": b""})

    device.respond = respond
    token = await gateway.token()
    reader, writer = await gateway.wire(
        f"GET {DEVICES}/5 HTTP/1.1\nHost: a\nAuthorization: Bearer {token}\n\n" * 2
    )
    for _ in range(2):
        found, fields = await head(reader)
        assert (found, fields["etag"]) == (status, "x")
        assert fields.keys().isdisjoint({"content-length", "transfer-encoding"})
    writer.close()


async def test_declared_length_above_the_limit_is_413(start: Start, device: Recorder) -> None:
    """A body that is declared too large is refused unread, and its connection closed."""
    async with start(max_body=1000) as gateway:
        reader, writer = await gateway.wire(
            f"POST {DEVICES} HTTP/1.1\nHost: a\nContent-Length: 100000\n\nbegun"
        )
        status, fields = await head(reader)
        body = await reader.readexactly(int(fields["content-length"]))
        writer.close()
    assert (status, fields["connection"]) == (413, "close")
    assert re.search(rb'"errCode":"data_too_large"', body)
    assert device.seen == []


async def test_streamed_body_above_the_limit_is_413(start: Start, device: Recorder) -> None:
    """A chunked body is counted while it streams; the service never sees it end."""

    async def body():
        for _ in range(20):
            yield b"x" * 100
            await asyncio.sleep(0.005)

    async with start(max_body=1000) as gateway:
        reply = await gateway.http.post(DEVICES, content=body(), headers=await gateway.bearer())
        assert (reply.status_code, reply.json()["errCode"]) == (413, "data_too_large")
        assert reply.headers["connection"] == "close"
        again = await gateway.http.get(f"{DEVICES}/5", headers=await gateway.bearer())
    assert again.status_code == 200
    assert not device.seen[0].complete


async def test_large_refused_body_still_reads_its_answer(gateway: Gateway) -> None:
    """A client that sends 20 MB without a token gets its 401, not a broken connection."""
    reply = await gateway.http.post(DEVICES, content=b"x" * 20_000_000)
    assert reply.status_code == 413
    reply = await gateway.http.post(DEVICES, content=b"x" * 8_000_000)
    assert reply.status_code == 401


@pytest.mark.parametrize("expect", ["", "Expect: 100-continue\n"])
async def test_client_that_reads_last_gets_its_refusal(gateway: Gateway, expect: str) -> None:
    """A client that sends all of 20 MB before it reads finds the 413, and a proper end."""
    reader, writer = await gateway.wire(
        f"POST {DEVICES} HTTP/1.1\nHost: a\n{expect}Content-Length: 20000000\n\n"
    )
    writer.transport.pause_reading()
    for _ in range(200):
        writer.write(b"x" * 100_000)
        await writer.drain()
    writer.transport.resume_reading()
    everything = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    assert everything.startswith(b"HTTP/1.1 413 ")


async def test_small_refused_body_keeps_the_connection(gateway: Gateway) -> None:
    """A refused body of a few bytes is read away, and the next request is answered."""
    reader, writer = await gateway.wire(
        f"POST {DEVICES} HTTP/1.1\nHost: a\nContent-Length: 10\n\n01234"
    )
    status, fields = await head(reader)
    await reader.readexactly(int(fields["content-length"]))
    writer.write(b"56789GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (status, "connection" in fields, (await head(reader))[0]) == (401, False, 200)
    writer.close()


async def test_expect_continue(gateway: Gateway, device: Recorder) -> None:
    """A client that waits for 100 Continue gets it, and then its answer."""
    token = await gateway.token()
    reader, writer = await gateway.wire(
        f"POST {DEVICES} HTTP/1.1\nHost: a\nAuthorization: Bearer {token}\n"
        "Expect: 100-continue\nContent-Length: 4\n\n"
    )
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"body")
    assert (await head(reader))[0] == 200
    assert (device.last.body, "expect" in device.last.headers) == (b"body", False)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b"HTTP/1.1 200" in await reader.readuntil(b'{"status":"ok",')
    writer.close()


@pytest.mark.parametrize(
    ("framing", "status"),
    [("Content-Length: 4", 401), ("Transfer-Encoding: chunked", 401),
     ("Content-Length: 100000000", 413)],
)  # fmt: skip
async def test_expect_continue_refused(
    gateway: Gateway, device: Recorder, monkeypatch: pytest.MonkeyPatch, framing: str, status: int
) -> None:
    """A client that waits for 100 Continue and is refused gets that alone, and the end.

    Nobody waits for its body: it does not come.
    """
    monkeypatch.setattr(refusal, "DISCARD_SILENCE_SECONDS", 600.0)
    monkeypatch.setattr(refusal, "MAX_DISCARD_SECONDS", 600.0)
    reader, writer = await gateway.wire(
        f"POST {DEVICES} HTTP/1.1\nHost: a\nExpect: 100-continue\n{framing}\n\n"
    )
    found, fields = await head(reader)
    await reader.readexactly(int(fields["content-length"]))
    assert (found, fields["connection"]) == (status, "close")
    assert await asyncio.wait_for(reader.read(), 10) == b""
    assert device.seen == []
    writer.close()


async def test_expect_continue_of_http_1_0_is_ignored(gateway: Gateway, device: Recorder) -> None:
    """A client of HTTP/1.0 does not know 100 Continue, and gets none."""
    token = await gateway.token()
    reader, writer = await gateway.wire(
        f"POST {DEVICES} HTTP/1.0\nHost: a\nAuthorization: Bearer {token}\n"
        "Expect: 100-continue\nContent-Length: 4\n\nbody"
    )
    assert ((await head(reader))[0], device.last.body) == (200, b"body")
    writer.close()


async def test_client_that_goes_ends_the_request(gateway: Gateway, device: Recorder) -> None:
    """When the client goes while it waits, the service learns of it."""
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def respond(seen, receive, send):
        await receive()
        arrived.set()
        assert (await receive())["type"] == "http.disconnect"
        gone.set()

    device.respond = respond
    token = await gateway.token()
    _, writer = await gateway.wire(
        f"GET {DEVICES}/5 HTTP/1.1\nHost: a\nAuthorization: Bearer {token}\n\n"
    )
    await asyncio.wait_for(arrived.wait(), 3)
    writer.close()
    await asyncio.wait_for(gone.wait(), 3)


async def test_client_that_goes_while_sending_ends_the_request(
    gateway: Gateway, device: Recorder
) -> None:
    """When the client goes in the middle of its body, the service sees it break off."""
    token = await gateway.token()
    _, writer = await gateway.wire(
        f"POST {DEVICES} HTTP/1.1\nHost: a\nAuthorization: Bearer {token}\n"
        "Content-Length: 1000\n\nhalf"
    )
    async with asyncio.timeout(30):
        while not device.seen or not device.last.body:
            await asyncio.sleep(0.01)
        writer.close()
        while not device.last.cancelled:
            await asyncio.sleep(0.01)
    assert not device.last.complete


async def test_pipelined_requests_are_answered_in_order(gateway: Gateway) -> None:
    """Two requests sent at once on one connection get their answers one after the other."""
    token = await gateway.token()
    one = f"GET {DEVICES}/5 HTTP/1.1\nHost: a\nAuthorization: Bearer {token}\n\n"
    two = "GET /healthz HTTP/1.1\nHost: a\n\n"
    reader, writer = await gateway.wire(one + two)
    bodies = []
    for _ in range(2):
        status, fields = await head(reader)
        assert status == 200
        bodies.append(await reader.readexactly(int(fields["content-length"])))
    assert [json.loads(body)["status"] for body in bodies] == ["Success", "ok"]
    writer.close()


async def test_answer_before_the_body_ends(gateway: Gateway, device: Recorder) -> None:
    """A service may answer before it has read the body; later requests are not disturbed."""

    async def respond(seen, receive, send):
        await answer(send, b'{"early":1}', 400)

    device.respond = respond

    async def body():
        yield b"x"
        await asyncio.sleep(0.2)
        yield b"y"

    for _ in range(3):
        with contextlib.suppress(httpx.WriteError):
            reply = await gateway.http.post(DEVICES, content=body(), headers=await gateway.bearer())
            assert (reply.status_code, reply.json()) == (400, {"early": 1})
    device.respond = None
    reply = await gateway.http.get(f"{DEVICES}/5", headers=await gateway.bearer())
    assert reply.status_code == 200
