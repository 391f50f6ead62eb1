"""`GET /device/openapi/v1/devices/{deviceId}/frames`."""

from typing import Annotated

from litestar.di import NamedDependency
from litestar.params import QueryParameter

from libs.common.http import Requester
from libs.common.http.open_api import get
from services.device.reports.frames.schemas import MOST, FramePage
from services.device.reports.frames.service import FrameService
from services.device.reports.history.service import LATEST_TIME
from services.device.things.access import DeviceId


@get("/device/openapi/v1/devices/{device_id:str}/frames", tags=["Devices"])
async def list_device_frames(
    principal: Requester,
    frames: NamedDependency[FrameService],
    device_id: DeviceId,
    start_time: Annotated[
        int | None, QueryParameter(name="startTime", ge=0, le=LATEST_TIME)
    ] = None,
    end_time: Annotated[int | None, QueryParameter(name="endTime", ge=0, le=LATEST_TIME)] = None,
    page_size: Annotated[int, QueryParameter(name="pageSize", ge=1, le=MOST)] = 20,
    page_key: Annotated[str | None, QueryParameter(name="pageKey", max_length=64)] = None,
) -> FramePage:
    """Uplinks that a network server handed over, newest first, with what its codec made of each."""
    return await frames.page(principal, device_id, start_time, end_time, page_size, page_key)
