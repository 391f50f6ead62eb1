"""Healing: asks devices for what they remember of gaps.

How far the healing of each device is, in MongoDB: `healing`, with the fields of `Heal`.

A request is counted here before it is sent. Each change is made of the state that was read, so of
two replicas that look at a device at the same time one comes too late, and sends nothing.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import msgspec
from opentelemetry import metrics

from libs.common.clock import from_ms, now_ms, to_ms
from libs.common.errors import InvalidInput, ThingwayError
from libs.common.identity import PLATFORM, Kind, Principal
from libs.common.scheduling.turns import Steps, take_turns
from libs.common.store.mongo import Database, DuplicateKey, Session, StoreError
from services.device.commands.model import OPEN, Draft
from services.device.commands.service import CommandService
from services.device.commands.store import CommandStore
from services.device.lorawan.frame_store import SAME_MS, FrameStore
from services.device.lorawan.gaps import GapStore, KeptGap, find_gaps
from services.device.telemetry.latest_values import LatestValues
from services.device.telemetry.partitions import DAY_MS, LAST, Partitions, history_key
from services.device.things.deleted_things import ThingDataStore
from services.device.things.device_store import DeviceStore
from services.device.things.directory import ThingDirectory
from services.device.things.model import Device
from services.device.things.product_store import HealingProduct, ProductStore

log = logging.getLogger(__name__)

HEALING = "healing"


class Heal(msgspec.Struct, kw_only=True):
    """A device whose gaps are looked for and asked for. Times are ms."""

    id: int = msgspec.field(name="_id")
    turn: int = 0
    """Grows with every change."""
    seen: bytes | None = None
    """The key of the last frame that was looked at."""
    latest: int = -1
    """Its newest report when that was so."""
    open: bool = False
    """Whether it may have open gaps."""
    asks: list[int] = []
    """When it was asked, of the last 24 hours at least."""
    gap: bytes | None = None
    """What it is asked for."""
    command: int | None = None
    """By which command; None until it is written."""
    found: int = 0
    """Readings of the gap that history had."""
    since: int = 0
    """When these were last more than before, or the device was asked."""


class HealStore(ThingDataStore):
    """Reads and writes how far it is."""

    def __init__(self, database: Database) -> None:
        self._heals = database[HEALING]

    async def of(self, thing_ids: Sequence[int]) -> dict[int, Heal]:
        """The devices that were looked at."""
        found = self._heals.find({"_id": {"$in": list(thing_ids)}})
        return {row["_id"]: msgspec.convert(row, Heal) async for row in found}

    async def put(self, heal: Heal) -> bool:
        """Write the next state of a device; False when somebody else has written one."""
        query = {"_id": heal.id, "turn": heal.turn}
        first, heal.turn = heal.turn == 0, heal.turn + 1
        document = msgspec.to_builtins(heal, builtin_types=(bytes,))
        try:
            written = await self._heals.replace_one(query, document, upsert=first)
        except DuplicateKey:
            return False
        return first or bool(written.matched_count)

    async def delete_thing_data(self, thing_id: int, session: Session | None = None) -> None:
        """Delete the state of a device."""
        await self._heals.delete_one({"_id": thing_id}, session=session)


WORKERS = 4
"""Tenants whose devices are looked at at a time."""
PERIOD = 30.0
"""Seconds between two looks at all devices of a tenant, or more while the first lasts longer."""
DEVICES = 50
"""Devices that are looked up together, in one turn of their tenant."""
FRAMES = 2000
"""Frames of a device that are looked at in one look."""
TRIED = 20
"""Open gaps of a device that are looked at in one look."""
FIRST_MS = 7 * DAY_MS
"""How far a device is looked back at first."""
LATE_MS = 300_000
"""Time for frames that are late, before a device is asked for them."""
QUIET_MS = 3_600_000
"""After which no more of an answer is waited for."""
LOST_MS = 600_000
"""After which a request that was counted and not written, as a process ended, is over."""
HOUR_MS = 3_600_000
EVER = 2**53
MOST_ASKS = 3
"""Requests for one gap."""

_outcomes = metrics.get_meter("thingway").create_counter(
    "thingway_history_requests",
    description="Requests to devices for what they remember, and gaps healed or given up",
)


@dataclass(frozen=True, kw_only=True)
class Healer:
    """Finds gaps of products that heal, and asks for them within their budgets."""

    products: ProductStore
    devices: DeviceStore
    things: ThingDirectory
    latest: LatestValues
    frames: FrameStore
    partitions: Partitions
    gaps: GapStore
    store: HealStore
    commands: CommandService
    sent: CommandStore
    frame_days: int
    history_days: int

    async def run(self) -> None:
        """Work for ever."""
        await take_turns("healing", WORKERS, self.products.healing_tenants, self.steps, PERIOD)

    async def steps(self, tenant: str) -> Steps:
        """Look at the devices of a tenant's products that heal."""
        for product in await self.products.all_healing(tenant):
            last = 0
            while ids := await self.devices.lists.of_product(tenant, product.model, last, DEVICES):
                last = ids[-1]
                latest, heals = await self.latest.times(ids), await self.store.of(ids)
                for one in ids:
                    await self._attempt(product, heals.get(one, Heal(id=one)), latest.get(one, 0))
                yield

    async def _attempt(self, product: HealingProduct, heal: Heal, latest: int) -> None:
        try:
            await self._look(product, heal, latest)
        except StoreError:
            raise
        except ThingwayError as error:
            log.warning("healing of device %d waits: %s", heal.id, error)
        except Exception:
            log.exception("healing of device %d fails", heal.id)

    async def _look(self, product: HealingProduct, heal: Heal, latest: int) -> None:
        before = msgspec.structs.replace(heal)
        if heal.latest != latest:
            await self._find(product, heal, latest)
        if heal.gap is not None:
            await self._follow(heal, heal.gap)
        if heal != before and not await self.store.put(heal):
            return
        if heal.gap is None and heal.open and _may(product, heal):
            await self._ask(product, heal)

    async def _find(self, product: HealingProduct, heal: Heal, latest: int) -> None:
        """Keep the gaps between the frames that have come since the last look."""
        device = await self._device(product, heal)
        if device is None:
            heal.latest = latest
            return
        back = min(FIRST_MS, self.history_days * DAY_MS)  # what is older would be refused
        first = history_key(heal.id, max(device.owned_since, now_ms() - back), 0)
        if heal.seen is not None:
            first = max(heal.seen, history_key(heal.id, device.owned_since, 0))
        frames = await self.frames.counters(first, history_key(heal.id, LAST, LAST), FRAMES)
        if found := find_gaps(frames):
            days = product.frame_days or self.frame_days
            until = from_ms(found[-1].end) + timedelta(days=days)
            await self.gaps.keep(found, until)
            heal.open = True
        if frames:
            heal.seen = frames[-1].key
        heal.latest = latest if len(frames) < FRAMES else -1

    async def _device(self, product: HealingProduct, heal: Heal) -> Device | None:
        """The device, unless it is gone or keeps no history."""
        device = await self.devices.find(product.tenant, heal.id)
        return device if device is not None and device.data_storage else None

    async def _follow(self, heal: Heal, key: bytes) -> None:
        """See what became of a request; what is over leaves the device free for the next."""
        gap = await self.gaps.find(key)
        if gap is None or await self._is_over(gap):
            heal.gap = heal.command = None
            return
        if (gap.found or 0) > heal.found:
            heal.found, heal.since = gap.found or 0, now_ms()
        command = await self.sent.find_command(heal.command) if heal.command else None
        if command is None:
            end, reason = heal.since + LOST_MS, "the request was not sent"
        elif command.status in OPEN:
            return
        elif command.status == "SUCCESS":
            ended = to_ms(command.finished_at) if command.finished_at else 0
            end = max(heal.since, ended) + QUIET_MS
            reason = f"history has {gap.found} of {gap.missing} readings"
        else:
            end, reason = 0, command.error or command.status
        if now_ms() >= end:
            await self._fail(gap, reason)
            heal.gap = heal.command = None

    async def _fail(self, gap: KeptGap, reason: str) -> None:
        """A request has not healed a gap: it is asked for again, or given up."""
        if gap.asks < MOST_ASKS:
            await self.gaps.change(gap, state="OPEN", reason=reason)
            return
        reason = f"{reason}, after {MOST_ASKS} requests"
        await self._give_up(gap, reason)

    async def _give_up(self, gap: KeptGap, reason: str) -> None:
        await self.gaps.change(gap, state="GIVEN_UP", reason=reason[:500])
        _outcomes.add(1, {"outcome": "given_up"})

    async def _is_over(self, gap: KeptGap) -> bool:
        """Whether a gap has been closed by late frames, or healed, or cannot be asked for."""
        thing_id = int.from_bytes(gap.key[:8])
        named = await self.frames.named(thing_id, gap.session, gap.counter, gap.last)
        same = range(gap.start - SAME_MS, gap.end + SAME_MS + 1)
        late = [one for one in named if one.ts in same]
        missing = gap.last - gap.counter + 1 - len({one.counter for one in late})
        if missing <= 0:
            await self.gaps.remove(gap)
            return True
        most = 4 * (missing + len(late))
        times = await self.partitions.times(thing_id, gap.start + 1, gap.end - 1, most)
        found = len(times - {one.ts for one in late})
        await self.gaps.change(gap, missing=missing, found=found)
        if found >= missing:
            await self.gaps.change(gap, state="HEALED", reason=None)
            _outcomes.add(1, {"outcome": "healed"})
        elif gap.gap.within() is None:
            await self._give_up(gap, "is too short to be asked for")
        return gap.state in {"HEALED", "GIVEN_UP"}

    async def _ask(self, product: HealingProduct, heal: Heal) -> None:
        """Ask for the largest gap that is still one."""
        device = await self._device(product, heal)
        if device is not None:
            for gap in await self.gaps.largest(heal.id, now_ms() - LATE_MS, TRIED):
                if gap.start < device.owned_since:
                    await self.gaps.remove(gap)
                elif not await self._is_over(gap):
                    draft = await self._draft(product, device, gap)
                    if draft is not None:
                        await self._ask_for(heal, gap, draft)
                        return
        if device is None or not await self.gaps.largest(heal.id, EVER, 1):
            heal.open = False
            await self.store.put(heal)

    async def _ask_for(self, heal: Heal, gap: KeptGap, draft: Draft) -> None:
        """Count a request, then send it: a process that ends between the two has spent it."""
        now = now_ms()
        heal.asks = [*(one for one in heal.asks if one > now - DAY_MS), now]
        heal.gap, heal.command, heal.found, heal.since = gap.key, None, gap.found or 0, now
        if not await self.store.put(heal):
            return
        await self.gaps.change(gap, state="ASKED", asks=gap.asks + 1, asked=now)
        _outcomes.add(1, {"outcome": "asked"})
        try:
            (command,) = await self.commands.issue(_platform(draft), [draft])
        except InvalidInput as error:
            await self._fail(gap, error.text)
            heal.gap = None
        else:
            heal.command = command.id
        await self.store.put(heal)

    async def _draft(self, product: HealingProduct, device: Device, gap: KeptGap) -> Draft | None:
        """The request for a gap, checked; None when the device's TSL does not let it pass."""
        within = dict(zip(("start_time", "end_time"), gap.gap.within() or (), strict=True))
        thing = await self.things.thing(device)
        try:
            return self.commands.check_call(thing, product.service, within)
        except InvalidInput as error:
            await self._give_up(gap, error.text)
            return None


def _platform(draft: Draft) -> Principal:
    return Principal(Kind.USER, draft.thing.tenant, PLATFORM, name="healing", super_admin=True)


def _may(product: HealingProduct, heal: Heal) -> bool:
    """Whether the budget has room for one more request."""
    now, healing = now_ms(), product.healing
    hour = sum(one > now - HOUR_MS for one in heal.asks)
    return hour < healing.hour and sum(one > now - DAY_MS for one in heal.asks) < healing.day
