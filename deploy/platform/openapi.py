"""Clients of the open API and the management API for the launcher's commands."""

import asyncio
from typing import Any, Self

import aiohttp

from deploy.platform.errors import CommandError, InputRejected
from libs.common.jobs import retry
from libs.common.tls import client_context

_TIMEOUT = aiohttp.ClientTimeout(total=30)
_DEVICES_PATH = "/device/openapi/v1/devices"
_UNAUTHORIZED_STATUS = 401
_BUSY_STATUSES = (429, 503)
_MAX_TRIES_WHILE_BUSY = 20


class ApiRejected(InputRejected):
    """A rejected API request; `faults` has one or more reasons."""

    def __init__(self, status: int, body: Any) -> None:
        fields = body if isinstance(body, dict) else {}
        message_fields = ("errMsg", "error_message", "errCode", "error_code")
        text = next(
            (str(fields[name]) for name in message_fields if fields.get(name)), f"HTTP {status}"
        )
        super().__init__(text, _list_faults(fields.get("data")))
        self.status = status


class OpenApiClient:
    """A client of the open API for one application, an async context manager.

    Requests a token when it has none, and once again after status 401. While the platform is busy
    (429, 503), waits as the response demands.
    """

    def __init__(
        self, base_url: str, client_id: str, client_secret: str, ca_file: str = ""
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._ca_file = ca_file
        self._login_path = "/oauth/token"
        self._login = {
            "client_id": client_id,
            "client_secret": client_secret,
            "grant_type": "client_credentials",
        }
        self._token: str | None = None
        self._token_lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            timeout=_TIMEOUT, connector=aiohttp.TCPConnector(ssl=client_context(self._ca_file))
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def put_product(self, model: str, product: dict[str, Any]) -> Any:
        """Create or replace a product."""
        return await self.request("PUT", f"/device/openapi/v1/products/{model}", product)

    async def ensure_device(self, sn: str, name: str, model: str) -> int:
        """Return the id of a device; add the device if it does not exist."""
        body = {"snDevEUI": sn, "name": name, "model": model}
        try:
            added = await self.request("POST", _DEVICES_PATH, body)
        except ApiRejected:
            existing = await self._find_device(sn)
            if existing is None:
                raise
            return existing
        return int(added["deviceId"])

    async def issue_credentials(self, device_id: int) -> tuple[str, str]:
        """Issue new credentials for a device; return its SN and key."""
        answer = await self.request("POST", f"{_DEVICES_PATH}/{device_id}/credentials")
        return str(answer["sn"]), str(answer["key"])

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the `data` of the response.

        Raises `ApiRejected` for an error response, `CommandError` if the platform does not respond.
        """
        token = await self._valid_token(None)
        status, answer = await self._send_while_busy(method, path, body, token)
        if status == _UNAUTHORIZED_STATUS:
            token = await self._valid_token(token)
            status, answer = await self._send_while_busy(method, path, body, token)
        return _require_data(status, answer)

    async def _send_while_busy(
        self, method: str, path: str, body: Any, token: str
    ) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        for _ in range(_MAX_TRIES_WHILE_BUSY):
            status, answer, pause = await self._request_status_body_pause(
                method, path, json=body, headers=headers
            )
            if status not in _BUSY_STATUSES:
                break
            await asyncio.sleep(pause)
        return status, answer

    async def _find_device(self, sn: str) -> int | None:
        search = {"sn": sn, "pageNumber": 1, "pageSize": 1}
        page = await self.request("POST", f"{_DEVICES_PATH}/search", search)
        matches = [item for item in page["content"] if item["sn"].upper() == sn.upper()]
        return int(matches[0]["deviceId"]) if matches else None

    async def _valid_token(self, rejected_token: str | None) -> str:
        """Return the current token; a new one if it is missing or was rejected."""
        async with self._token_lock:
            if self._token is None or self._token == rejected_token:
                status, answer, _ = await self._request_status_body_pause(
                    "POST", self._login_path, data=self._login
                )
                self._token = str(_require_data(status, answer)["access_token"])
            return self._token

    async def _request_status_body_pause(
        self, method: str, path: str, **options: Any
    ) -> tuple[int, Any, float]:
        """Return status, decoded body, and the requested pause in seconds."""
        try:
            async with self._session.request(method, self._base_url + path, **options) as answer:
                pause = answer.headers.get("Retry-After", "")
                body = await answer.json(content_type=None)
                return answer.status, body, float(pause) if pause.isdigit() else 0.5
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise CommandError(f"no platform responds at {self._base_url}: {reason}") from error


class ManagementApiClient(OpenApiClient):
    """A client of the management API for one user."""

    def __init__(
        self, base_url: str, client: tuple[str, str], login: tuple[str, str], ca_file: str = ""
    ) -> None:
        """`client` belongs to the console; `login` is the user's email and password."""
        super().__init__(base_url, *client, ca_file)
        self._login_path = "/oauth2/token"
        email, password = login
        self._login |= {"grant_type": "password", "username": email, "password": password}


def _require_data(status: int, body: Any) -> Any:
    if isinstance(body, dict) and body.get("status") == "Success":
        return body.get("data")
    raise ApiRejected(status, body)


def _list_faults(data: Any) -> list[str]:
    """Return a line per fault; the data of an InvalidInput is `[{field, reason}]`."""
    if not isinstance(data, list):
        return []
    return [f"{fault.get('field')}: {fault.get('reason')}" for fault in data if "reason" in fault]


_PROBE_TIMEOUT = aiohttp.ClientTimeout(total=2)


async def wait_until_ready(base_url: str, ca_file: str = "") -> None:
    """Return when `base_url/readyz` succeeds; the caller limits the time."""
    connector = aiohttp.TCPConnector(ssl=client_context(ca_file))
    async with aiohttp.ClientSession(timeout=_PROBE_TIMEOUT, connector=connector) as session:

        async def probe() -> None:
            async with session.get(f"{base_url}/readyz", raise_for_status=True):
                pass

        await retry(probe, aiohttp.ClientError, TimeoutError)
