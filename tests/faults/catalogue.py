"""The faults: each does its harm, calls `strike` when it is done, and takes it back."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM
from typing import NamedTuple

from deploy.local.servers import CLUSTER_SIZE, MONGOD, NATS, REDIS, SENTINEL
from deploy.platform.state import member_name
from tests.faults.cluster import META, SERVICES_NAMES, Cluster, members_of


@dataclass
class Harm:
    """The tools of a fault."""

    cluster: Cluster
    strike: Callable[[], None]
    """Begins the time until it serves again."""
    seconds: float
    """How long what lasts a while lasts."""
    crowd: Callable[[float], Awaitable[None]]
    """Ten times the load, for so many seconds."""


LOADED = 120.0
"""Seconds of ten times the load."""
PARTED = 60.0
"""Seconds for which a member of a store is cut off or stopped, while others replace it."""
JUMP = 900
"""Seconds that a clock jumps."""


class Fault(NamedTuple):
    """A fault by its name in the table."""

    name: str
    work: Callable[[Harm], Awaitable[None]]
    places: bool = False
    """Whether it needs namespaces and disks."""
    clock: bool = False
    """Whether it needs clocks that can be set."""


def catalogue() -> list[Fault]:
    """Return every fault."""
    return [
        *(*_deaths(), *_pauses(), *_two_of_three()),
        *(*_partitions(), *_disks(), *_others(), *_clocks()),
    ]


Who = Callable[[Harm], Awaitable[list[str]]]


def _named(*names: str) -> Who:
    async def who(_: Harm) -> list[str]:
        return list(names)

    return who


def _leader(kind: str) -> Who:
    async def who(harm: Harm) -> list[str]:
        store = NATS if kind == META else kind
        return [member_name(store, (await harm.cluster.leaders())[kind])]

    return who


def _followers(kind: str, which: slice) -> Who:
    async def who(harm: Harm) -> list[str]:
        leader = member_name(kind, (await harm.cluster.leaders())[kind])
        return [name for name in members_of(kind) if name != leader][which]

    return who


def _with_leader(kind: str) -> Who:
    """Return the leader and another member."""

    async def who(harm: Harm) -> list[str]:
        return [*await _leader(kind)(harm), *await _followers(kind, slice(1))(harm)]

    return who


def _processes() -> Iterable[tuple[str, Who]]:
    """Yield each process and each member of a store."""
    for name in SERVICES_NAMES:
        yield name, _named(name)
    for kind, title, leads, follows in (
        (MONGOD, "MongoDB", "primary", "secondary"),
        (NATS, "NATS", "leader of `UPLINK`", "follower"),
        (REDIS, "Redis", "primary", "replica"),
    ):
        yield f"{title}, {leads}", _leader(kind)
        followers = len(members_of(kind)) - 1
        for number in range(followers):
            order = f" {number + 1}" if followers > 1 else ""
            yield f"{title}, {follows}{order}", _followers(kind, slice(number, number + 1))
    yield "NATS, leader of the cluster", _leader(META)
    yield "a Sentinel", _named(SENTINEL)


def _deaths() -> Iterable[Fault]:
    for title, who in _processes():

        async def cause(harm: Harm, who: Who = who) -> None:
            names = await who(harm)
            pids = [harm.cluster.ready.pids[name] for name in names]
            for name in names:
                harm.cluster.signal(name, SIGKILL)
            harm.strike()
            for name, pid in zip(names, pids, strict=True):
                await harm.cluster.returned(name, pid)

        yield Fault(f"kill -9: {title}", cause)


async def _stopped(harm: Harm, names: list[str], *, during: bool) -> None:
    """Pause processes; require service during the (longer) pause or after it."""
    for name in names:
        harm.cluster.signal(name, SIGSTOP)
    if during:
        harm.strike()
    try:
        await asyncio.sleep(PARTED if during else harm.seconds)
    finally:
        for name in names:
            harm.cluster.signal(name, SIGCONT)
    if not during:
        harm.strike()


def _pauses() -> Iterable[Fault]:
    for title, who in _processes():

        async def cause(harm: Harm, who: Who = who) -> None:
            names = await who(harm)
            await _stopped(harm, names, during=names[0] not in SERVICES_NAMES)

        after = " (from CONT)" if title in SERVICES_NAMES else ""
        yield Fault(f"SIGSTOP, SIGCONT: {title}{after}", cause)


def _two_of_three() -> Iterable[Fault]:
    for kind, title in ((MONGOD, "MongoDB"), (NATS, "NATS"), (SENTINEL, "Sentinel")):

        async def cause(harm: Harm, kind: str = kind) -> None:
            names = members_of(SENTINEL)[:2]
            if kind != SENTINEL:
                names = await _with_leader(kind)(harm)
            await _stopped(harm, names, during=kind == SENTINEL)

        after = "" if kind == SENTINEL else " (from CONT)"
        yield Fault(f"SIGSTOP: two of three of {title}{after}", cause)

    async def both(harm: Harm) -> None:
        await _stopped(harm, members_of(REDIS), during=False)

    yield Fault("SIGSTOP: both of Redis (from CONT)", both)


def _partitions() -> Iterable[Fault]:
    for kind, title in ((MONGOD, "MongoDB's primary"), (NATS, "the leader of `UPLINK`")):

        async def part(harm: Harm, kind: str = kind) -> None:
            places, number = harm.cluster.places, (await harm.cluster.leaders())[kind]
            assert places is not None
            places.part(number)
            harm.strike()
            try:
                await asyncio.sleep(PARTED)
            finally:
                places.heal(number)

        async def cut(harm: Harm, kind: str = kind) -> None:
            places, number = harm.cluster.places, (await harm.cluster.leaders())[kind]
            assert places is not None
            places.cut(number, off=True)
            harm.strike()
            try:
                await asyncio.sleep(PARTED)
            finally:
                places.cut(number, off=False)

        yield Fault(f"partition: the machine with {title} from the others", part, places=True)
        yield Fault(f"partition: the machine with {title} from all", cut, places=True)

    async def all_parted(harm: Harm) -> None:
        places = harm.cluster.places
        assert places is not None
        for number in (1, 2):
            places.cut(number, off=True)
        await asyncio.sleep(PARTED)
        for number in (1, 2):
            places.cut(number, off=False)
        harm.strike()

    yield Fault("partition: every machine alone (from its end)", all_parted, places=True)


def _disks() -> Iterable[Fault]:
    for kind, title, leads, role in (
        ("mongo", "MongoDB", MONGOD, "primary"),
        ("nats", "NATS", NATS, "leader of `UPLINK`"),
    ):

        async def fill_leader(harm: Harm, kind: str = kind, leads: str = leads) -> None:
            places, number = harm.cluster.places, (await harm.cluster.leaders())[leads]
            assert places is not None
            await asyncio.to_thread(places.fill, kind, number)
            harm.strike()
            await asyncio.sleep(harm.seconds)
            places.empty(kind, number)

        async def every(harm: Harm, kind: str = kind) -> None:
            places = harm.cluster.places
            assert places is not None
            for number in range(1, CLUSTER_SIZE + 1):
                await asyncio.to_thread(places.fill, kind, number)
            await asyncio.sleep(harm.seconds)
            for number in range(1, CLUSTER_SIZE + 1):
                places.empty(kind, number)
            harm.strike()

        yield Fault(f"disk full: {title}, {role}", fill_leader, places=True)
        yield Fault(f"disk full: every member of {title} (from room)", every, places=True)


def _others() -> Iterable[Fault]:
    async def crowd(harm: Harm) -> None:
        harm.strike()
        await harm.crowd(LOADED)

    yield Fault(f"ten times the load for {LOADED:g} s", crowd)

    async def everything(harm: Harm) -> None:
        pids = dict(harm.cluster.ready.pids)
        for name in pids:
            harm.cluster.signal(name, SIGKILL)
        harm.strike()
        for name, pid in pids.items():
            await harm.cluster.returned(name, pid)

    yield Fault("kill -9: everything at once", everything)

    async def rolling(harm: Harm) -> None:
        harm.strike()
        stores = (members_of(kind) for kind in (SENTINEL, REDIS, NATS, MONGOD))
        for name in (*SERVICES_NAMES, *itertools.chain.from_iterable(stores)):
            pid = harm.cluster.ready.pids[name]
            harm.cluster.signal(name, SIGTERM)
            await harm.cluster.returned(name, pid)
            await harm.cluster.whole()

    yield Fault("SIGTERM: everything, one after another", rolling)


def _clocks() -> Iterable[Fault]:
    for way in (JUMP, -JUMP):

        async def jump(harm: Harm, way: int = way) -> None:
            places = harm.cluster.places
            assert places is not None
            places.set_clock(way)
            harm.strike()
            try:
                await asyncio.sleep(harm.seconds)
            finally:
                places.set_clock(0)

        minutes = f"{abs(way) // 60} min {'ahead' if way > 0 else 'back'}"
        yield Fault(f"clock of the services {minutes}, then right", jump, clock=True)
