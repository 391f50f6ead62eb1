"""Measure how one tenant delays another: each contest, then ten times all limits at once.

`BENCH_ROWS=1,7` runs only those contests; their names begin with their numbers.
"""

import os

from bench.neighbours import at_limits
from bench.neighbours.alarms import BusyKey, Durations, ManyRules
from bench.neighbours.answers import Answers, Workbooks
from bench.neighbours.devices import LargeValues, SlowCodecs
from bench.neighbours.flows import Listeners
from bench.neighbours.harness import Contest, hold
from bench.neighbours.notifications import Notifications, SlowWebhooks
from bench.neighbours.redecodes import Redecodes
from bench.neighbours.reports import Reports
from bench.neighbours.sockets import Sockets, SocketsRequest
from bench.neighbours.users import DeviceLogins, NewUsers
from bench.table import Row

CONTESTS: list[type[Contest]] = [
    Reports,
    ManyRules,
    BusyKey,
    Durations,
    Notifications,
    SlowWebhooks,
    LargeValues,
    Sockets,
    SocketsRequest,
    Listeners,
    NewUsers,
    DeviceLogins,
    Redecodes,
    Answers,
    Workbooks,
    SlowCodecs,
]


async def run() -> list[Row]:
    """Run all contests, or those that `BENCH_ROWS` names."""
    wanted = [number for number in os.environ.get("BENCH_ROWS", "").split(",") if number]
    rows: list[Row] = []
    for contest in CONTESTS:
        if not wanted or contest.name.split(".")[0] in wanted:
            rows += await hold(contest())
    return rows if wanted else [*rows, *await at_limits.run()]
