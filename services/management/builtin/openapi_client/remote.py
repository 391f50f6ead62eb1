"""Client of another platform's device open API, with the credentials of an application.

Unknown fields are ignored; ids may be numbers or decimal texts.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

import aiohttp
import msgspec

from libs.common.decoding import JSON_ERRORS, decode_json
from libs.common.errors import InvalidInput, NotFound, Unavailable, UpstreamFailed

Id = int | Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{1,64}$")]
"""An id that can be a segment of a URL path."""
T = TypeVar("T")
API_PATH = "/device/openapi/v1"
DEVICES_PER_PAGE = 100
REPORTS_PER_PAGE = 1000
MAX_RESPONSE_BYTES = 32 * 1024**2
MAX_ERROR_CHARACTERS = 500
"""Maximum characters of an error message that is passed on."""
MAX_ATTEMPTS_WHILE_BUSY = 5
USUAL_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 10.0
"""Usual and longest pause in seconds between two attempts while the other platform is busy. A
header `Retry-After` replaces the usual pause."""
OK, BAD_REQUEST, UNAUTHORIZED, NOT_FOUND, MIN_SERVER_ERROR_STATUS = 200, 400, 401, 404, 500
BUSY_STATUSES = (429, 503)
_TASK_PATH = re.compile(r"/tasks/([0-9]{1,19})\Z")


class Envelope(msgspec.Struct, rename="camel"):
    """The envelope of every answer."""

    status: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")
    err_code: str | None = None
    err_msg: str | None = None


class Token(msgspec.Struct):
    """The `data` of `POST /oauth/token`."""

    access_token: str


class RemoteDevice(msgspec.Struct, rename="camel"):
    """A device of the other platform."""

    sn: str
    device_id: Id
    name: str | None = None
    model: str | None = None

    @property
    def id(self) -> str:
        """Return the id of the device on the other platform, as text."""
        return str(self.device_id)


class DevicePage(msgspec.Struct):
    """The `data` of `POST /devices/search`."""

    content: list[RemoteDevice] = []


class HistoryReport(msgspec.Struct):
    """A report in the history; `ts` in ms."""

    ts: int
    properties: dict[str, Any] = {}


class HistoryPage(msgspec.Struct, rename="camel"):
    """The `data` of `GET …/properties/history`."""

    records: list[HistoryReport] = msgspec.field(name="list", default_factory=list)
    next_page_key: str | None = None


class Task(msgspec.Struct, rename="camel"):
    """The `data` of `GET /tasks/{taskId}`."""

    status: str
    err_msg: str | None = None
    outputs: dict[str, Any] | None = None


class DeviceTask(msgspec.Struct, rename="camel"):
    """The task of a device."""

    task_id: Id


class CreatedTasks(msgspec.Struct, rename="camel"):
    """The `data` of `POST /tasks`."""

    device_task_relations: list[DeviceTask] = []


class RequestRejected(InvalidInput):
    """The other platform rejected the request (4xx), with its message."""


@dataclass(frozen=True, kw_only=True)
class RemoteAccount:
    """The URL of the other platform, and the credentials of an application."""

    base_url: str
    client_id: str
    client_secret: str = field(repr=False)


@dataclass(frozen=True)
class _HttpResponse:
    status: int
    body: bytes
    headers: Mapping[str, str]


class RemotePlatform:
    """Client for one account.

    Calls raise `RequestRejected`, `NotFound`, `Unavailable` or `UpstreamFailed`.
    """

    def __init__(self, session: aiohttp.ClientSession, account: RemoteAccount) -> None:
        self.account = account
        self._session = session
        self._token: str | None = None
        self._logging_in = asyncio.Lock()

    async def iterate_devices(self) -> AsyncIterator[RemoteDevice]:
        """Yield all devices of the application in the order of their ids."""
        number = 1
        while True:
            query = {
                "pageSize": DEVICES_PER_PAGE,
                "pageNumber": number,
                "sorts": [{"property": "deviceId", "direction": "asc"}],
            }
            page = await self._call_for_data("POST", "/devices/search", DevicePage, query)
            for device in page.content:
                yield device
            if len(page.content) < DEVICES_PER_PAGE:
                return
            number += 1

    async def find_device(self, device: str) -> RemoteDevice | None:
        """Return the device with this SN, else with this id, else None."""
        query = {"sn": device, "pageSize": 1, "pageNumber": 1}
        page = await self._call_for_data("POST", "/devices/search", DevicePage, query)
        for remote_device in page.content:
            if remote_device.sn.upper() == device.upper():
                return remote_device
        if not re.fullmatch("[0-9]{1,19}", device):
            return None
        try:
            return await self._call_for_data("GET", f"/devices/{device}", RemoteDevice)
        except NotFound:
            return None

    async def get_tsl(self, device_id: str) -> dict[str, Any]:
        """Return the TSL of a device."""
        path = f"/devices/{device_id}/thing-specification"
        return await self._call_for_data("GET", path, dict[str, Any])

    async def iterate_history(
        self, device_id: str, start: int, end: int
    ) -> AsyncIterator[HistoryPage]:
        """Yield pages of reports between two inclusive times in ms, the oldest first."""
        query = {
            "startTime": str(start),
            "endTime": str(end),
            "pageSize": str(REPORTS_PER_PAGE),
            "order": "asc",
        }
        path = f"/devices/{device_id}/properties/history"
        while True:
            page = await self._call_for_data("GET", path, HistoryPage, query=query)
            yield page
            if not page.next_page_key or not page.records:
                return
            query["pageKey"] = page.next_page_key

    async def set_properties(self, device_id: str, properties: dict[str, Any]) -> str | None:
        """Update properties; return the id of the task, if any."""
        body = {"properties": properties}
        return await self._call_for_task_id("PATCH", f"/devices/{device_id}/properties", body)

    async def call_service(
        self, device_id: str, service: str, inputs: dict[str, Any]
    ) -> str | None:
        """Call a service; return the id of the task, if any."""
        body = {"serviceId": service, "inputs": inputs}
        return await self._call_for_task_id("POST", f"/devices/{device_id}/services/call", body)

    async def set_profile(self, device_id: str, values: list[dict[str, Any]]) -> str | None:
        """Set values of a device profile by key; return the id of the task, if any."""
        number = int(device_id) if device_id.isdigit() else device_id
        body = {"type": "PROFILE", "deviceIds": [number], "config": {"values": values}}
        made = await self._call_for_data("POST", "/tasks", CreatedTasks, body)
        tasks = made.device_task_relations
        return str(tasks[0].task_id) if tasks else None

    async def get_task(self, task_id: str) -> Task:
        """Return a task."""
        return await self._call_for_data("GET", f"/tasks/{task_id}", Task)

    async def _call_for_task_id(self, method: str, path: str, body: Any) -> str | None:
        answer = await self._call(method, path, body)
        _decode_envelope(answer)
        task = _TASK_PATH.search(answer.headers.get("Location", ""))
        return task[1] if task else None

    async def _call_for_data(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: Any = None,
        query: dict[str, str] | None = None,
    ) -> T:
        answer = await self._call(method, path, body, query)
        try:
            return msgspec.json.decode(_decode_envelope(answer).data, type=kind)
        except JSON_ERRORS as error:
            raise UpstreamFailed(f"{method} {path} sent an invalid answer: {error}") from error

    async def _call(
        self, method: str, path: str, body: Any = None, query: dict[str, str] | None = None
    ) -> _HttpResponse:
        """Call with a token; if the token is rejected, retry once with a new one."""
        token: str | None = None
        for _ in range(2):
            token = await self._get_token(token)
            headers = {"Authorization": f"Bearer {token}"}
            for _ in range(MAX_ATTEMPTS_WHILE_BUSY):
                answer = await self._send(
                    method, API_PATH + path, headers=headers, params=query or {}, json=body
                )
                if answer.status not in BUSY_STATUSES:
                    break
                pause = answer.headers.get("Retry-After", "")
                seconds = float(pause) if pause.isdigit() else USUAL_PAUSE_SECONDS
                await asyncio.sleep(min(seconds, LONGEST_PAUSE_SECONDS))
            if answer.status != UNAUTHORIZED:
                break
        return answer

    async def _get_token(self, rejected_token: str | None) -> str:
        async with self._logging_in:
            if self._token is None or self._token == rejected_token:
                form = {
                    "grant_type": "client_credentials",
                    "client_id": self.account.client_id,
                    "client_secret": self.account.client_secret,
                }
                answer = _decode_envelope(await self._send("POST", "/oauth/token", data=form))
                try:
                    self._token = msgspec.json.decode(answer.data, type=Token).access_token
                except JSON_ERRORS as error:
                    raise UpstreamFailed(f"the answer has no token: {error}") from error
            return self._token

    async def _send(self, method: str, path: str, **options: Any) -> _HttpResponse:
        base = self.account.base_url
        try:
            async with self._session.request(
                method, base + path, allow_redirects=False, **options
            ) as answer:
                body = await answer.content.read(MAX_RESPONSE_BYTES + 1)
                while len(body) <= MAX_RESPONSE_BYTES and (more := await answer.content.readany()):
                    body += more
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise Unavailable(f"{base} does not answer: {reason}") from error
        if len(body) > MAX_RESPONSE_BYTES:
            raise UpstreamFailed(f"the answer of {base} exceeds {MAX_RESPONSE_BYTES} bytes")
        return _HttpResponse(answer.status, body, answer.headers)


def _decode_envelope(answer: _HttpResponse) -> Envelope:
    """Return the envelope of a success; raise the error of a failure."""
    try:
        envelope: Envelope = decode_json(
            answer.body, answer.headers.get("Content-Type", ""), type=Envelope
        )
    except JSON_ERRORS as error:
        text = f"the other platform sent an invalid answer with status {answer.status}"
        raise UpstreamFailed(text) from error
    if answer.status == OK and envelope.status == "Success":
        return envelope
    text = (envelope.err_msg or envelope.err_code or f"HTTP {answer.status}")[:MAX_ERROR_CHARACTERS]
    if answer.status in BUSY_STATUSES or answer.status >= MIN_SERVER_ERROR_STATUS:
        raise Unavailable(f"the other platform failed: {text}")
    if answer.status == NOT_FOUND:
        raise NotFound(f"the other platform answered: {text}")
    if answer.status >= BAD_REQUEST or answer.status == OK:
        raise RequestRejected(f"the other platform rejected the request: {text}")
    raise UpstreamFailed(f"the other platform answered {answer.status}")
