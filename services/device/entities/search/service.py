"""Searches all entities that a user sees."""

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.http.console import Page, ids_of
from libs.common.identity import Principal
from libs.common.identity.grants import Grants
from services.device.console.integrations import Integrations
from services.device.console.service import GrantsOf
from services.device.entities.ports import Entities, ModelMembers, SearchStore
from services.device.entities.schemas import SearchEntities, ShownEntity
from services.device.entities.search.counting import DeviceCounts, Pools
from services.device.entities.search.filters import MemberFilter
from services.device.entities.search.keyword import Keyword
from services.device.entities.search.listed import Listed
from services.device.entities.search.order import Order
from services.device.entities.search.page import FEW, Cut, Devices, cut_page
from services.device.entities.search.walk import Condition, of_models
from services.device.entities.shown import shown_entity
from services.device.entities.things import Entity
from services.device.things.seen import seen, seen_in_parts

MOST = 10_000
"""Most entities of one answer, whatever is asked for."""


@dataclass(frozen=True)
class _Asked:
    """One search in hand."""

    principal: Principal
    grants: Grants
    body: SearchEntities
    order: Order
    wants: MemberFilter
    keyword: Keyword | None

    @property
    def tenant(self) -> str:
        return self.principal.tenant


class EntitySearch:
    """Searches on behalf of users."""

    def __init__(
        self,
        store: SearchStore,
        models: ModelMembers,
        entities: Entities,
        grants: GrantsOf,
        integrations: Integrations,
    ) -> None:
        self._store = store
        self._models = models
        self._entities = entities
        self._grants = grants
        self._integrations = integrations

    async def search(
        self, principal: Principal, body: SearchEntities
    ) -> list[ShownEntity] | Page[ShownEntity]:
        """The entities that match, in order: a page when one is asked for, else a list.

        There are at most `MOST` in either; a page says in `page_size` how many it cuts by.
        """
        integrations = await self._integrations.known()
        grants = await self._grants.of(principal)
        keyword = Keyword(body.keyword, integrations) if body.keyword else None
        asked = _Asked(principal, grants, body, Order.of(body), MemberFilter(body), keyword)
        listed = Listed(
            self._store,
            self._entities,
            principal,
            grants,
            asked.wants,
            keyword,
            customized=body.customized,
        )
        if body.entity_ids is not None:
            rest = await listed.among(ids_of(body.entity_ids))
        else:
            rest = await listed.others()
        cut = await self._cut(asked, rest)
        size = min(body.size, MOST) if body.paged else MOST
        found = await cut_page(self._store, cut, (body.number - 1) * size, size)
        rows = [shown_entity(entity, integrations) for entity in found]
        if not body.paged:
            return rows
        return Page(page_size=size, page_number=body.number, total=cut.total, content=rows)

    async def _cut(self, asked: _Asked, listed: Sequence[Entity]) -> Cut:
        """All that there is: the listed entities, and those of devices that are counted."""
        body, counts = asked.body, DeviceCounts({})
        parts = [] if body.customized or body.entity_ids is not None else _parts(asked.grants)
        if parts:
            counts = DeviceCounts(await self._store.count(asked.tenant, parts))
        models = await self._models.of(asked.tenant, counts.all.keys())
        wanted = {model: asked.wants(members.members) for model, members in models.items()}
        pools = Pools(wanted, asked.order, asked.keyword)
        conditions = [seen(asked.grants)]
        if asked.keyword is not None and parts:
            counts, found = await self._with_keyword(asked, asked.keyword, parts, counts, pools)
            conditions += found
        devices = Devices(
            asked.tenant, asked.grants, conditions, models, pools, asked.keyword is None
        )
        return Cut(asked.order, listed, devices, pools.sizes(counts))

    async def _with_keyword(
        self,
        asked: _Asked,
        keyword: Keyword,
        parts: Sequence[Sequence[Condition]],
        counts: DeviceCounts,
        pools: Pools,
    ) -> tuple[DeviceCounts, list[Condition]]:
        """Numbers of the devices that a keyword matches, and a condition that finds them."""
        integrations = await self._store.integrations(asked.tenant)
        whole = keyword.devices(integrations)
        others = {"$nor": [whole]}
        tails = {tail: keyword.devices_ending(head, integrations) for head, tail in pools.tails()}
        matching = await self._store.count(asked.tenant, [[*part, whole] for part in parts])
        ending = [
            (tail, await self._store.count(asked.tenant, [[*part, others, end] for part in parts]))
            for tail, end in tails.items()
        ]
        own = pools.own_models()
        if len(own) > FEW or own == counts.all.keys():
            condition: list[Condition] = []
        else:
            condition = [{"$or": [whole, *tails.values(), *([of_models(own)] if own else [])]}]
        return DeviceCounts(counts.all, matching, ending), condition


def _parts(grants: Grants) -> list[list[Condition]]:
    return [[part] for part in seen_in_parts(grants)]
