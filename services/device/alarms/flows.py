"""`rpc.device.change_alarm`: alarms that flows raise and clear."""

from libs.common.bus import RpcServer
from libs.common.contracts.flows import (
    LONGEST_CONTENT,
    LONGEST_KEY,
    ChangeAlarm,
    ChangedAlarm,
)
from libs.common.errors import InvalidInput, NotFound
from services.device.alarms.store import AlarmStore
from services.device.members.directory import EntityDirectory


class FlowAlarms:
    """Raises and clears alarms for flows; whoever lets a flow run was asked what it may use."""

    def __init__(self, store: AlarmStore, directory: EntityDirectory) -> None:
        self._store = store
        self._directory = directory

    def offer(self, rpc: RpcServer) -> None:
        """Offer the operation."""
        rpc.offer("change_alarm", ChangeAlarm, self.change)

    async def change(self, wanted: ChangeAlarm) -> ChangedAlarm:
        """Raise an alarm unless it is open, or clear it when it is.

        Raises `InvalidInput`, also for a device that has too many, and `NotFound`.
        """
        for field, text, most in (
            ("key", wanted.key, LONGEST_KEY),
            ("content", wanted.content if wanted.raised else "-", LONGEST_CONTENT),
        ):
            if not 0 < len(text) <= most:
                raise InvalidInput(f"must be 1 to {most} characters", field=field)
        found = await self._directory.by_keys(wanted.tenant, [wanted.entity])
        if wanted.entity not in found:
            raise NotFound(f"there is no entity {wanted.entity}", field="entity")
        thing = found[wanted.entity].thing
        if not thing.device:
            raise InvalidInput(f"{wanted.entity} is no entity of a device", field="entity")
        if wanted.dry_run:
            return ChangedAlarm()
        return await self._store.change_by_flow(wanted, thing.id)
