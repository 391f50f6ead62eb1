"""A console as the contract tests need it: it calls as existing ones do, and looks strictly."""

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx

from libs.common.identity import OWN_CONSOLE_CLIENT_ID
from tests.e2e.platform import Platform
from tests.e2e.waiting import PATIENCE
from tests.placeholders import check_placeholders

Json = dict[str, Any]
PASSWORD = "Contract1"
ENVELOPE = {"status", "request_id"}


def form(**fields: str) -> bytes:
    """A form as existing consoles write it: they leave `*` as it is."""
    return "&".join(f"{name}={quote(value, safe='*@.')}" for name, value in fields.items()).encode()


def new_email() -> str:
    """An email address that nobody has."""
    return f"u{uuid4().hex[:12]}@example.org"


def new_name(prefix: str = "contract") -> str:
    """A name that nothing has."""
    return f"{prefix} {uuid4().hex[:10]}"


async def new_tenant(platform: Platform) -> tuple[str, tuple[str, str]]:
    """Make a tenant as the operator does; its name and its console client."""
    name = f"tenant-{uuid4().hex[:10]}"
    async with platform.admin() as bus:
        wanted = json.dumps({"name": name}).encode()
        made = json.loads(
            (await bus.request("rpc.auth.create_tenant", wanted, timeout=PATIENCE)).data
        )
    return name, (made["clientId"], made["clientSecret"])


async def new_admin(platform: Platform) -> tuple[str, "Console"]:
    """Make a tenant and its super-admin, who registered and is logged in; its name and both."""
    name, client = await new_tenant(platform)
    console = Console(platform.base_url, client, new_email())
    body = {"email": console.email, "nickname": "Boss", "password": console.password}
    registered = await console.http.post("/user/register", json=body, headers={"TENANT_ID": name})
    assert registered.status_code == 200, registered.text
    return name, await console.log_in()


def console_accepted(answer: httpx.Response, *, data: bool = True) -> Any:
    """`data` of a success, whose envelope is exactly the specified one; nothing in it is null.

    Where the specification answers `{}` there is no `data`.
    """
    assert answer.status_code == 200, (answer.request.url, answer.status_code, answer.text[:500])
    body = _json(answer)
    assert set(body) == (ENVELOPE | {"data"} if data else ENVELOPE), body
    assert body["status"] == "Success"
    _check_request_id(answer, body)
    assert None not in _values(body), body
    return body.get("data")


def console_refused(answer: httpx.Response, status: int, code: str, field: str = "") -> Json:
    """A refusal: its envelope is exactly ours, and names `field` in `detail_message`."""
    assert answer.status_code == status, (answer.status_code, answer.text[:500])
    body = _json(answer)
    required = ENVELOPE | {"error_code", "error_message"}
    assert required <= set(body) <= required | {"detail_message", "data"}, body
    assert (body["status"], body["error_code"]) == ("Failed", code), body
    assert body["error_message"].strip()
    if field:
        assert body.get("detail_message") == field, body
    check_placeholders(body)
    _check_request_id(answer, body)
    return body


def _json(answer: httpx.Response) -> Json:
    assert answer.headers["content-type"].partition(";")[0] == "application/json"
    return dict(answer.json())


def _check_request_id(answer: httpx.Response, body: Json) -> None:
    assert re.fullmatch("[0-9a-f]{32}", body["request_id"])
    assert body["request_id"] == answer.headers["x-request-id"]


def _values(node: Any) -> Iterator[Any]:
    yield node
    if isinstance(node, dict | list):
        for value in node.values() if isinstance(node, dict) else node:
            yield from _values(value)


