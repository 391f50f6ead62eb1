"""Who calls the platform's APIs: an application, and a person at the console."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from tests.e2e.devices import Device, Json

if TYPE_CHECKING:
    from tests.e2e.platform import Platform

API = "/device/openapi/v1"


class Application:
    """A third-party application; it logs in, and again after a 401."""

    def __init__(self, platform: "Platform", client_id: str, client_secret: str) -> None:
        self.platform = platform
        self.client_id = client_id
        self.client_secret = client_secret
        self.id = 0
        self.token = ""
        self._session = platform.session()

    async def log_in(self) -> None:
        """Get a token."""
        form = {
            "grant_type": "client_credentials",
            "client_id": self.client_id,
            "client_secret": self.client_secret,
        }
        async with self._session.post("/oauth/token", data=form) as answer:
            body = await answer.json()
            assert answer.status == 200, body
        self.token = body["data"]["access_token"]

    async def request(
        self, method: str, path: str, body: Any = None, **query: Any
    ) -> tuple[int, Json]:
        """Make one call with the current token; return status and body."""
        status, content, _ = await self._send(method, path, body, query)
        return status, content

    async def data(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """`data` of a call that must succeed."""
        status, content, _ = await self._call(method, path, body, query)
        assert (status, content.get("status")) == (200, "Success"), content
        return content.get("data")

    async def started(self, method: str, path: str, body: Any = None) -> int:
        """Make a call that starts a task; return the id of the task."""
        status, content, headers = await self._call(method, path, body, {})
        assert status == 200, content
        return int(headers["Location"].rpartition("/")[2])

    async def _call(self, method: str, path: str, body: Any, query: Json) -> tuple[int, Json, Any]:
        if not self.token:
            await self.log_in()
        answer = await self._send(method, path, body, query)
        if answer[0] == 401:
            await self.log_in()
            answer = await self._send(method, path, body, query)
        return answer

    async def _send(self, method: str, path: str, body: Any, query: Json) -> tuple[int, Json, Any]:
        headers = {"Authorization": f"Bearer {self.token}"}
        query = {name: str(value) for name, value in query.items()}
        async with self._session.request(
            method, f"{API}{path}", json=body, headers=headers, params=query
        ) as answer:
            return answer.status, await answer.json(), answer.headers

    async def add_device(self, **fields: Any) -> Device:
        """Add a device of the tests' product and issue its credentials."""
        sn = fields.pop("snDevEUI", f"E2E{uuid4().hex[:13].upper()}")
        added = await self.data("POST", "/devices", {"snDevEUI": sn, "name": sn, **fields})
        device = Device(self, added["deviceId"], added["sn"], "")
        device.key = await device.new_key()
        return device

    async def close(self) -> None:
        """Close its connections."""
        await self._session.close()


class Console:
    """A user of the console; signs in, and again after a 401."""

    def __init__(self, platform: "Platform", email: str, password: str, tenant: str = "") -> None:
        self.platform = platform
        self.email = email
        self.password = password
        self.tenant = tenant
        self.token = ""
        self.refresh_token = ""
        self._session = platform.session()

    async def sign_in(self) -> None:
        """Get tokens with the password."""
        await self._grant(grant_type="password", username=self.email, password=self.password)

    async def refresh(self) -> None:
        """Get the next tokens."""
        await self._grant(grant_type="refresh_token", refresh_token=self.refresh_token)

    async def _grant(self, **fields: str) -> None:
        client = self.platform.ready.console_client
        form = {**fields, "client_id": client.client_id, "client_secret": client.client_secret}
        headers = {"TENANT_ID": self.tenant} if self.tenant else {}
        async with self._session.post("/oauth2/token", data=form, headers=headers) as answer:
            body = await answer.json()
            assert answer.status == 200, body
        self.token = body["data"]["access_token"]
        self.refresh_token = body["data"]["refresh_token"]

    @asynccontextmanager
    async def live(self, *keys: str) -> AsyncIterator[None]:
        """Keep a WebSocket open that subscribes to entities."""
        query = {"Authorization": f"Bearer {self.token}"}
        async with self._session.ws_connect("/websocket", params=query) as socket:
            await socket.send_json({"event_type": "Exchange", "payload": {"entity_key": keys}})
            beat = json.dumps({"event_type": "Heartbeat", "payload": "ping"})
            await socket.send_str(beat)
            assert await socket.receive_str() == beat
            yield

    async def request(
        self, method: str, path: str, body: Any = None, **query: Any
    ) -> tuple[int, Json]:
        """Make one call with the current token; return status and body."""
        headers = {"Authorization": f"Bearer {self.token}"}
        params = {name: str(value) for name, value in query.items()}
        async with self._session.request(
            method, path, json=body, headers=headers, params=params
        ) as answer:
            return answer.status, await answer.json()

    async def data(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """`data` of a call that must succeed; signs in before it when that is needed."""
        if not self.token:
            await self.sign_in()
        status, content = await self.request(method, path, body, **query)
        if status == 401:
            await self.sign_in()
            status, content = await self.request(method, path, body, **query)
        assert (status, content.get("status")) == (200, "Success"), content
        return content.get("data")

    async def add_user(self, email: str = "") -> "Console":
        """Add a user without roles to this one's tenant, and be it."""
        made = Console(
            self.platform, email or f"{uuid4().hex}@example.com", self.password, self.tenant
        )
        fields = {"email": made.email, "nickname": "Somebody", "password": made.password}
        await self.data("POST", "/user/members", fields)
        return made

    async def id(self) -> int:
        """Return the user's id."""
        return int((await self.data("GET", "/user"))["user_id"])

    async def close(self) -> None:
        """Close its connections."""
        await self._session.close()
