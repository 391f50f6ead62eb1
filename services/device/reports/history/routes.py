"""`GET /device/openapi/v1/devices/{deviceId}/properties/history`."""

from typing import Annotated

from litestar import get
from litestar.di import NamedDependency
from litestar.params import QueryParameter

from libs.common.envelope import Success
from libs.common.http import REFUSALS, HttpRequest, ok, principal_of
from services.device.reports.history.service import LATEST_TIME, HistoryPage, HistoryService
from services.device.things.access import DeviceId


@get(
    "/device/openapi/v1/devices/{device_id:int}/properties/history",
    responses=REFUSALS,
    summary="Query property history",
    tags=["Devices"],
)
async def property_history(
    request: HttpRequest,
    history: NamedDependency[HistoryService],
    device_id: DeviceId,
    start_time: Annotated[
        int | None, QueryParameter(name="startTime", ge=0, le=LATEST_TIME)
    ] = None,
    end_time: Annotated[int | None, QueryParameter(name="endTime", ge=0, le=LATEST_TIME)] = None,
    page_size: Annotated[int | None, QueryParameter(name="pageSize", le=2**31)] = None,
    page_key: Annotated[str | None, QueryParameter(name="pageKey", max_length=64)] = None,
    order: Annotated[str | None, QueryParameter(max_length=8)] = None,
) -> Success[HistoryPage]:
    """Reported properties, newest first; none of a device whose data storage is off."""
    page = await history.page(
        principal_of(request),
        device_id,
        start=start_time,
        end=end_time,
        size=page_size,
        key=page_key,
        order=order,
    )
    return ok(request, page)
