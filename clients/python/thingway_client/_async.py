"""The client; `_sync.py` is made of this file when the package is built."""

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
    GatewayRefusal,
    GetPropertyHistoryOrderType0,
    Product,
    ProductWithTsl,
    PutProduct,
    RpsRecord,
    SearchDevices,
    SearchProfiles,
    SetProfile,
    Task,
    TenantUse,
    TslDocument,
    UpdateDevice,
    UpdateProperties,
)
from thingway_client._api.types import Response
from thingway_client.errors import CommandFailed, CommandPending, Refused
from thingway_client.events import Event, Login, listen
from thingway_client.records import Record

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Time = datetime | int | None
"""A moment, or ms since 1970."""
Ask = Callable[[], Awaitable[Response[Any]]]

PAGE = 1000
LATER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
"""What the platform refuses for a while."""
LONGEST_PAUSE = 30.0
"""Seconds between two tries of what was refused for a while, at most."""
EARLY = 60.0
"""Seconds before its end at which a token is not used any more."""


class AsyncThingway:
    """The device open API as one application sees it.

    Tokens are fetched and renewed by themselves. What the platform refuses for a while (429, 503)
    is tried again up to `retries` times, as late as it says. Raises `Refused` for what it
    refuses for good, and `httpx.HTTPError` when it cannot be reached.
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
        """`nats_url` is by default port 4222 of the same host, with TLS when `url` is `https://`;
        `timeout` in seconds.
        """
        self._login = (client_id, client_secret)
        address = urlsplit(url)
        scheme = "tls" if address.scheme == "https" else "nats"
        self._nats_url = nats_url or f"{scheme}://{address.hostname}:4222"
        self._retries = retries
        self._client = AuthenticatedClient(
            base_url=url.rstrip("/"),
            token="",  # `_Tokens` puts it on each request
            timeout=httpx.Timeout(timeout),
            httpx_args={"auth": _Tokens(url.rstrip("/"), client_id, client_secret)},
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
        """Add a device; `more` is for example `model`, `description`, `tag`, `data_storage`."""
        body = AddDevice.from_dict({"snDevEUI": sn, "name": name, **_wire(more)})
        return await self._ask(lambda: add_device.asyncio_detailed(client=self._client, body=body))

    async def issue_key(self, device_id: int) -> DeviceCredentials:
        """Make a key for a device, which is shown only here; the one before ends."""
        return await self._ask(
            lambda: issue_credentials.asyncio_detailed(device_id, client=self._client)
        )

    async def device(self, device_id: int) -> DeviceRecord:
        """The record of a device."""
        return await self._ask(lambda: get_device.asyncio_detailed(device_id, client=self._client))

    async def devices(
        self, *, page_size: int = PAGE, **filters: Any
    ) -> AsyncGenerator[DeviceRecord, None]:
        """Devices that match, for example `keyword="roof"`, `connect_status=["ONLINE"]`."""
        wanted = {"pageSize": page_size, **_wire(filters)}
        async for device in self._pages(
            lambda number: search_devices.asyncio_detailed(
                client=self._client, body=SearchDevices.from_dict({**wanted, "pageNumber": number})
            )
        ):
            yield device

    async def update_device(self, device_id: int, name: str, **more: Any) -> None:
        """Change the record of a device; what is not given stays."""
        body = UpdateDevice.from_dict({"deviceId": device_id, "name": name, **_wire(more)})
        await self._ask(lambda: update_device.asyncio_detailed(client=self._client, body=body))

    async def remove_device(self, device_id: int) -> None:
        """Take a device from the application; its key ends, its history stays."""
        await self._ask(lambda: remove_device.asyncio_detailed(device_id, client=self._client))

    async def delete_device(self, device_id: int) -> None:
        """Delete a device with all that it reported."""
        await self._ask(lambda: delete_device.asyncio_detailed(device_id, client=self._client))

    async def thing_specification(self, device_id: int) -> TslDocument:
        """The TSL of a device."""
        return await self._ask(
            lambda: get_thing_specification.asyncio_detailed(device_id, client=self._client)
        )

    async def config(self, device_id: int) -> Config:
        """What a device is configured to, in the shape that `create_tasks` takes."""
        return await self._ask(
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
        page_size: int = PAGE,
    ) -> "AsyncHistory":
        """Values that a device had, page by page; without bounds those of the last 24 hours."""
        span = records.milliseconds(start), records.milliseconds(end)
        return AsyncHistory(self._history(device_id, span, order, page_size))

    async def _history(
        self, device_id: int, span: tuple[int | None, int | None], order: str, page_size: int
    ) -> AsyncGenerator[Record, None]:
        key = None
        while True:
            page = await self._ask(
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
            for one in page.list_:
                yield Record(one.ts, one.properties.to_dict())
            if not (key := page.next_page_key or None):
                return

    # Commands.

    async def set_properties(self, device_id: int, properties: dict[str, Any]) -> "AsyncCommand":
        """Ask a device to take values on."""
        body = UpdateProperties.from_dict({"properties": properties})
        response = await self._response(
            lambda: update_device_properties.asyncio_detailed(
                device_id, client=self._client, body=body
            )
        )
        return AsyncCommand(self, _task_of(response))

    async def call_service(
        self, device_id: int, service_id: str, inputs: dict[str, Any] | None = None
    ) -> "AsyncCommand":
        """Call a service of a device."""
        body = CallService.from_dict({"serviceId": service_id, "inputs": inputs or {}})
        response = await self._response(
            lambda: call_device_service.asyncio_detailed(device_id, client=self._client, body=body)
        )
        return AsyncCommand(self, _task_of(response))

    async def create_tasks(
        self, kind: Literal["TSL", "PROFILE"], device_ids: Sequence[int], config: dict[str, Any]
    ) -> dict[int, "AsyncCommand"]:
        """Configure many devices: all of them, or none when one refuses. By device."""
        given = {"type": kind, "deviceIds": list(device_ids), "config": config}
        body = CreateTasks.from_dict(given)
        made = await self._ask(
            lambda: create_tasks.asyncio_detailed(client=self._client, body=body)
        )
        return {
            one.device_id: AsyncCommand(self, one.task_id) for one in made.device_task_relations
        }

    async def task(self, task_id: int) -> Task:
        """The state of a command."""
        return await self._ask(lambda: get_task.asyncio_detailed(task_id, client=self._client))

    # Products.

    async def products(self, *, page_size: int = PAGE) -> AsyncGenerator[Product, None]:
        """The products of the tenant."""
        async for product in self._pages(
            lambda number: list_products.asyncio_detailed(
                client=self._client, page_size=page_size, page_number=number
            )
        ):
            yield product

    async def product(self, model: str) -> ProductWithTsl:
        """A product with its TSL."""
        return await self._ask(lambda: get_product.asyncio_detailed(model, client=self._client))

    async def put_product(self, model: str, name: str, tsl: dict[str, Any], **more: Any) -> None:
        """Make or change a product; `more` is for example `sn_prefixes`, `history_days`."""
        body = PutProduct.from_dict({"name": name, "tsl": tsl, **_wire(more)})
        await self._ask(lambda: put_product.asyncio_detailed(model, client=self._client, body=body))

    async def delete_product(self, model: str) -> None:
        """Delete a product that no device has."""
        await self._ask(lambda: delete_product.asyncio_detailed(model, client=self._client))

    # RPS records.

    async def set_profile(self, sn: str, profile_url: str) -> None:
        """Say where a device that is not on the platform yet finds its profile."""
        body = SetProfile(sn=sn, profile_url=profile_url)
        await self._ask(lambda: set_rps_profile.asyncio_detailed(client=self._client, body=body))

    async def profiles(self, *, page_size: int = PAGE) -> AsyncGenerator[RpsRecord, None]:
        """All RPS records of the application."""
        async for record in self._pages(
            lambda number: search_rps_profiles.asyncio_detailed(
                client=self._client, body=SearchProfiles(page_size=page_size, page_number=number)
            )
        ):
            yield record

    async def delete_profile(self, sn: str) -> None:
        """Delete the RPS record of an SN."""
        await self._ask(lambda: delete_rps_profile.asyncio_detailed(sn, client=self._client))

    # The application itself.

    async def limits(self) -> TenantUse:
        """The limits of the application and its tenant, and what is used of them."""
        return await self._ask(lambda: get_limits.asyncio_detailed(client=self._client))

    async def events(
        self, pattern: str = ">", *, durable: bool = False
    ) -> AsyncGenerator[Event, None]:
        """What happens, over NATS: `device.*.reported`, `task.*.finished`, `>` for everything.

        The application needs `--events`. With `durable` nothing of the last seven days is missed:
        the application has one position for all of it, which moves on when the next event is asked
        for; what failed before comes again. Without it is what happens from now on.
        """
        tenant = (await self.limits()).tenant
        login = Login(self._nats_url, *self._login, tenant)
        async for event in listen(login, pattern, durable=durable):
            yield event

    # How it is asked.

    async def _pages(
        self, fetch: Callable[[int], Awaitable[Response[Any]]]
    ) -> AsyncGenerator[Any, None]:
        number, seen = 1, False
        while not seen:
            page = await self._ask(partial(fetch, number))
            for one in page.content:
                yield one
            seen = number * page.page_size >= page.total
            number += 1

    async def _ask(self, ask: Ask) -> Any:
        """What stands in `data` of the answer."""
        return (await self._response(ask)).parsed.data  # type: ignore[union-attr]

    async def _response(self, ask: Ask) -> Response[Any]:
        for tries_left in range(self._retries, -1, -1):
            response = await ask()
            if response.status_code not in LATER or not tries_left:
                break
            pause = float(response.headers.get("Retry-After", "1"))
            await asyncio.sleep(min(pause, LONGEST_PAUSE))
        return _checked(response)


class AsyncHistory(AsyncIterator[Record]):
    """Values of a device, fetched while they are gone through."""

    def __init__(self, source: AsyncGenerator[Record, None]) -> None:
        self._records = source

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        return await anext(self._records)

    async def to_list(self) -> list[Record]:
        """All of them."""
        return [record async for record in self]

    async def to_pandas(self) -> "pd.DataFrame":
        """A column for each property, the times (UTC) as index; needs pandas."""
        return records.to_pandas(await self.to_list())

    async def to_arrow(self) -> "pa.Table":
        """A column for each property, and `ts`; needs pyarrow."""
        return records.to_arrow(await self.to_list())


class AsyncCommand:
    """Something that a device was asked to do."""

    def __init__(self, thingway: AsyncThingway, task_id: int) -> None:
        self._thingway = thingway
        self.task_id = task_id

    async def wait(self, timeout: float = 60.0) -> Task:
        """Return when the device has done it.

        Raises `CommandFailed` when it refuses or never answers, `CommandPending` after `timeout`
        seconds: a device that is away does it when it comes.
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


