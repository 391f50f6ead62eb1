"""Healing of gaps: requests to devices for readings that never arrived.

Collection `healing` has the fields of `HealingState`, one document per device.

A request is counted before it is sent. Each write replaces the version that was read, so when two
replicas handle the same device, the second one fails and sends nothing.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec
from opentelemetry import metrics

from libs.common.clock import from_ms, now_ms, to_ms
from libs.common.errors import InvalidInput, ThingwayError
from libs.common.identity import PLATFORM_USER_ID, Principal, PrincipalKind
from libs.common.scheduling.turns import TenantSteps, take_turns
from libs.common.store.mongo import Database, DuplicateKey, Session, StoreError
from services.device.commands.model import OPEN_STATES, CommandDraft
from services.device.commands.service import CommandService
from services.device.commands.store import CommandStore
from services.device.lorawan.frame_store import MAX_COPY_INTERVAL_MS, FrameStore
from services.device.lorawan.gaps import GapStore, TrackedGap, find_gaps
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.partitions import DAY_MS, MAX_KEY_PART, Partitions, history_key
from services.device.things.deleted_things import ThingDataStore
from services.device.things.device_store import DeviceStore
from services.device.things.directory import ThingDirectory
from services.device.things.model import Device
from services.device.things.product_store import HealingProduct, ProductStore

log = logging.getLogger(__name__)

HEALING_COLLECTION = "healing"


class HealingState(msgspec.Struct, kw_only=True):
    """State of one device whose gaps are healed. Times are ms."""

    id: int = msgspec.field(name="_id")
    turn: int = 0
    """Version, incremented by each change."""
    seen: bytes | None = None
    """Key of the last frame that was checked for gaps."""
    latest: int = -1
    """Time of the device's newest report when frame `seen` was checked; -1 to check further."""
    open: bool = False
    """Whether the device may have open gaps."""
    asks: list[int] = []
    """Times of requests, at least those of the last 24 hours."""
    gap: bytes | None = None
    """Key of the requested gap."""
    command: int | None = None
    """Id of the requesting command; None until the command is stored."""
    found: int = 0
    """Number of readings that history has within the requested gap."""
    since: int = 0
    """When `found` last grew, or the device was asked."""


class HealingStore(ThingDataStore):
    """Reads and writes the healing state of devices."""

    def __init__(self, database: Database) -> None:
        self._heals = database[HEALING_COLLECTION]

    async def find_all(self, thing_ids: Sequence[int]) -> dict[int, HealingState]:
        """Return the stored states of devices, by device id."""
        cursor = self._heals.find({"_id": {"$in": list(thing_ids)}})
        return {row["_id"]: msgspec.convert(row, HealingState) async for row in cursor}

    async def put(self, state: HealingState) -> bool:
        """Store the next state of a device; return False after a concurrent change."""
        query = {"_id": state.id, "turn": state.turn}
        first, state.turn = state.turn == 0, state.turn + 1
        document = msgspec.to_builtins(state, builtin_types=(bytes,))
        try:
            written = await self._heals.replace_one(query, document, upsert=first)
        except DuplicateKey:
            return False
        return first or bool(written.matched_count)

    async def delete_thing_data(self, thing_id: int, session: Session | None = None) -> None:
        """Delete the state of a device."""
        await self._heals.delete_one({"_id": thing_id}, session=session)


CONCURRENT_TENANTS = 4
"""Tenants whose devices are checked at the same time."""
CHECK_INTERVAL_SECONDS = 30.0
"""Minimum seconds between two checks of all devices of a tenant."""
DEVICES_PER_TURN = 50
"""Devices that are checked in one turn of their tenant."""
FRAMES_PER_CHECK = 2000
"""Maximum frames of a device per check."""
MAX_GAPS_PER_CHECK = 20
"""Maximum open gaps of a device per check."""
FIRST_CHECK_AGE_MS = 7 * DAY_MS
"""Maximum age of the frames in the first check of a device."""
LATE_FRAME_WAIT_MS = 300_000
"""Time that a gap waits for late frames before the device is asked for its readings."""
NO_READINGS_TIMEOUT_MS = 3_600_000
"""Time without new readings after which a request is over."""
UNSENT_REQUEST_TIMEOUT_MS = 600_000
"""Time after which a request without a command is over: the process ended too early to store it."""
HOUR_MS = 3_600_000
END_OF_TIME_MS = 2**53
MAX_REQUESTS_PER_GAP = 3
"""Maximum requests for one gap."""

_outcome_counter = metrics.get_meter("thingway").create_counter(
    "thingway_history_requests",
    description="Requests to devices for missing readings, and gaps that were healed or given up",
)


