"""Operations on canvases for users, who may see a canvas if they see its owner."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec.structs import asdict

from libs.common.contracts.entities import ResolvedEntity
from libs.common.contracts.names import DescribedDevice, DeviceCanvas, GetDeviceCanvas
from libs.common.device_client import DeviceClient
from libs.common.errors import Conflict, Forbidden, InvalidInput, NotFound, TooLarge
from libs.common.http.console import distinct_ids, parse_name
from libs.common.identity import Principal
from libs.common.identity.functions import Function
from libs.common.identity.grants import GrantReader, Grants
from libs.common.store.mongo import DuplicateKey
from services.management.dashboards.model import (
    AllocateId,
    Canvas,
    CanvasContent,
    DashboardChanges,
    OwnerType,
    assign_widget_ids,
    check_name_length,
)
from services.management.dashboards.schemas import (
    MAX_ADDITIONAL_CANVASES,
    MAX_WIDGET_CHARACTERS,
    CanvasEntity,
    CanvasResponse,
    CanvasSummary,
    CreateCanvas,
    DeleteCanvases,
    SaveCanvas,
)
from services.management.dashboards.service import DashboardService, dashboard_not_found
from services.management.dashboards.store import CanvasStore, DashboardStore

VIEW_FUNCTIONS_BY_OWNER_TYPE = {
    "DASHBOARD": (Function.DASHBOARD_VIEW,),
    "DEVICE": (Function.DEVICE_VIEW, Function.DASHBOARD_VIEW),
}
"""Functions that permit viewing a canvas of a dashboard or device; any one suffices."""
EDIT_FUNCTIONS_BY_OWNER_TYPE = {
    "DASHBOARD": (Function.DASHBOARD_EDIT,),
    "DEVICE": (Function.DEVICE_EDIT,),
}
"""Functions that permit saving a canvas of a dashboard or device; any one suffices."""


@dataclass(frozen=True)
class CanvasService:
    """The operations on canvases."""

    store: CanvasStore
    dashboards: DashboardStore
    dashboard_service: DashboardService
    grants: GrantReader
    devices: DeviceClient
    next_id: AllocateId

    async def get(self, user: Principal, canvas_id: int) -> CanvasResponse:
        """Return a canvas with the entities that the user sees."""
        canvas, grants = await self._find_visible(user, canvas_id, VIEW_FUNCTIONS_BY_OWNER_TYPE)
        entities = await self.devices.resolve_all(user.tenant, canvas.entity_ids)
        return CanvasResponse.from_fields(
            canvas,
            widgets=[widget.response for widget in canvas.widgets],
            entity_ids=list(map(str, canvas.entity_ids)),
            entities=[
                _entity_response(entity) for entity in entities if grants.allows_entity(entity)
            ],
            device_ids=list(map(str, canvas.device_ids)),
        )

    async def save(self, user: Principal, canvas_id: int, request: SaveCanvas) -> None:
        """Replace the name and the content; unknown entities and devices are ignored.

        The name of a dashboard's main canvas is the name of the dashboard.
        """
        name = parse_name(request.name)
        canvas, _ = await self._find_visible(user, canvas_id, EDIT_FUNCTIONS_BY_OWNER_TYPE)
        name = check_name_length(name, canvas.name)
        content = await self._build_content(canvas, request)
        if canvas.is_main:
            changes = DashboardChanges(name=name, **asdict(content))
            saved = await self.dashboards.update(user.tenant, canvas_id, changes)
        else:
            saved = await self.store.update(user.tenant, canvas_id, name, content)
        if not saved:
            raise _canvas_not_found(canvas_id)

    async def get_or_create_device_canvas(self, request: GetDeviceCanvas) -> DeviceCanvas:
        """Return the canvas of a device, created if missing; `device` has checked the grants."""
        tenant, device_id = request.tenant, request.device_id
        canvas = await self.store.find_device_canvas(tenant, device_id)
        if canvas is None:
            canvas = await self._create_for_device(tenant, device_id)
        return DeviceCanvas(str(canvas.id), canvas.name)

    async def list_dashboard_canvases(
        self, user: Principal, dashboard_id: int
    ) -> list[CanvasSummary]:
        """Return the canvases of a dashboard, the main one first."""
        dashboard = await self.dashboard_service.find_visible(user, dashboard_id)
        others = await self.store.list_dashboard_canvases(user.tenant, dashboard_id)
        return list(map(_canvas_summary, [dashboard.main_canvas, *others]))

    async def create(
        self, user: Principal, dashboard_id: int, request: CreateCanvas
    ) -> CanvasSummary:
        """Add an empty canvas to a dashboard."""
        name = check_name_length(parse_name(request.name))
        await self.dashboard_service.find_visible(user, dashboard_id)
        if (
            len(await self.store.list_dashboard_canvases(user.tenant, dashboard_id))
            >= MAX_ADDITIONAL_CANVASES
        ):
            raise Conflict(
                f"a dashboard must have at most {MAX_ADDITIONAL_CANVASES} additional canvases",
                field="name",
            )
        canvas = await self._build_canvas(user.tenant, name, "DASHBOARD", dashboard_id)
        await self.store.insert(canvas)
        if await self.dashboards.get(user.tenant, dashboard_id) is None:
            await self.store.remove(user.tenant, dashboard_id, [canvas.id])
            raise dashboard_not_found(dashboard_id)
        return _canvas_summary(canvas)

    async def delete(self, user: Principal, dashboard_id: int, request: DeleteCanvases) -> None:
        """Delete additional canvases of a dashboard, ignoring unknown ids.

        Raises `InvalidInput` for the main canvas.
        """
        await self.dashboard_service.find_visible(user, dashboard_id)
        ids = distinct_ids(request.canvas_ids)
        if dashboard_id in ids:
            raise InvalidInput(
                "must not contain the main canvas, which cannot be deleted", field="canvas_ids"
            )
        await self.store.remove(user.tenant, dashboard_id, ids)

    async def _create_for_device(self, tenant: str, device_id: int) -> Canvas:
        device = await self._get_device(tenant, device_id)
        canvas = await self._build_canvas(tenant, device.name, "DEVICE", device_id)
        try:
            await self.store.insert(canvas)
        except DuplicateKey:  # another request created it
            found = await self.store.find_device_canvas(tenant, device_id)
            if found is None:
                raise
            return found
        try:
            await self._get_device(tenant, device_id)
        except NotFound:  # its deletion may have been handled before the canvas was created
            await self.store.remove_device_canvases(tenant, [device_id])
            raise
        return canvas

    async def _build_canvas(
        self, tenant: str, name: str, kind: OwnerType, attach_id: int
    ) -> Canvas:
        return Canvas(
            id=await self.next_id(),
            tenant=tenant,
            name=name,
            attach_type=kind,
            attach_id=attach_id,
            created_at=datetime.now(UTC),
        )

    async def _get_device(self, tenant: str, device_id: int) -> DescribedDevice:
        for device in await self.devices.describe_devices(tenant, [device_id]):
            return device
        raise NotFound(f"device {device_id} not found", field="device_id")

    async def _build_content(self, canvas: Canvas, request: SaveCanvas) -> CanvasContent:
        widgets = await assign_widget_ids(canvas, request.widgets, self.next_id)
        for at, widget in enumerate(widgets):
            if len(widget.data) > MAX_WIDGET_CHARACTERS:
                raise TooLarge(
                    f"has more than {MAX_WIDGET_CHARACTERS} characters as JSON",
                    field=f"widgets[{at}].data",
                )
        entities = await self.devices.resolve_all(
            canvas.tenant, distinct_ids(request.entity_ids or ())
        )
        devices = distinct_ids(request.device_ids or ())
        described = await self.devices.describe_devices(canvas.tenant, devices) if devices else []
        return CanvasContent(
            widgets=widgets,
            entity_ids=tuple(entity.id for entity in entities),
            device_ids=tuple(device.id for device in described),
        )

    async def _find_visible(
        self,
        user: Principal,
        canvas_id: int,
        functions_by_owner_type: Mapping[str, tuple[Function, ...]],
    ) -> tuple[Canvas, Grants]:
        """Return the canvas and the grants of the user.

        Raises `NotFound`, and `Forbidden` if the user lacks the function or does not see the owner.
        """
        canvas = await self._get_canvas(user.tenant, canvas_id)
        grants = await self.grants.read(user)
        if not user.may(*functions_by_owner_type[canvas.attach_type]):
            raise Forbidden("the user does not have permission")
        if not await self._is_granted(grants, canvas):
            raise Forbidden("the user does not have data permission")
        return canvas, grants

    async def _get_canvas(self, tenant: str, canvas_id: int) -> Canvas:
        dashboard = await self.dashboards.get(tenant, canvas_id)
        if dashboard is not None:
            return dashboard.main_canvas
        canvas = await self.store.get(tenant, canvas_id)
        if canvas is None:
            raise _canvas_not_found(canvas_id)
        return canvas

    async def _is_granted(self, grants: Grants, canvas: Canvas) -> bool:
        if canvas.attach_type == "DASHBOARD":
            return grants.allows_dashboard(canvas.attach_id)
        device = await self._get_device(canvas.tenant, canvas.attach_id)
        return grants.allows_device(device.id, device.integration, device.group)


def _canvas_summary(canvas: Canvas) -> CanvasSummary:
    return CanvasSummary.from_fields(canvas, canvas_id=str(canvas.id))


def _entity_response(entity: ResolvedEntity) -> CanvasEntity:
    return CanvasEntity(
        entity_id=str(entity.id),
        entity_key=entity.key,
        entity_name=entity.name,
        entity_type=entity.type,
        entity_value_type=entity.value_type,
        entity_value_attribute=entity.value_attribute,
        entity_access_mod=entity.access_mod,
        device_name=entity.device_name,
    )


def _canvas_not_found(canvas_id: int) -> NotFound:
    return NotFound(f"the canvas {canvas_id} does not exist", field="canvas_id")
