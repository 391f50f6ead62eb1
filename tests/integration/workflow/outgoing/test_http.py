"""Requests of flows: to whom they go, how far, how large, how long."""

import asyncio
import gzip
import socket

import pytest

from libs.common.http import outgoing
from services.workflow.errors import NodeFailed
from services.workflow.outgoing.http import MAX_RESPONSE_BODY_BYTES, HttpRequest, OutgoingHttp
from tests.integration.workflow.outgoing.conftest import LOCAL, TEXT


async def send(url: str, *, allowed=LOCAL, seconds: float = 10, **fields):
    """One request."""
    request = HttpRequest(**{"method": "GET", **fields}, url=url)
    async with OutgoingHttp(allowed) as http:
        return await http.send(request, seconds)


async def refused(url: str, **options) -> str:
    """Why a request is refused."""
    with pytest.raises(NodeFailed) as failed:
        await send(url, **options)
    return str(failed.value)


async def test_a_request_and_its_answer(website):
    """Method, query, headers, body, status."""
    headers = {"X-Mine": "1", "Content-Type": "text/plain"}
    url = f"{website.url}/a/b?c=d"
    answer = await send(url, method="PUT", headers=headers, body=b"text")

    assert answer.status == 200
    assert answer.headers["x-seen"] == "yes"
    assert answer.body == b'{"method": "PUT", "path": "/a/b?c=d", "body": "text"}'
    assert website.headers[0]["X-Mine"] == "1"


async def test_any_status_is_an_answer(website):
    """The flow decides what a status means."""
    assert (await send(f"{website.url}/status/503")).status == 503


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "10.0.0.1",
        "172.16.9.9", "192.168.0.1", "169.254.169.254", "100.64.0.1", "224.0.0.1", "[fe80::1]",
        "[fd00::1]", "[64:ff9b::7f00:1]", "0x7f.1", "0177.0.0.1", "127.1", "127。0。0。1",
        "①②⑦.0.0.1", "localhost.", "LOCALHOST", "2130706433",
    ],
)  # fmt: skip
async def test_addresses_that_are_not_public_are_refused(website, host):
    """However they are spelled; nothing is sent."""
    port = website.url.rpartition(":")[2]
    reason = await refused(f"http://{host}:{port}/", allowed=())
    allowed = ("not a public address", "URL cannot be called", "cannot be reached")
    assert any(text in reason for text in allowed)
    assert website.asked == []


async def test_a_host_name_is_checked_by_its_addresses(website, monkeypatch):
    """The address is checked at each connection (DNS rebinding)."""
    port = int(website.url.rpartition(":")[2])
    answers = iter(["93.184.216.34", "127.0.0.1", "127.0.0.1"])

    async def resolve(self, host, port=0, family=socket.AF_INET):
        found = {"hostname": host, "host": next(answers), "port": port, "family": family}
        return [{**found, "proto": 0, "flags": socket.AI_NUMERICHOST}]

    monkeypatch.setattr(outgoing.DefaultResolver, "resolve", resolve)
    resolver = outgoing.GuardedResolver(())
    assert [one["host"] for one in await resolver.resolve("rebinding.example", port)] == [
        "93.184.216.34"
    ]
    reason = await refused(f"http://rebinding.example:{port}/", allowed=())
    assert reason == (
        "rebinding.example is not a public address, or the operator has not allowed it "
        "(THINGWAY_OUTGOING_NETWORKS)"
    )
    assert website.asked == []


async def test_only_networks_that_the_operator_allows_are_reachable(website):
    """The setting contains one network."""
    assert (await send(website.url, allowed=("127.0.0.1/32",))).status == 200
    assert "not a public address" in await refused(website.url, allowed=("127.0.0.2/32",))


@pytest.mark.parametrize(
    "url",
    [
        "", "nonsense", "ftp://example.com/", "file:///etc/passwd", "http://", "http:///path",
        "http://user:password@example.com/", "http://example.com:99999/", "//example.com",
        "gopher://example.com", "http://example.com/" + "a" * 5000,
    ],
)  # fmt: skip
async def test_an_invalid_url_is_rejected(url):
    """Other schemes, missing hosts, logins and long URLs are rejected."""
    assert "URL" in await refused(url)


async def test_redirects_are_followed_only_as_asked(website):
    """None by default; then as many as the request allows."""
    url = f"{website.url}/to/302?url=/end"
    assert (await send(url)).status == 302
    answer = await send(url, redirects=3)
    assert (answer.status, website.asked[-1].path) == (200, "/end")
    reason = await refused(f"{website.url}/circle", redirects=2)
    assert reason == "more than 2 redirects are not followed"


async def test_a_redirect_changes_the_method_as_browsers_do(website):
    """303 becomes a GET without a body, 307 stays as it was."""
    for code, method, body in ((303, "GET", b""), (302, "GET", b""), (307, "POST", b"x")):
        url = f"{website.url}/to/{code}?url=/end"
        await send(url, method="POST", body=b"x", redirects=1)
        assert (website.asked[-1].method, website.bodies[-1]) == (method, body)


async def test_every_hop_is_judged(website):
    """A public server cannot lead inside."""
    url = f"{website.url}/to/302?url=http://127.0.0.2:1/"
    reason = await refused(url, allowed=("127.0.0.1/32",), redirects=3)
    assert reason.startswith("127.0.0.2 is not a public address, or the operator has not")
    reason = await refused(f"{website.url}/to/302?url=file:///etc/passwd", redirects=3)
    assert "must start with http" in reason
    reason = await refused(f"{website.url}/to/302?url=http://[x", redirects=3)
    assert reason.startswith("the redirect has an invalid URL")


