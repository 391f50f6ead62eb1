"""The asynchronous client, from which the build generates `_sync.py`."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import urlsplit

import httpx

from thingway_client import records
from thingway_client._api.api.device_api_devices import (
    add_device,
    call_device_service,
    delete_device,
    get_device,
    get_device_config,
    get_property_history,
    get_thing_specification,
    issue_credentials,
    remove_device,
    search_devices,
    update_device,
    update_device_properties,
)
from thingway_client._api.api.device_api_limits import get_limits
from thingway_client._api.api.device_api_products import (
    delete_product,
    get_product,
    list_products,
    put_product,
)
from thingway_client._api.api.device_api_rps import (
    delete_rps_profile,
    search_rps_profiles,
    set_rps_profile,
)
from thingway_client._api.api.device_api_tasks import create_tasks, get_task
from thingway_client._api.client import AuthenticatedClient
from thingway_client._api.models import (
    AddDevice,
    CallService,
    Config,
    CreateTasks,
    DeviceCredentials,
    DeviceRecord,
    DeviceRef,
    Failure,
    GatewayError,
    GetPropertyHistoryOrderType0,
    Product,
    ProductWithTsl,
    PutProduct,
    RpsRecord,
    SearchDevices,
    SearchProfiles,
    SetProfile,
    Task,
    TenantUsage,
    TslDocument,
    UpdateDevice,
    UpdateProperties,
)
from thingway_client._api.types import Response
from thingway_client.errors import CommandFailed, CommandPending, Refused
from thingway_client.events import Event, NatsLogin, listen
from thingway_client.records import Record

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Time = datetime | int | None
"""A `datetime`, or ms since 1970; None: no limit."""
SendRequest = Callable[[], Awaitable[Response[Any]]]

DEFAULT_PAGE_SIZE = 1000
RETRIED_STATUSES = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
"""Statuses of temporary rejections, which are retried."""
MAX_RETRY_PAUSE_SECONDS = 30.0
"""Maximum seconds between two attempts of a request."""
RENEW_BEFORE_EXPIRY_SECONDS = 60.0
"""Seconds before its expiry at which a token is replaced."""


class AsyncThingway:
    """A client of the device open API for one application.

    It gets and renews tokens automatically. It retries temporary rejections (429, 503) up to
    `retries` times, after the time that the platform names. Raises `Refused` if the platform
    rejects a request, and `httpx.HTTPError` if the platform cannot be reached.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str,
        *,
        nats_url: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
    ) -> None:
        """Create a client; it connects with the first request.

        `nats_url` is by default port 4222 of the same host, with TLS if `url` is `https://`.
        `timeout` is the maximum time of a request in seconds.
        """
        self._login = (client_id, client_secret)
        address = urlsplit(url)
        scheme = "tls" if address.scheme == "https" else "nats"
        self._nats_url = nats_url or f"{scheme}://{address.hostname}:4222"
        self._retries = retries
        self._client = AuthenticatedClient(
            base_url=url.rstrip("/"),
            token="",  # `_TokenAuth` adds it to each request
            timeout=httpx.Timeout(timeout),
            httpx_args={"auth": _TokenAuth(url.rstrip("/"), client_id, client_secret)},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.get_async_httpx_client().aclose()

    # Devices.

    async def add_device(self, sn: str, name: str, **more: Any) -> DeviceRef:
        """Add a device. Examples of `more`: `model`, `description`, `tag`, `data_storage`."""
        body = AddDevice.from_dict({"snDevEUI": sn, "name": name, **_to_api_fields(more)})
        return await self._request_data(
            lambda: add_device.asyncio_detailed(client=self._client, body=body)
        )

    async def issue_key(self, device_id: int) -> DeviceCredentials:
        """Issue a key, which is returned only here. The previous key stops working."""
        return await self._request_data(
            lambda: issue_credentials.asyncio_detailed(device_id, client=self._client)
        )

    async def device(self, device_id: int) -> DeviceRecord:
        """Return the record of a device."""
        return await self._request_data(
            lambda: get_device.asyncio_detailed(device_id, client=self._client)
        )

    async def devices(
        self, *, page_size: int = DEFAULT_PAGE_SIZE, **filters: Any
    ) -> AsyncGenerator[DeviceRecord, None]:
        """Yield matching devices. Examples: `keyword="roof"`, `connect_status=["ONLINE"]`."""
        wanted = {"pageSize": page_size, **_to_api_fields(filters)}
        async for device in self._iterate_pages(
            lambda number: search_devices.asyncio_detailed(
                client=self._client, body=SearchDevices.from_dict({**wanted, "pageNumber": number})
            )
        ):
            yield device

    async def update_device(self, device_id: int, name: str, **more: Any) -> None:
        """Change the record of a device. Omitted fields do not change."""
        body = UpdateDevice.from_dict({"deviceId": device_id, "name": name, **_to_api_fields(more)})
        await self._request_data(
            lambda: update_device.asyncio_detailed(client=self._client, body=body)
        )

    async def remove_device(self, device_id: int) -> None:
        """Remove a device from the application; its history stays.

        Its key ends, unless a super-admin assigned the device.
        """
        await self._request_data(
            lambda: remove_device.asyncio_detailed(device_id, client=self._client)
        )

    async def delete_device(self, device_id: int) -> None:
        """Delete a device with its history."""
        await self._request_data(
            lambda: delete_device.asyncio_detailed(device_id, client=self._client)
        )

    async def thing_specification(self, device_id: int) -> TslDocument:
        """Return the thing specification (TSL) of a device."""
        return await self._request_data(
            lambda: get_thing_specification.asyncio_detailed(device_id, client=self._client)
        )

    async def config(self, device_id: int) -> Config:
        """Return the configuration of a device, in the format of `create_tasks`."""
        return await self._request_data(
            lambda: get_device_config.asyncio_detailed(device_id, client=self._client)
        )

    # Values.

    def history(
        self,
        device_id: int,
        start: Time = None,
        end: Time = None,
        *,
        order: Literal["asc", "desc"] = "asc",
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> "AsyncHistory":
        """Return the history of a device, oldest first; without bounds the last 24 hours.

        Pages are loaded while you iterate.
        """
        span = records.to_milliseconds(start), records.to_milliseconds(end)
        return AsyncHistory(self._iterate_history(device_id, span, order, page_size))

    async def _iterate_history(
        self, device_id: int, span: tuple[int | None, int | None], order: str, page_size: int
    ) -> AsyncGenerator[Record, None]:
        key = None
        while True:
            page = await self._request_data(
                lambda key=key: get_property_history.asyncio_detailed(  # type: ignore[misc]
                    device_id,
                    client=self._client,
                    start_time=span[0],
                    end_time=span[1],
                    page_size=page_size,
                    page_key=key,
                    order=GetPropertyHistoryOrderType0(order),
                )
            )
            for row in page.list_:
                yield Record(row.ts, row.properties.to_dict())
            if not (key := page.next_page_key or None):
                return

    # Commands.

    async def set_properties(self, device_id: int, properties: dict[str, Any]) -> "AsyncCommand":
        """Send new property values to a device; `wait` of the returned command awaits the reply."""
        body = UpdateProperties.from_dict({"properties": properties})
        response = await self._send_with_retries(
            lambda: update_device_properties.asyncio_detailed(
                device_id, client=self._client, body=body
            )
        )
        return AsyncCommand(self, _parse_task_id(response))

    async def call_service(
        self, device_id: int, service_id: str, inputs: dict[str, Any] | None = None
    ) -> "AsyncCommand":
        """Call a service of a device; `wait` of the returned command awaits the reply."""
        body = CallService.from_dict({"serviceId": service_id, "inputs": inputs or {}})
        response = await self._send_with_retries(
            lambda: call_device_service.asyncio_detailed(device_id, client=self._client, body=body)
        )
        return AsyncCommand(self, _parse_task_id(response))

    async def create_tasks(
        self, kind: Literal["TSL", "PROFILE"], device_ids: Sequence[int], config: dict[str, Any]
    ) -> dict[int, "AsyncCommand"]:
        """Configure devices, none if the request has an error; return commands by device id."""
        given = {"type": kind, "deviceIds": list(device_ids), "config": config}
        body = CreateTasks.from_dict(given)
        made = await self._request_data(
            lambda: create_tasks.asyncio_detailed(client=self._client, body=body)
        )
        return {
            created.device_id: AsyncCommand(self, created.task_id)
            for created in made.device_task_relations
        }

    async def task(self, task_id: int) -> Task:
        """Return the task of a command, with its status."""
        return await self._request_data(
            lambda: get_task.asyncio_detailed(task_id, client=self._client)
        )

    # Products.

    async def products(
        self, *, page_size: int = DEFAULT_PAGE_SIZE
    ) -> AsyncGenerator[Product, None]:
        """Yield the products of the tenant."""
        async for product in self._iterate_pages(
            lambda number: list_products.asyncio_detailed(
                client=self._client, page_size=page_size, page_number=number
            )
        ):
            yield product

    async def product(self, model: str) -> ProductWithTsl:
        """Return a product with its TSL."""
        return await self._request_data(
            lambda: get_product.asyncio_detailed(model, client=self._client)
        )

    async def put_product(self, model: str, name: str, tsl: dict[str, Any], **more: Any) -> None:
        """Create or replace a product. Examples of `more`: `sn_prefixes`, `history_days`."""
        body = PutProduct.from_dict({"name": name, "tsl": tsl, **_to_api_fields(more)})
        await self._request_data(
            lambda: put_product.asyncio_detailed(model, client=self._client, body=body)
        )

    async def delete_product(self, model: str) -> None:
        """Delete a product without devices."""
        await self._request_data(
            lambda: delete_product.asyncio_detailed(model, client=self._client)
        )

    # RPS records.

    async def set_profile(self, sn: str, profile_url: str) -> None:
        """Set the URL of the profile of a device that is not on the platform yet."""
        body = SetProfile(sn=sn, profile_url=profile_url)
        await self._request_data(
            lambda: set_rps_profile.asyncio_detailed(client=self._client, body=body)
        )

    async def profiles(
        self, *, page_size: int = DEFAULT_PAGE_SIZE
    ) -> AsyncGenerator[RpsRecord, None]:
        """Yield the RPS records of the application."""
        async for record in self._iterate_pages(
            lambda number: search_rps_profiles.asyncio_detailed(
                client=self._client, body=SearchProfiles(page_size=page_size, page_number=number)
            )
        ):
            yield record

    async def delete_profile(self, sn: str) -> None:
        """Delete the RPS record of an SN."""
        await self._request_data(
            lambda: delete_rps_profile.asyncio_detailed(sn, client=self._client)
        )

    # The application itself.

    async def limits(self) -> TenantUsage:
        """Return the limits and the usage of the application and its tenant."""
        return await self._request_data(lambda: get_limits.asyncio_detailed(client=self._client))

    async def events(
        self, pattern: str = ">", *, durable: bool = False
    ) -> AsyncGenerator[Event, None]:
        """Yield events from NATS: `device.*.reported`, `task.*.finished`, `>` for all.

        The application needs `--events`. Without `durable` only events from now on are received.
        With `durable` no event of the last seven days is missed: requesting the next event confirms
        the previous one, and an unconfirmed event is delivered again. An application has one
        position for all patterns.
        """
        tenant = (await self.limits()).tenant
        login = NatsLogin(self._nats_url, *self._login, tenant)
        async for event in listen(login, pattern, durable=durable):
            yield event

    # Requests.

    async def _iterate_pages(
        self, fetch: Callable[[int], Awaitable[Response[Any]]]
    ) -> AsyncGenerator[Any, None]:
        number, seen = 1, False
        while not seen:
            page = await self._request_data(partial(fetch, number))
            for entry in page.content:
                yield entry
            seen = number * page.page_size >= page.total
            number += 1

    async def _request_data(self, send: SendRequest) -> Any:
        """Send a request; return `data` of the answer."""
        return (await self._send_with_retries(send)).parsed.data  # type: ignore[union-attr]

    async def _send_with_retries(self, send: SendRequest) -> Response[Any]:
        for tries_left in range(self._retries, -1, -1):
            response = await send()
            if response.status_code not in RETRIED_STATUSES or not tries_left:
                break
            pause = float(response.headers.get("Retry-After", "1"))
            await asyncio.sleep(min(pause, MAX_RETRY_PAUSE_SECONDS))
        return _require_success(response)


class AsyncHistory(AsyncIterator[Record]):
    """The history of a device, whose pages are loaded while you iterate."""

    def __init__(self, source: AsyncGenerator[Record, None]) -> None:
        self._records = source

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        return await anext(self._records)

    async def to_list(self) -> list[Record]:
        """Return all records."""
        return [record async for record in self]

    async def to_pandas(self) -> "pd.DataFrame":
        """Return a column for each property, and the times (UTC) as index. Needs pandas."""
        return records.to_pandas(await self.to_list())

    async def to_arrow(self) -> "pa.Table":
        """Return a column for each property, and `ts`. Needs pyarrow."""
        return records.to_arrow(await self.to_list())


class AsyncCommand:
    """A command to a device."""

    def __init__(self, thingway: AsyncThingway, task_id: int) -> None:
        self._thingway = thingway
        self.task_id = task_id

    async def wait(self, timeout: float = 60.0) -> Task:
        """Wait until the device has confirmed the command; return its task.

        Raises `CommandFailed` if the device rejects the command or the command expires. Raises
        `CommandPending` after `timeout` seconds: an offline device receives it when it connects.
        """
        end, pause = time.monotonic() + timeout, 0.05
        while True:
            task = await self._thingway.task(self.task_id)
            if task.status.value == "SUCCESS":
                return task
            if task.status.value in ("FAILED", "TIMEOUT"):
                raise CommandFailed(task)
            if time.monotonic() + pause > end:
                raise CommandPending(task)
            await asyncio.sleep(pause)
            pause = min(2 * pause, 2.0)


class _TokenAuth(httpx.Auth):
    """Adds the token to requests, and replaces a missing, expired or rejected token."""

    def __init__(self, url: str, client_id: str, client_secret: str) -> None:
        self._url = f"{url}/oauth/token"
        self._form = {
            "grant_type": "client_credentials",
            "client_id": client_id,
            "client_secret": client_secret,
        }
        self._token = ""
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Send the request; after a 401 send it once more with a new token."""
        for _ in range(2):
            async with self._lock:
                if time.monotonic() >= self._until:
                    answer = yield httpx.Request("POST", self._url, data=self._form)
                    await answer.aread()
                    if answer.status_code != HTTPStatus.OK:
                        raise _build_refused(answer.status_code, answer.json())
                    found = answer.json()["data"]
                    self._token = found["access_token"]
                    self._until = (
                        time.monotonic() + found["expires_in"] - RENEW_BEFORE_EXPIRY_SECONDS
                    )
                token = self._token
            request.headers["Authorization"] = f"Bearer {token}"
            response = yield request
            if response.status_code != HTTPStatus.UNAUTHORIZED:
                return
            if token == self._token:
                self._until = 0.0


def _to_api_fields(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the names of the API, without those that are None."""
    return {_to_camel_case(name): value for name, value in given.items() if value is not None}


def _to_camel_case(name: str) -> str:
    if name == "dev_eui":
        return "devEUI"
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _require_success(response: Response[Any]) -> Response[Any]:
    """Return the response; raise `Refused` unless its status is 200."""
    found = response.parsed
    if response.status_code == HTTPStatus.OK and found is not None:
        return response
    if isinstance(found, Failure | GatewayError):
        raise _build_refused(response.status_code, found.to_dict())
    raise _build_refused(response.status_code, {})


def _build_refused(status: int, body: dict[str, Any]) -> Refused:
    code, message = body.get("errCode", "unknown"), body.get("errMsg", "no reason was given")
    return Refused(int(status), code, message, body.get("requestId", ""))


def _parse_task_id(response: Response[Any]) -> int:
    return int(response.headers["Location"].rpartition("/")[2])
