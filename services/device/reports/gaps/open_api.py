"""`GET /device/openapi/v1/devices/{deviceId}/gaps`."""

from typing import Annotated

from litestar.di import NamedDependency
from litestar.params import QueryParameter

from libs.common.http import Requester
from libs.common.http.open_api import get
from services.device.reports.gaps.schemas import MOST, GapPage
from services.device.reports.gaps.service import GapService
from services.device.telemetry.history import EndTime, PageKey, StartTime
from services.device.things.schemas import DeviceId


@get("/device/openapi/v1/devices/{device_id:str}/gaps", tags=["Devices"])
async def list_device_gaps(
    principal: Requester,
    gaps: NamedDependency[GapService],
    device_id: DeviceId,
    start_time: StartTime = None,
    end_time: EndTime = None,
    page_size: Annotated[int, QueryParameter(name="pageSize", ge=1, le=MOST)] = 20,
    page_key: PageKey = None,
) -> GapPage:
    """Frame counters that never arrived, newest first, and what became of them."""
    return await gaps.page(principal, device_id, start_time, end_time, page_size, page_key)