class Console:
    """A person at a console."""

    def __init__(
        self, base_url: str, client: tuple[str, str], email: str, password: str = PASSWORD
    ) -> None:
        self.http = httpx.AsyncClient(base_url=base_url, timeout=30, verify=False)
        self.client_id, self.client_secret = client
        self.email, self.password = email, password
        self.token, self.refresh_token, self.id = "", "", ""
        self._own_console_token = ""

    async def grant(self, prefix: str = "/api/v1", **fields: str) -> httpx.Response:
        """Ask `/oauth2/token` with a form."""
        client = {"client_id": self.client_id, "client_secret": self.client_secret}
        return await self.http.post(
            f"{prefix}/oauth2/token",
            content=form(**(client | fields)),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )

    async def tokens(self) -> Json:
        """A new pair of tokens, by password."""
        answer = await self.grant(
            grant_type="password", username=self.email, password=self.password
        )
        assert answer.status_code == 200, answer.text
        return dict(answer.json()["data"])

    async def own_console_token(self) -> str:
        """An access token of the same person at the built-in console, which sees all menus."""
        if not self._own_console_token:
            tenant = (await self.done("GET", "/user"))["tenant_id"]
            grant = {"grant_type": "password", "client_id": OWN_CONSOLE_CLIENT_ID}
            answer = await self.http.post(
                "/oauth2/token",
                json=grant | {"username": self.email, "password": self.password},
                headers={"TENANT_ID": tenant},
            )
            assert answer.status_code == 200, answer.text
            self._own_console_token = str(answer.json()["access_token"])
        return self._own_console_token

    async def log_in(self) -> "Console":
        """Take tokens for the calls to come."""
        pair = await self.tokens()
        self.token, self.refresh_token = pair["access_token"], pair["refresh_token"]
        self.id = (await self.done("GET", "/user"))["user_id"]
        return self

    async def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, **more: Any
    ) -> httpx.Response:
        """One call; bytes are sent as they are, all else as JSON; `None` sends no body."""
        bearer = self.token if token is None else token
        headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
        headers |= more.pop("headers", {})
        if isinstance(body, bytes):
            more["content"] = body
            headers.setdefault("Content-Type", "application/json")
        elif body is not None:
            more["json"] = body
        return await self.http.request(method, path, headers=headers, **more)

    async def done(self, method: str, path: str, body: Any = None) -> Any:
        """`data` of a call that succeeds and has some."""
        return console_accepted(await self.ask(method, path, body))

    async def does(self, method: str, path: str, body: Any = None) -> None:
        """A call whose success has an empty `data`."""
        assert await self.done(method, path, body) == {}

    async def fails(
        self, status: int, code: str, method: str, path: str, body: Any = None, field: str = ""
    ) -> Json:
        """The body of a call that is refused."""
        return console_refused(await self.ask(method, path, body), status, code, field)

    async def add_user(self, email: str = "", nickname: str = "Some Body") -> str:
        """Add a user without roles; return its id."""
        email = email or new_email()
        body = {"email": email, "nickname": nickname, "password": PASSWORD}
        console_accepted(await self.ask("POST", "/user/members", body), data=False)
        found = await self.done("POST", "/user/members/search", {"keyword": email})
        return str(found[0]["user_id"])

    async def add_role(self, *codes: str, users: tuple[str, ...] = ()) -> str:
        """Add a role with the menus of some codes; return its id."""
        role = (await self.done("POST", "/user/roles", {"name": new_name("role")}))["role_id"]
        await self.set_menus(role, *codes)
        if users:
            await self.does("POST", f"/user/roles/{role}/associate-user", {"user_ids": [*users]})
        return str(role)

    async def set_menus(self, role: str, *codes: str) -> None:
        """Let a role have the menus of exactly these codes."""
        ids = await self.menu_ids()
        await self.set_menu_ids(role, [ids[code] for code in codes])

    async def set_menu_ids(self, role: str, ids: list[str]) -> None:
        """Let a role have exactly these menus, as the built-in console saves it."""
        path, token = f"/user/roles/{role}/associate-menu", await self.own_console_token()
        answer = await self.ask("POST", path, {"menu_ids": ids}, token=token)
        assert console_accepted(answer) == {}

    async def menu_ids(self) -> dict[str, str]:
        """The menus of the tenant, as the built-in console sees them: code → id."""
        answer = await self.ask("GET", "/user/menus", token=await self.own_console_token())
        found, tree = {}, list(console_accepted(answer))
        while tree:
            menu = tree.pop()
            found[menu["code"]] = menu["menu_id"]
            tree += menu["children"]
        return found

    async def person(self, *codes: str) -> "Console":
        """Another user of the tenant, with a role of its own if `codes` are given; logged in."""
        email = new_email()
        user = await self.add_user(email)
        if codes:
            await self.add_role(*codes, users=(user,))
        client = self.client_id, self.client_secret
        return await Console(str(self.http.base_url), client, email).log_in()

    async def close(self) -> None:
        """Close its connections."""
        await self.http.aclose()
