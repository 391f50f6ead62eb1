"""`GET /device/openapi/v1/devices/{deviceId}/properties/history`."""

from typing import Annotated

from litestar.di import NamedDependency
from litestar.params import QueryParameter

from libs.common.http import Requester
from libs.common.http.open_api import get
from services.device.reports.history.service import LATEST_TIME, HistoryPage, HistoryService
from services.device.things.schemas import DeviceId

StartTime = Annotated[int | None, QueryParameter(name="startTime", ge=0, le=LATEST_TIME)]
EndTime = Annotated[int | None, QueryParameter(name="endTime", ge=0, le=LATEST_TIME)]
PageKey = Annotated[str | None, QueryParameter(name="pageKey", max_length=64)]


@get("/device/openapi/v1/devices/{device_id:str}/properties/history", tags=["Devices"])
async def get_property_history(
    principal: Requester,
    history: NamedDependency[HistoryService],
    device_id: DeviceId,
    start_time: StartTime = None,
    end_time: EndTime = None,
    page_size: Annotated[int | None, QueryParameter(name="pageSize", ge=1)] = None,
    page_key: PageKey = None,
    order: Annotated[
        str | None, QueryParameter(max_length=8, schema_extra={"enum": ["asc", "desc"]})
    ] = None,
) -> HistoryPage:
    """Reported properties, newest first; none of a device whose data storage is off."""
    return await history.page(
        principal,
        device_id,
        start=start_time,
        end=end_time,
        size=page_size,
        key=page_key,
        order=order,
    )
