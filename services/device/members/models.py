"""Models: the members that devices have in common, by product and version, or by shape."""

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from libs.common.store.mongo import Database
from libs.common.things import GENERIC
from libs.common.tsl import TslDocument
from services.device.members.member import MemberSet, marks_of, members_of
from services.device.members.registry import MemberRegistry, owner_of
from services.device.members.shape_store import ShapeStore
from services.device.members.shapes import members_of_shape
from services.device.things.model import ModelKey

KEPT = 100_000
"""Most members that are kept, of all models together; one takes half a KiB."""

_DOCUMENT: msgspec.json.Decoder[TslDocument] = msgspec.json.Decoder(TslDocument)
_NONE = MemberSet(())


class Models:
    """Gives members of models; those of a version are read once, for as long as it stays."""

    def __init__(self, database: Database) -> None:
        self._tsls = database["tsls"]
        self._shapes = ShapeStore(database)
        self._registry = MemberRegistry(database)
        self._known: OrderedDict[tuple[str, str, str], MemberSet] = OrderedDict()
        self._size = 0

    async def of(self, tenant: str, keys: Iterable[ModelKey]) -> dict[ModelKey, MemberSet]:
        """The members of each model; none for what is gone."""
        wanted = set(keys)
        found = dict.fromkeys(wanted, _NONE)
        shapes = {shape for model, _, shape in wanted if model == GENERIC and shape}
        for shape, members in (await self._of_shapes(shapes)).items():
            found[GENERIC, "", shape] = members
        versions = [(model, version) for model, version, _ in wanted if model != GENERIC]
        if versions:
            found |= await self._of_versions(tenant, versions)
        return found

    async def _of_versions(
        self, tenant: str, versions: list[tuple[str, str]]
    ) -> dict[ModelKey, MemberSet]:
        """Look which content each version has now, and read what is not known."""
        ids = [{"tenant": tenant, "model": one, "version": two} for one, two in versions]
        heads = await self._tsls.find({"_id": {"$in": ids}}, {"hash": 1}).to_list(None)
        found: dict[ModelKey, MemberSet] = {}
        for head in heads:
            model, version = head["_id"]["model"], head["_id"]["version"]
            key = (tenant, model, head["hash"])
            members = self._known.get(key) or await self._read(key, head["_id"])
            self._keep(key, members)
            found[model, version, ""] = members
        return found

    async def _read(self, key: tuple[str, str, str], identity: dict[str, str]) -> MemberSet:
        stored = await self._tsls.find_one({"_id": identity, "hash": key[2]})
        if stored is None:  # replaced or deleted this moment: no device can have it
            return _NONE
        document = _DOCUMENT.decode(stored["document"])
        numbers = await self._registry.numbers(owner_of(*key[:2]), marks_of(document))
        return members_of(document, numbers)

    async def _of_shapes(self, shapes: set[str]) -> dict[str, MemberSet]:
        found: dict[str, MemberSet] = {}
        missing: list[str] = []
        for shape in shapes:
            known = self._known.get((GENERIC, "", shape))
            if known is None:
                missing.append(shape)
            else:
                found[shape] = known
        if missing:
            for name, paths in (await self._shapes.read(missing)).items():
                found[name] = members = members_of_shape(paths)
                self._keep((GENERIC, "", name), members)
        return found

    def _keep(self, key: tuple[str, str, str], members: MemberSet) -> None:
        if key not in self._known:
            self._size += len(members.members)
        self._known[key] = members
        self._known.move_to_end(key)
        while self._size > KEPT and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._size -= len(oldest.members)
