"""Benchmarks of how one tenant delays another.

Runs each contest, and then a tenant at ten times all limits. `BENCH_ROWS=1,7` runs only those
contests; their names start with their numbers.
"""

import os

from bench.neighbours import at_limits
from bench.neighbours.alarms import BusyKey, Durations, ManyRules
from bench.neighbours.answers import Answers, Workbooks
from bench.neighbours.devices import LargeValues, SlowCodecs
from bench.neighbours.flows import Listeners
from bench.neighbours.harness import Contest, run_contest
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
            rows += await run_contest(contest())
    return rows if wanted else [*rows, *await at_limits.run()]
