"""A small platform that speaks the device open API, as another vendor might."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from aiohttp import web

CLIENT_ID, SECRET = "their-client", "their-secret-9f3k"
API = "/device/openapi/v1"
TSL: dict[str, Any] = {
    "version": "v1.0",
    "properties": [
        {"id": "level", "accessMode": "R", "dataSpec": {"dataType": "INT"}},
        {"id": "mode", "accessMode": "RW", "dataSpec": {"dataType": "STRING"}},
    ],
    "events": [],
    "services": [{"id": "weigh", "callType": "SYNC", "inputs": [], "outputs": []}],
}


class Platform:
    """Its devices, their history, what was asked of it, and how it misbehaves."""

    def __init__(self, *, tasks: bool = True) -> None:
        self.devices: dict[str, dict[str, Any]] = {}
        self.history: dict[str, list[dict[str, Any]]] = {}
        self.asked: list[str] = []
        self.set: list[tuple[str, Any]] = []
        self.tasks: dict[str, dict[str, Any]] = {}
        self.failing: Callable[[str, str], web.Response | None] = lambda *_: None
        self.url = ""
        self._has_tasks = tasks
        self._tokens: set[str] = set()
        self._changed = asyncio.Event()

    def add(self, device_id: int, sn: str, *reports: tuple[int, dict[str, Any]]) -> None:
        """Have a device with a history of `(ts, properties)`."""
        self.devices[str(device_id)] = {
            "deviceId": str(device_id),
            "sn": sn,
            "name": f"device {sn}",
            "model": "TANK-9",
        }
        self.history[str(device_id)] = [{"ts": ts, "properties": p} for ts, p in reports]

    def forget_tokens(self) -> None:
        """Tokens end, as when a secret is rotated."""
        self._tokens.clear()

    async def until(self, true: Callable[[], Any]) -> Any:
        """Wait until something holds of what was asked of it."""
        async with asyncio.timeout(20):
            while not (answer := true()):
                self._changed.clear()
                await self._changed.wait()
        return answer

    def app(self) -> web.Application:
        """Its HTTP side."""
        made = web.Application(middlewares=[self._middleware])
        made.router.add_post("/oauth/token", self._token)
        made.router.add_post(f"{API}/devices/search", self._search)
        made.router.add_get(f"{API}/devices/{{id}}", self._get)
        made.router.add_get(f"{API}/devices/{{id}}/thing-specification", self._tsl)
        made.router.add_get(f"{API}/devices/{{id}}/properties/history", self._page)
        made.router.add_patch(f"{API}/devices/{{id}}/properties", self._command)
        made.router.add_post(f"{API}/devices/{{id}}/services/call", self._command)
        made.router.add_post(f"{API}/tasks", self._create_tasks)
        made.router.add_get(f"{API}/tasks/{{id}}", self._task)
        return made

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path.removeprefix(API)}")
        self._changed.set()
        if failure := self.failing(request.method, request.path.removeprefix(API)):
            return failure
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if request.path != "/oauth/token" and token not in self._tokens:
            return refusal(401, "authentication_failed")
        found = request.match_info.get("id")
        if found and "/tasks" not in request.path and found not in self.devices:
            return refusal(404, "device_not_found")
        return await handler(request)

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        if (form.get("client_id"), form.get("client_secret")) != (CLIENT_ID, SECRET):
            return refusal(401, "authentication_failed")
        token = uuid4().hex
        self._tokens.add(token)
        return success({"access_token": token, "expires_in": 3599})

    async def _search(self, request: web.Request) -> web.Response:
        body = await request.json()
        found = sorted(self.devices.values(), key=lambda one: int(one["deviceId"]))
        if sn := body.get("sn"):
            found = [one for one in found if one["sn"].upper() == sn.upper()]
        start = (body["pageNumber"] - 1) * body["pageSize"]
        page = found[start : start + body["pageSize"]]
        return success({"total": len(found), "content": page, "pageNumber": body["pageNumber"]})

    async def _get(self, request: web.Request) -> web.Response:
        return success(self.devices[request.match_info["id"]])

    async def _tsl(self, request: web.Request) -> web.Response:
        return success(TSL)

    async def _page(self, request: web.Request) -> web.Response:
        query = request.query
        assert query["order"] == "asc"
        low, high = int(query["startTime"]), int(query["endTime"])
        found = [
            one
            for one in sorted(self.history[request.match_info["id"]], key=lambda one: one["ts"])
            if low <= one["ts"] <= high
        ]
        start, size = int(query.get("pageKey", 0)), min(int(query["pageSize"]), 10)
        page: dict[str, Any] = {"list": found[start : start + size], "pageSize": size}
        if start + size < len(found):
            page["nextPageKey"] = str(start + size)
        return success(page)

    async def _command(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.set.append((request.match_info["id"], body))
        if body.get("serviceId") == "fly":
            return refusal(400, "parameter_validation_failed", "there is no service fly")
        if not self._has_tasks:
            return success(None)
        return success(None, {"Location": f"{API}/tasks/{self._new_task()}"})

    async def _create_tasks(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.set.append((str(body["deviceIds"][0]), body["config"]))
        relation = {"deviceId": body["deviceIds"][0], "taskId": self._new_task()}
        return success({"deviceTaskRelations": [relation]})

    async def _task(self, request: web.Request) -> web.Response:
        return success(self.tasks[request.match_info["id"]])

    def _new_task(self) -> int:
        number = len(self.tasks) + 1
        self.tasks[str(number)] = {"status": "PENDING"}
        return number


def success(data: Any, headers: dict[str, str] | None = None) -> web.Response:
    """The envelope of a success."""
    body = {"status": "Success", "requestId": uuid4().hex, "data": data}
    return web.json_response(body, headers=headers)


def refusal(status: int, code: str, text: str = "", *, pause: int = 0) -> web.Response:
    """The envelope of a failure."""
    body = {"status": "Failed", "requestId": uuid4().hex, "errCode": code, "errMsg": text or code}
    return web.json_response(body, status=status, headers={"Retry-After": str(pause)})


@asynccontextmanager
async def serving(platform: Platform) -> AsyncIterator[Platform]:
    """Serve it on loopback."""
    runner = web.AppRunner(platform.app())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    platform.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    try:
        yield platform
    finally:
        await runner.cleanup()
