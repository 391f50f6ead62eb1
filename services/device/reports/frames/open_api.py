"""`GET /device/openapi/v1/devices/{deviceId}/frames`."""

from typing import Annotated

from litestar.di import NamedDependency
from litestar.params import QueryParameter

from libs.common.http import Requester
from libs.common.http.open_api import get
from services.device.reports.frames.schemas import MOST, FramePage
from services.device.reports.frames.service import FrameService
from services.device.telemetry.history import EndTime, PageKey, StartTime
from services.device.things.schemas import DeviceId


@get("/device/openapi/v1/devices/{device_id:str}/frames", tags=["Devices"])
async def list_device_frames(
    principal: Requester,
    frames: NamedDependency[FrameService],
    device_id: DeviceId,
    start_time: StartTime = None,
    end_time: EndTime = None,
    page_size: Annotated[int, QueryParameter(name="pageSize", ge=1, le=MOST)] = 20,
    page_key: PageKey = None,
) -> FramePage:
    """Uplinks that a network server handed over, newest first, with what its codec made of each."""
    return await frames.page(principal, device_id, start_time, end_time, page_size, page_key)