class _Tokens(httpx.Auth):
    """Puts the token on requests; fetches one when there is none, or it is not taken any more."""

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
        """Send the request; once more with another token after a 401."""
        for _ in range(2):
            async with self._lock:
                if time.monotonic() >= self._until:
                    answer = yield httpx.Request("POST", self._url, data=self._form)
                    await answer.aread()
                    if answer.status_code != HTTPStatus.OK:
                        raise _refusal(answer.status_code, answer.json())
                    found = answer.json()["data"]
                    self._token = found["access_token"]
                    self._until = time.monotonic() + found["expires_in"] - EARLY
                token = self._token
            request.headers["Authorization"] = f"Bearer {token}"
            response = yield request
            if response.status_code != HTTPStatus.UNAUTHORIZED:
                return
            if token == self._token:
                self._until = 0.0


def _wire(given: dict[str, Any]) -> dict[str, Any]:
    """Names as the API spells them; what is None is left out."""
    return {_camel(name): value for name, value in given.items() if value is not None}


def _camel(name: str) -> str:
    if name == "dev_eui":
        return "devEUI"
    first, *others = name.split("_")
    return first + "".join(one.capitalize() for one in others)


def _checked(response: Response[Any]) -> Response[Any]:
    """The answer; raise `Refused` when it is a refusal."""
    found = response.parsed
    if response.status_code == HTTPStatus.OK and found is not None:
        return response
    if isinstance(found, Failure | GatewayRefusal):
        raise _refusal(response.status_code, found.to_dict())
    raise _refusal(response.status_code, {})


def _refusal(status: int, body: dict[str, Any]) -> Refused:
    code, message = body.get("errCode", "unknown"), body.get("errMsg", "no reason was given")
    return Refused(int(status), code, message, body.get("requestId", ""))


def _task_of(response: Response[Any]) -> int:
    return int(response.headers["Location"].rpartition("/")[2])