@dataclass(frozen=True, kw_only=True)
class Healer:
    """Finds gaps of devices whose products have healing, and requests the missing readings.

    The budget of the product limits the requests to each device.
    """

    products: ProductStore
    devices: DeviceStore
    things: ThingDirectory
    latest: LatestValues
    frames: FrameStore
    partitions: Partitions
    gaps: GapStore
    store: HealingStore
    commands: CommandService
    command_store: CommandStore
    frame_days: int
    history_days: int

    async def run(self) -> None:
        """Run until cancelled."""
        await take_turns(
            "healing",
            CONCURRENT_TENANTS,
            self.products.list_healing_tenants,
            self.check_tenant,
            CHECK_INTERVAL_SECONDS,
        )

    async def check_tenant(self, tenant: str) -> TenantSteps:
        """Check the devices of a tenant's products with healing, a batch at a time."""
        for product in await self.products.list_healing_products(tenant):
            last = 0
            while ids := await self.devices.queries.list_ids_of_product(
                tenant, product.model, last, DEVICES_PER_TURN
            ):
                last = ids[-1]
                latest = await self.latest.find_report_times(ids)
                heals = await self.store.find_all(ids)
                for id_ in ids:
                    state = heals.get(id_, HealingState(id=id_))
                    await self._heal_or_log(product, state, latest.get(id_, 0))
                yield

    async def _heal_or_log(self, product: HealingProduct, state: HealingState, latest: int) -> None:
        try:
            await self._heal_device(product, state, latest)
        except StoreError:
            raise
        except ThingwayError as error:
            log.warning("healing of device %d is postponed: %s", state.id, error)
        except Exception:
            log.exception("healing of device %d failed", state.id)

    async def _heal_device(self, product: HealingProduct, state: HealingState, latest: int) -> None:
        before = msgspec.structs.replace(state)
        if state.latest != latest:
            await self._store_new_gaps(product, state, latest)
        if state.gap is not None:
            await self._follow_request(state, state.gap)
        if state != before and not await self.store.put(state):
            return
        if state.gap is None and state.open and _has_budget(product, state):
            await self._request_largest_gap(product, state)

    async def _store_new_gaps(
        self, product: HealingProduct, state: HealingState, latest: int
    ) -> None:
        """Store the gaps between frames that arrived since the last check."""
        device = await self._find_device(product, state)
        if device is None:
            state.latest = latest
            return
        back = min(FIRST_CHECK_AGE_MS, self.history_days * DAY_MS)  # ingest rejects older readings
        first = history_key(state.id, max(device.owned_since, now_ms() - back), 0)
        if state.seen is not None:
            first = max(state.seen, history_key(state.id, device.owned_since, 0))
        frames = await self.frames.list_counted(
            first, history_key(state.id, MAX_KEY_PART, MAX_KEY_PART), FRAMES_PER_CHECK
        )
        if gaps := find_gaps(frames):
            days = product.frame_days or self.frame_days
            until = from_ms(gaps[-1].end) + timedelta(days=days)
            await self.gaps.insert_largest(gaps, until)
            state.open = True
        if frames:
            state.seen = frames[-1].key
        state.latest = latest if len(frames) < FRAMES_PER_CHECK else -1

    async def _find_device(self, product: HealingProduct, state: HealingState) -> Device | None:
        """Return the device, unless it was deleted or stores no history."""
        device = await self.devices.find(product.tenant, state.id)
        return device if device is not None and device.data_storage else None

    async def _follow_request(self, state: HealingState, key: bytes) -> None:
        """Update the state of a request; clear it when the request is over."""
        gap = await self.gaps.find(key)
        if gap is None or await self._close_if_over(gap):
            state.gap = state.command = None
            return
        if (gap.found or 0) > state.found:
            state.found, state.since = gap.found or 0, now_ms()
        command = await self.command_store.find_command(state.command) if state.command else None
        if command is None:
            end, reason = state.since + UNSENT_REQUEST_TIMEOUT_MS, "the request was not sent"
        elif command.status in OPEN_STATES:
            return
        elif command.status == "SUCCESS":
            ended = to_ms(command.finished_at) if command.finished_at else 0
            end = max(state.since, ended) + NO_READINGS_TIMEOUT_MS
            reason = f"history has {gap.found} of {gap.missing} readings"
        else:
            end, reason = 0, command.error or command.status
        if now_ms() >= end:
            await self._fail_request(gap, reason)
            state.gap = state.command = None

    async def _fail_request(self, gap: TrackedGap, reason: str) -> None:
        """Reopen a gap after a failed request, or give up after `MAX_REQUESTS_PER_GAP`."""
        if gap.asks < MAX_REQUESTS_PER_GAP:
            await self.gaps.change_fields(gap, state="OPEN", reason=reason)
            return
        reason = f"{reason}, after {MAX_REQUESTS_PER_GAP} requests"
        await self._give_up(gap, reason)

    async def _give_up(self, gap: TrackedGap, reason: str) -> None:
        await self.gaps.change_fields(gap, state="GIVEN_UP", reason=reason[:500])
        _outcome_counter.add(1, {"outcome": "given_up"})

    async def _close_if_over(self, gap: TrackedGap) -> bool:
        """Count the late frames and readings of a gap; return whether it needs no further request.

        The gap is then removed (all frames arrived), healed or given up.
        """
        thing_id = int.from_bytes(gap.key[:8])
        arrived_frames = await self.frames.find_by_counters(
            thing_id, gap.session, gap.counter, gap.last
        )
        same = range(gap.start - MAX_COPY_INTERVAL_MS, gap.end + MAX_COPY_INTERVAL_MS + 1)
        late = [frame for frame in arrived_frames if frame.ts in same]
        missing = gap.last - gap.counter + 1 - len({frame.counter for frame in late})
        if missing <= 0:
            await self.gaps.remove(gap)
            return True
        maximum = 4 * (missing + len(late))
        times = await self.partitions.find_report_times(
            thing_id, gap.start + 1, gap.end - 1, maximum
        )
        reading_count = len(times - {frame.ts for frame in late})
        await self.gaps.change_fields(gap, missing=missing, found=reading_count)
        if reading_count >= missing:
            await self.gaps.change_fields(gap, state="HEALED", reason=None)
            _outcome_counter.add(1, {"outcome": "healed"})
        elif gap.request_range_seconds() is None:
            await self._give_up(gap, "is too short to be requested")
        return gap.state in {"HEALED", "GIVEN_UP"}

    async def _request_largest_gap(self, product: HealingProduct, state: HealingState) -> None:
        """Request the largest gap that is still open."""
        device = await self._find_device(product, state)
        if device is not None:
            for gap in await self.gaps.list_largest_open(
                state.id, now_ms() - LATE_FRAME_WAIT_MS, MAX_GAPS_PER_CHECK
            ):
                if gap.start < device.owned_since:
                    await self.gaps.remove(gap)
                elif not await self._close_if_over(gap):
                    draft = await self._draft_request(product, device, gap)
                    if draft is not None:
                        await self._send_request(state, gap, draft)
                        return
        if device is None or not await self.gaps.list_largest_open(state.id, END_OF_TIME_MS, 1):
            state.open = False
            await self.store.put(state)

    async def _send_request(
        self, state: HealingState, gap: TrackedGap, draft: CommandDraft
    ) -> None:
        """Count a request, then send it: a crash in between uses up the request."""
        now = now_ms()
        state.asks = [*(ask for ask in state.asks if ask > now - DAY_MS), now]
        state.gap, state.command, state.found, state.since = gap.key, None, gap.found or 0, now
        if not await self.store.put(state):
            return
        await self.gaps.change_fields(gap, state="ASKED", asks=gap.asks + 1, asked=now)
        _outcome_counter.add(1, {"outcome": "asked"})
        try:
            (command,) = await self.commands.issue(_platform_principal(draft), [draft])
        except InvalidInput as error:
            await self._fail_request(gap, error.text)
            state.gap = None
        else:
            state.command = command.id
        await self.store.put(state)

    async def _draft_request(
        self, product: HealingProduct, device: Device, gap: TrackedGap
    ) -> CommandDraft | None:
        """Return the request for a gap; give the gap up and return None if the TSL rejects it."""
        within = dict(
            zip(("start_time", "end_time"), gap.request_range_seconds() or (), strict=True)
        )
        thing = await self.things.build_thing(device)
        try:
            return self.commands.draft_service_call(thing, product.service, within)
        except InvalidInput as error:
            await self._give_up(gap, error.text)
            return None


def _platform_principal(draft: CommandDraft) -> Principal:
    return Principal(
        PrincipalKind.USER, draft.thing.tenant, PLATFORM_USER_ID, name="healing", super_admin=True
    )


def _has_budget(product: HealingProduct, state: HealingState) -> bool:
    """Return whether the budget allows one more request."""
    now, healing = now_ms(), product.healing
    hour = sum(ask > now - HOUR_MS for ask in state.asks)
    return hour < healing.hour and sum(ask > now - DAY_MS for ask in state.asks) < healing.day
