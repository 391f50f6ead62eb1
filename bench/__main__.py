"""`make bench`: run the benchmarks and print one table; exit 1 on a missed target."""

import argparse
import asyncio
import signal
import sys

from rich.console import Console
from rich.table import Table

from bench import (
    accounts,
    aggregates,
    alarms,
    code_nodes,
    console,
    costs,
    events,
    fleet,
    flows,
    frames,
    gateway,
    ingest,
    live,
    neighbours,
    partitions,
    platform,
    scale,
    things,
)
from bench.table import Row

PARTS = {
    "gateway": gateway,
    "ingest": ingest,
    "frames": frames,
    "alarms": alarms,
    "partitions": partitions,
    "events": events,
    "accounts": accounts,
    "platform": platform,
    "live": live,
    "things": things,
    "fleet": fleet,
    "aggregates": aggregates,
    "flows": flows,
    "code": code_nodes,
    "costs": costs,
    "scale": scale,
    "neighbours": neighbours,
    "console": console,
}


def show(rows: list[Row]) -> None:
    """Print the table."""
    table = Table(title="Thingway, side by side", title_justify="left")
    for title in ("measurement", "ours", "against", "ratio", "bar", ""):
        table.add_column(title, overflow="fold")
    for row in rows:
        verdict = {True: "met", False: "MISSED", None: ""}[row.ok]
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        table.add_row(row.name, row.ours, row.theirs, ratio, row.bar, verdict)
    Console(width=120).print(table)


def main() -> int:
    """Run all benchmarks, or those named on the command line."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all of them")
    wanted = parser.parse_args().parts or list(PARTS)
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    rows = [row for name in wanted for row in asyncio.run(PARTS[name].run())]
    show(rows)
    return 1 if any(row.ok is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
