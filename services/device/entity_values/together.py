"""Sets custom entities for many at once: what flows do hundreds of times a second.

What is asked for at the same time is looked up, sent and waited for together; each update is
checked, and refused, by itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from libs.common.errors import InvalidInput, NotFound, ThingwayError
from libs.common.things import own_sn
from services.device.entities.things import Entity
from services.device.entity_values.exchange import Writing, by_flows, writings
from services.device.entity_values.ports import Directory, Said, Speaker
from services.device.entity_values.writing import checked
from services.device.things import Thing


@dataclass(slots=True)
class Update:
    """Custom entities to set, all of them or none, and what became of it."""

    exchange: Mapping[str, Any]
    entities: Mapping[str, Entity]
    hops: int
    """How many flows have led to it."""
    error: ThingwayError | None = None
    wanted: list[Writing] = field(default_factory=list)


class CustomWriter:
    """Updates of custom entities."""

    def __init__(self, directory: Directory, speaker: Speaker) -> None:
        self._directory = directory
        self._speaker = speaker

    async def update(self, updates: Sequence[Update]) -> None:
        """Set what can be set, and note with each update why it was not.

        Values are in force when this returns.
        """
        for update in updates:
            try:
                update.wanted = writings(update.exchange, update.entities, by_flows)
            except InvalidInput as error:
                update.error = error
        sns = {own_sn(one.thing.id) for update in updates for one in update.wanted}
        things = await self._directory.by_sn(sns)
        said: list[tuple[Update, Said]] = []
        for update in updates:
            said += _said(update, things)
        reasons = await self._speaker.report_all([one for _, one in said])
        for (update, _), reason in zip(said, reasons, strict=True):
            if reason is not None:
                update.error = InvalidInput(reason, field="properties")


def _said(update: Update, things: Mapping[str, Thing]) -> Iterable[tuple[Update, Said]]:
    """What an update has its things say; nothing when one of them does not take its values."""
    try:
        taken = [checked(one, things) for one in update.wanted]
    except (InvalidInput, NotFound) as error:
        update.error = error
        return []
    return [(update, Said(thing, values, update.hops)) for thing, values in taken]
