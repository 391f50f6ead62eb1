"""What may be done with redecodings of products."""

import msgspec

from libs.common.clock import now_ms
from libs.common.errors import Conflict, InvalidInput, NotFound
from libs.common.identity import Principal
from services.device.reports.redecode.schemas import Redecode, StartRedecode
from services.device.reports.redecode.store import Job, RedecodeStore
from services.device.things.device_queries import DeviceLists
from services.device.things.errors import codec_not_found, product_not_found
from services.device.things.product_store import ProductStore, identity_of


class RedecodeService:
    """One at a time of a product; a background job does the work."""

    def __init__(self, store: RedecodeStore, products: ProductStore, lists: DeviceLists) -> None:
        self._store = store
        self._products = products
        self._lists = lists

    async def begin(self, principal: Principal, model: str, body: StartRedecode) -> Redecode:
        """Begin to read frames again.

        Raises `NotFound` for a product without a codec, `Conflict` while one is under way.
        """
        tenant = principal.tenant
        product = await self._products.find(tenant, model)
        if product is None:
            raise product_not_found(model)
        if product.codec_version is msgspec.UNSET:
            raise codec_not_found(model)
        if body.start is not None and body.end is not None and body.start > body.end:
            raise InvalidInput("must not be before start", field="end")
        devices = sorted(set(body.devices)) or None
        now = now_ms()
        job = Job(
            identity=dict(identity_of(tenant, model)),
            state="RUNNING",
            dry=body.dry,
            tell=body.tell,
            version=product.codec_version,
            total=await self._total(tenant, model) if devices is None else len(devices),
            started=now,
            devices=devices,
            start=body.start or 0,
            end=2**53 if body.end is None else body.end,
        )
        if not await self._store.begin(job):
            raise Conflict(f"frames of {model} are being read again", field="model")
        return await self.get(principal, model)

    async def get(self, principal: Principal, model: str) -> Redecode:
        """How far the last one is; raise `NotFound` when there is none, or no such product."""
        found = await self.last(principal, model)
        if found is None:
            raise NotFound(f"frames of {model} were never read again", field="model")
        return found

    async def last(self, principal: Principal, model: str) -> Redecode | None:
        """The same, None when there is none; raise `NotFound` when there is no such product."""
        if await self._products.find(principal.tenant, model) is None:
            raise product_not_found(model)
        return await self._store.find(principal.tenant, model)

    async def stop(self, principal: Principal, model: str) -> Redecode:
        """End it; devices that are through stay as they are."""
        await self._store.stop(principal.tenant, model)
        return await self.get(principal, model)

    async def _total(self, tenant: str, model: str) -> int:
        counted = await self._lists.counted_models(tenant)
        return sum(one.devices for one in counted if one.model.model == model)
