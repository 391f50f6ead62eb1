"""Models: the members that devices have in common, by product and version, or by shape."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from functools import lru_cache

from libs.common.store.mongo import Database
from libs.common.things import GENERIC
from libs.common.tsl import Tsl
from services.device.members.member import MemberSet, marks_of, members_of
from services.device.members.registry import MemberRegistry, owner_of
from services.device.members.shape_store import ShapeStore
from services.device.members.shapes import members_of_shape
from services.device.things.model import ModelKey
from services.device.things.names import names_of
from services.device.things.tsls import TslKey, Tsls

KEPT = 100_000
"""Most members that are kept, of all models together; one takes half a KiB."""

_NONE = MemberSet(())


class Models:
    """Gives members of models; those of a version are read once, for as long as it stays."""

    def __init__(self, database: Database, tsls: Tsls) -> None:
        self._tsls = tsls
        self._shapes = ShapeStore(database)
        self._registry = MemberRegistry(database)
        self._known: OrderedDict[tuple[str, str, str | Tsl], MemberSet] = OrderedDict()
        """By tenant, product and TSL; those of a shape without a tenant, by its name."""
        self._size = 0

    async def of(
        self, tenant: str, keys: Iterable[ModelKey], known: Mapping[TslKey, Tsl] | None = None
    ) -> dict[ModelKey, MemberSet]:
        """The members of each model; none for what is gone.

        `known` are the TSLs of all versions among them, when they have just been looked up.
        """
        wanted = set(keys)
        shapes = await self._of_shapes({one.shape for one in wanted if one.shape})
        versions = {(tenant, one.model, one.version) for one in wanted if one.model != GENERIC}
        tsls = known or await self._tsls.find_all(versions)
        declared = {version: await self._of_tsl(version, tsls[version]) for version in versions}
        return {
            one: _renamed(
                shapes.get(one.shape) or declared.get((tenant, one.model, one.version), _NONE),
                one.names,
            )
            for one in wanted
        }

    async def _of_tsl(self, version: TslKey, tsl: Tsl) -> MemberSet:
        tenant, model, _ = version
        members = self._known.get((tenant, model, tsl))
        if members is None:
            marks = marks_of(tsl.document)
            owner = owner_of(tenant, model)
            members = members_of(
                tsl.document, await self._registry.numbers(owner, marks) if marks else {}
            )
        self._keep((tenant, model, tsl), members)
        return members

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

    def _keep(self, key: tuple[str, str, str | Tsl], members: MemberSet) -> None:
        if key not in self._known:
            self._size += len(members.members)
        self._known[key] = members
        self._known.move_to_end(key)
        while self._size > KEPT and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._size -= len(oldest.members)


@lru_cache(maxsize=1000)
def _renamed(members: MemberSet, names: str) -> MemberSet:
    return members.renamed(names_of(names)) if names else members