async def test_credentials_do_not_go_to_another_host(website):
    """Only headers that say nothing about us go along."""
    port = website.url.rpartition(":")[2]
    headers = {"Authorization": "Bearer secret", "X-Api-Key": "secret", "Accept": "text/plain"}
    await send(f"{website.url}/to/302?url=/end", headers=headers, redirects=1)
    assert website.headers[-1]["Authorization"] == "Bearer secret"
    url = f"{website.url}/to/302?url=http://localhost:{port}/end"
    await send(url, headers=headers, redirects=1)
    assert website.headers[-1]["Accept"] == "text/plain"
    assert not {"Authorization", "X-Api-Key"} & set(website.headers[-1])


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "internal"}, {"content-length": "5"}, {"Transfer-Encoding": "chunked"},
        {"Connection": "upgrade"}, {"X-A": "b\r\nX-Injected: 1"}, {"X-A\r\nX-B": "c"}, {"": "x"},
        {"X-Ä": "x"}, {"X A": "x"}, {"X-A:": "x"},
    ],
)  # fmt: skip
async def test_headers_that_would_change_the_message_are_refused(website, headers):
    """Those of the connection, line breaks, names that are none."""
    assert "header" in await refused(website.url, headers=headers)
    assert website.asked == []


async def test_size_and_time_are_limited(website):
    """An answer of a MiB is read; more, or one without an end, is not."""
    answer = await send(f"{website.url}/large?size={MAX_RESPONSE_BODY_BYTES}")
    assert len(answer.body) == MAX_RESPONSE_BODY_BYTES
    for path in (f"large?size={MAX_RESPONSE_BODY_BYTES + 1}", "never", "encoded/gzip/bomb"):
        answer = await send(f"{website.url}/{path}")
        assert (answer.status, answer.body) == (200, b"")
        assert answer.fault == "the body must have at most 1048576 bytes"


@pytest.mark.parametrize("path", ["gzip/good", "gzip/two", "deflate/good", "deflate/raw"])
async def test_a_compressed_body_is_decompressed(website, path):
    """As the server says; it may also be a stream without a header."""
    answer = await send(f"{website.url}/encoded/{path}")
    assert (answer.body, answer.fault) == (TEXT, "")
    assert website.headers[0]["Accept-Encoding"].startswith("gzip, deflate")


@pytest.mark.parametrize("path", ["gzip/damaged", "gzip/short", "deflate/damaged", "br/any"])
async def test_status_and_headers_come_out_of_an_answer_whose_body_cannot_be_read(website, path):
    """With the reason in place of the body."""
    answer = await send(f"{website.url}/encoded/{path}")
    assert (answer.status, answer.headers["content-encoding"]) == (200, path.partition("/")[0])
    assert answer.body == b""
    assert answer.fault.startswith("the body cannot be decoded")


@pytest.mark.parametrize(
    ("method", "path"),
    [("HEAD", "encoded/gzip/good"), ("GET", "status/204"), ("GET", "status/304"),
     ("GET", "encoded/gzip/empty"), ("HEAD", "large?size=2000000")],
)  # fmt: skip
async def test_an_answer_may_have_no_body(website, method, path):
    """Headers of a missing body are ignored."""
    answer = await send(f"{website.url}/{path}", method=method)
    assert (answer.body, answer.fault) == (b"", "")
    assert answer.status in {200, 204, 304}


async def test_headers_are_read_as_servers_write_them():
    """Each line of content encodings counts, and text that is no UTF-8 is Latin-1."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = gzip.compress(gzip.compress(b"text"))
        writer.write(
            b"HTTP/1.1 200 OK\r\nX-Name: K\xf6ln\r\nContent-Encoding: gzip\r\n"
            b"Content-Encoding: gzip\r\nContent-Encoding: UTF-8\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        found = await send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    assert (found.body, found.fault, found.headers["x-name"]) == (b"text", "", "Köln")


@pytest.mark.parametrize("host", ["ex..ample", ".example", "a" * 70 + ".example"])
async def test_a_name_that_no_host_can_have_is_a_reason(host):
    """Also when the request is only judged, in a dry run."""
    async with OutgoingHttp(LOCAL) as http:
        with pytest.raises(NodeFailed, match="was not found"):
            await http.check_request(HttpRequest(method="GET", url=f"http://{host}/"), 10)


async def test_a_server_that_does_not_answer_is_given_up(unused_port_that_listens):
    """After the seconds that the caller has."""
    url = f"http://127.0.0.1:{unused_port_that_listens}/"
    assert await refused(url, seconds=0.2) == "127.0.0.1 did not respond in time"


async def test_requests_that_hang_delay_no_other(website):
    """However many there are, of the same host."""
    asked, release = asyncio.Semaphore(0), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.release()
        await release.wait()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    hanging = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server, OutgoingHttp(LOCAL) as http:
        requests = [
            asyncio.create_task(http.send(HttpRequest(method="GET", url=hanging), 30))
            for _ in range(40)
        ]
        for _ in requests:
            await asyncio.wait_for(asked.acquire(), 10)
        assert (await http.send(HttpRequest(method="GET", url=website.url), 10)).status == 200
        release.set()
        await asyncio.gather(*requests, return_exceptions=True)


@pytest.fixture
def unused_port_that_listens():
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def test_a_port_without_a_server(website):
    """The error is a reason in the flow's log, not an internal error."""
    assert "cannot be reached" in await refused("http://127.0.0.1:1/")
