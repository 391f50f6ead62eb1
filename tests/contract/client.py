"""A client of the open API as the contract tests need it: it looks at every answer strictly."""

import json
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

API = "/device/openapi/v1"
MODEL = "CONTRACT-1"
PRODUCT: dict[str, Any] = json.loads(Path(__file__).with_name("product.json").read_text())
SAFE = 2**53
Json = dict[str, Any]


def new_sn(prefix: str = "CT") -> str:
    """An SN that nobody has."""
    return f"{prefix}{uuid4().hex[:12].upper()}"


def accepted(answer: httpx.Response, *, data: bool = True) -> Any:
    """`data` of a success, whose envelope is exactly the specified one."""
    assert answer.status_code == 200, (answer.request.url, answer.text)
    assert answer.headers["content-type"].partition(";")[0] == "application/json"
    body = answer.json()
    assert set(body) == ({"data", "status", "requestId"} if data else {"status", "requestId"}), body
    assert body["status"] == "Success"
    assert re.fullmatch("[0-9a-f]{32}", body["requestId"])
    return body.get("data")


def refused(answer: httpx.Response, status: int, *names: str, code: str = "") -> Json:
    """A refusal: its envelope is exactly ours, and `errMsg` has every one of `names`."""
    assert answer.status_code == status, (answer.status_code, answer.text[:500])
    assert answer.headers["content-type"].partition(";")[0] == "application/json"
    body = answer.json()
    assert set(body) == {"status", "requestId", "errCode", "errMsg"}, body
    assert body["status"] == "Failed"
    assert re.fullmatch("[0-9a-f]{32}", body["requestId"])
    assert re.fullmatch("[a-z][a-z0-9]*(_[a-z0-9]+)*", body["errCode"]), body
    assert isinstance(body["errMsg"], str)
    assert body["errMsg"].strip()
    for name in names:
        assert name in body["errMsg"], body
    if code:
        assert body["errCode"] == code
    return body


class Api:
    """An application that calls the API."""

    def __init__(self, base_url: str, client_id: str, client_secret: str, identity: int) -> None:
        self.http = httpx.AsyncClient(base_url=base_url, timeout=30, verify=False)
        self.client_id = client_id
        self.client_secret = client_secret
        self.id = identity
        self.token = ""

    async def grant(self, **form: str) -> httpx.Response:
        """Ask the token endpoint."""
        return await self.http.post("/oauth/token", data=form)

    async def tokens(self) -> Json:
        """A new pair of tokens, by the application's credentials."""
        return accepted(
            await self.grant(
                grant_type="client_credentials",
                client_id=self.client_id,
                client_secret=self.client_secret,
            )
        )

    async def log_in(self) -> "Api":
        """Take a token for the calls to come."""
        self.token = (await self.tokens())["access_token"]
        return self

    async def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, **more: Any
    ) -> httpx.Response:
        """One call; bytes are sent as they are, all else as JSON; `None` sends no body."""
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        headers |= more.pop("headers", {})
        if isinstance(body, bytes):
            more["content"] = body
            headers.setdefault("Content-Type", "application/json")
        elif body is not None:
            more["json"] = body
        url = path if path.startswith(("/device/", "/ingest/", "/oauth/")) else API + path
        return await self.http.request(method, url, headers=headers, **more)

    async def done(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """`data` of a call that succeeds."""
        return accepted(await self.ask(method, path, body, params=query or None))

    async def fails(self, status: int, method: str, path: str, body: Any = None, **more: Any):
        """The body of a call that is refused."""
        names = more.pop("names", ())
        code = more.pop("code", "")
        return refused(await self.ask(method, path, body, **more), status, *names, code=code)

    async def add(self, sn: str = "", **fields: Any) -> int:
        """Add a device; return its id."""
        sn = sn or new_sn()
        added = await self.done("POST", "/devices", {"snDevEUI": sn, "name": sn, **fields})
        return int(added["deviceId"])

    async def report(self, sn: str, key: str, body: Any, wait: str = "stored") -> Json:
        """Report over HTTP as the device does; return once it is stored."""
        answer = await self.http.post(
            f"/ingest/v1/{sn}/report", json=body, auth=(sn, key), params={"wait": wait}
        )
        assert answer.status_code == 202, answer.text
        return dict(answer.json()["data"])

    async def commands(self, sn: str, key: str, wait: int = 5) -> list[Json]:
        """The commands that wait for a device."""
        answer = await self.http.get(
            f"/ingest/v1/{sn}/commands", auth=(sn, key), params={"wait": wait}
        )
        return list(accepted(answer)["commands"])

    async def reply(self, sn: str, key: str, body: Any) -> None:
        """Answer a command as the device does."""
        answer = await self.http.post(
            f"/ingest/v1/{sn}/reply", json=body, auth=(sn, key), params={"wait": "stored"}
        )
        assert answer.status_code == 202, answer.text
        assert answer.json()["data"]["accepted"] == 1, answer.text

    async def close(self) -> None:
        """Close its connections."""
        await self.http.aclose()
