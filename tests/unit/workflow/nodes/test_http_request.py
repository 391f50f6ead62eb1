"""The node that asks other systems."""

from typing import Any

import pytest

from services.workflow.nodes.outgoing import HttpRequestNode, HttpRequestParameters
from services.workflow.outgoing.http import HttpAnswer, HttpRequest
from tests.unit.workflow.nodes.test_control_nodes import context


class FakeHttp:
    """Returns one response and records requests."""

    def __init__(self, answer: HttpAnswer) -> None:
        self.answer = answer
        self.asked: list[HttpRequest] = []

    async def send(self, request: HttpRequest, seconds: float) -> HttpAnswer:
        self.asked.append(request)
        return self.answer


async def ask(answer: HttpAnswer, **fields: Any) -> tuple[dict[str, Any], HttpRequest]:
    http: Any = FakeHttp(answer)
    parameters = HttpRequestParameters(**{"url": "https://example.com", **fields})
    found = await HttpRequestNode(http).run(context(), parameters, None)
    assert isinstance(found, dict)
    return found, http.asked[0]


@pytest.mark.parametrize(
    ("content_type", "body", "content"),
    [
        ("application/json", b'{"a": 1}', {"a": 1}),
        ("application/problem+json", b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        ("application/json; charset=utf-16", '{"a": "ä"}'.encode("utf-16"), {"a": "ä"}),
        ("application/json", b"", None),
        ("application/json", b"\r\n", None),
        ("application/json", b"\xef\xbb\xbf", None),
        ("application/json", b"<html>", "<html>"),
        ("application/json", b'"\xff"', '"\ufffd"'),
        ("application/jsonlines", b"{}\n{}", "{}\n{}"),
        ("text/x-notjson", b"{}", "{}"),
        ("text/plain; charset=iso-8859-1", b"\xe4", "ä"),
        ("text/plain", b"", ""),
        ("", b"x", "x"),
    ],
)
async def test_a_body_is_read_as_its_type_says_or_as_text(
    content_type: str, body: bytes, content: Any
) -> None:
    """Status and headers come out in any case."""
    headers = {"content-type": content_type}
    found, _ = await ask(HttpAnswer(207, headers, body))
    assert found == {
        "statusCode": 207,
        "responseHeaders": headers,
        "responseBody": content,
        "responseFault": None,
    }


async def test_a_body_that_cannot_be_read_has_a_reason() -> None:
    """It is None; the status is that of the answer."""
    found, _ = await ask(HttpAnswer(502, {}, b"", "the body cannot be decoded"))
    assert (found["statusCode"], found["responseBody"]) == (502, None)
    assert found["responseFault"] == "the body cannot be decoded"


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("https://example.com/a", "https://example.com/a?x=1&y=a+b"),
        ("https://example.com/a?b=%2B&c", "https://example.com/a?b=%2B&c&x=1&y=a+b"),
        ("https://example.com/a?", "https://example.com/a?x=1&y=a+b"),
        ("https://example.com/a?b&", "https://example.com/a?b&x=1&y=a+b"),
        ("https://example.com/#part", "https://example.com/?x=1&y=a+b"),
        ("https://example.com/a?b=1#part?c", "https://example.com/a?b=1&x=1&y=a+b"),
    ],
)
async def test_parameters_are_added_to_the_query(url: str, asked: str) -> None:
    """The existing query stays, and the fragment is dropped."""
    _, request = await ask(HttpAnswer(200, {}, b""), url=url, params={"x": 1, "y": "a b"})
    assert request.url == asked
