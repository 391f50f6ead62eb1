"""Canvases in MongoDB, but for the main ones of dashboards.

`canvases`: `{_id, tenant, name, attachType, attachId, createdAt}` and the fields of
`services.management.dashboards.content`. A device has one at most.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from libs.common.store.mongo import Document, Mongo, Session
from services.management.canvases.schemas import AttachType, Canvas
from services.management.dashboards.content import Content, content_of, stored
from services.management.resources.store import ResourceStore


class CanvasStore:
    """The collection `canvases`."""

    def __init__(self, mongo: Mongo, resources: ResourceStore) -> None:
        self._mongo = mongo
        self._canvases = mongo.database["canvases"]
        self._resources = resources

    async def get(self, tenant: str, canvas_id: int) -> Canvas | None:
        """One canvas of a tenant."""
        document = await self._canvases.find_one({"_id": canvas_id, "tenant": tenant})
        return None if document is None else _canvas(document)

    async def of_dashboard(self, tenant: str, dashboard_id: int) -> list[Canvas]:
        """The canvases of a dashboard, the oldest first, without their content."""
        query = _attached(tenant, "DASHBOARD", [dashboard_id])
        found = self._canvases.find(query, {"widgets": 0}, sort=[("_id", 1)])
        return [_canvas(document) async for document in found]

    async def of_device(self, tenant: str, device_id: int) -> Canvas | None:
        """The canvas of a device, without its content."""
        query = _attached(tenant, "DEVICE", [device_id])
        document = await self._canvases.find_one(query, {"widgets": 0})
        return None if document is None else _canvas(document)

    async def insert(self, canvas: Canvas) -> None:
        """Add a canvas; raise `DuplicateKey` for a second one of a device."""
        await self._canvases.insert_one(_document(canvas))

    async def arrange(self, tenant: str, canvas_id: int, name: str, content: Content) -> bool:
        """Set name and content; False when it is gone."""

        async def work(session: Session) -> bool:
            outcome = await self._canvases.update_one(
                {"_id": canvas_id, "tenant": tenant},
                {"$set": {"name": name, **stored(content)}},
                session=session,
            )
            if not outcome.matched_count:
                return False
            texts = [widget.data for widget in content.widgets]
            await self._resources.hold(tenant, canvas_id, texts, session)
            return True

        return await self._mongo.transaction(work)

    async def remove(self, tenant: str, dashboard_id: int, ids: Sequence[int]) -> None:
        """Delete canvases of a dashboard."""
        query = _attached(tenant, "DASHBOARD", [dashboard_id]) | {"_id": {"$in": list(ids)}}
        await self._mongo.transaction(lambda session: self._remove(tenant, query, session))

    async def forget_dashboards(self, tenant: str, ids: Sequence[int], session: Session) -> None:
        """Delete what canvases dashboards have, which are gone."""
        await self._remove(tenant, _attached(tenant, "DASHBOARD", ids), session)

    async def forget_devices(self, tenant: str, ids: Sequence[int]) -> None:
        """Delete the canvases of devices, which are gone."""
        query = _attached(tenant, "DEVICE", ids)
        await self._mongo.transaction(lambda session: self._remove(tenant, query, session))

    async def _remove(self, tenant: str, query: Document, session: Session) -> None:
        found = self._canvases.find(query, {"_id": 1}, session=session)
        ids = [document["_id"] async for document in found]
        if ids:
            gone: Document = {"tenant": tenant, "_id": {"$in": ids}}
            await self._canvases.delete_many(gone, session=session)
            await self._resources.release(tenant, ids, session)


def _attached(tenant: str, kind: AttachType, ids: Sequence[int]) -> Document:
    return {"tenant": tenant, "attachType": kind, "attachId": {"$in": list(ids)}}


def _document(canvas: Canvas) -> Document:
    return {
        "_id": canvas.id,
        "tenant": canvas.tenant,
        "name": canvas.name,
        "attachType": canvas.attach_type,
        "attachId": canvas.attach_id,
        "createdAt": datetime.now(UTC),
        **stored(canvas.content),
    }


def _canvas(document: Document) -> Canvas:
    return Canvas(
        id=document["_id"],
        tenant=document["tenant"],
        name=document["name"],
        attach_type=document["attachType"],
        attach_id=document["attachId"],
        content=content_of(document),
    )
