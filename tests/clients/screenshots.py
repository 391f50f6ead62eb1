"""`make screenshots`: every page of the console as a picture, of a platform with demo data.

`python -m tests.clients.screenshots [--out DIRECTORY] [--readme]` starts a platform of its own, and
ends it. Each page is there light and dark, for desktop and phone. What axe or the browser complains
of is printed. With `--readme` the pictures of README.md are made anew.
"""

import argparse
import asyncio
import json
import math
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from deploy.local.process import PROJECT_ROOT
from tests.clients.demo import add_board, add_flow, add_import
from tests.contract.client import MODEL, PRODUCT, Api
from tests.contract.console import Console
from tests.e2e.platform import Platform
from tests.node import node

ROUTES = PROJECT_ROOT / "console/src/routes.ts"
PLACES = [(52.3702, 4.8952), (52.3680, 4.9036), (52.3600, 4.8852), (52.3791, 4.9003)]
README_PICTURES = {
    "dashboard": "dashboards-id-desktop-light",
    "flow": "flows-id-desktop-dark",
    "start": "start-desktop-light",
}
ROOMS = ("Boiler room", "Atrium", "Roof garden", "Server room", "Workshop", "Cold store")
HOUR, REPORTS = 3_600_000, 48


async def furnish(admin: Console, api: Api) -> dict[str, str]:
    """Fill the platform with what pages show; an example of each id that addresses have."""
    await api.done("PUT", f"/products/{MODEL}", PRODUCT)
    groups = [
        (await admin.done("POST", "/device-group", {"name": name}))["id"]
        for name in ("North wing", "South wing")
    ]
    devices = [await add_room(admin, api, number, groups) for number in range(len(ROOMS))]
    rule = {"type": "VALUE", "property": "temperature", "comparison": "GT", "threshold": 27}
    for severity, name in (("CRITICAL", "Too hot"), ("WARNING", "Quiet sensor")):
        condition = rule if severity == "CRITICAL" else {"type": "SILENCE", "seconds": 86_400}
        body = {"name": name, "severity": severity, "product": MODEL, "condition": condition}
        await admin.done("POST", "/alarm-rules", body)
    await asyncio.sleep(1)  # rules are in force a second after the answer
    await report(api, devices[0], {"temperature": 31.5})
    role = await admin.add_role("device.view", "entity_data.view")
    await admin.add_user("ann@example.com", "Ann")
    await admin.done("POST", "/application", {"name": "Meter reader", "events": True})
    tag = {"name": "comfort", "color": "#0b6b63", "description": "What people feel"}
    await admin.done("POST", "/entity/tags", tag)
    detail = await admin.done("GET", f"/device/{devices[0]['id']}")
    return {
        "/dashboards/": await add_board(admin, [device["id"] for device in devices[:-1]]),
        "/flows/": await add_flow(admin, devices[0]["id"]),
        "/fleet/imports/": await add_import(admin),
        "/devices/": devices[0]["id"],
        "/products/": MODEL,
        "/entities/": detail["entities"][0]["id"],
        "/integrations/": "openapi-client",
        "/people/roles/": role,
    }


async def add_room(admin: Console, api: Api, number: int, groups: list[str]) -> dict[str, str]:
    """A device with two days of history."""
    sn = f"CTDEMO{number:04}"
    name = ROOMS[number]
    added = await api.done("POST", "/devices", {"snDevEUI": sn, "name": name})
    device = str(added["deviceId"])
    key = (await api.done("POST", f"/devices/{device}/credentials"))["key"]
    room = {"id": device, "sn": sn, "key": key}
    latitude, longitude = PLACES[number % len(PLACES)]
    place = {"latitude": latitude + number / 5000, "longitude": longitude, "address": "Damrak 1"}
    await admin.ask("PUT", f"/device/{device}/location", place)
    group = groups[number % len(groups)]
    await admin.ask(
        "POST", "/device/move-to-group", {"group_id": group, "device_id_list": [device]}
    )
    if number == len(ROOMS) - 1:
        return room  # one that has never reported
    now = int(time.time() * 1000)
    for hour in reversed(range(REPORTS)):  # when it reported last is that of the first one
        warm = 21 + 3 * math.sin(hour / 4 + number)
        values = {"temperature": round(warm, 1), "battery": 90 - hour // 12, "counter": hour}
        await report(api, room, values, now - (REPORTS - hour) * HOUR)
    return room


async def report(api: Api, room: dict[str, str], values: dict[str, Any], ts: int = 0) -> None:
    body = {"properties": values} | ({"ts": ts} if ts else {})
    await api.report(room["sn"], room["key"], body)


def pages(examples: dict[str, str]) -> dict[str, str]:
    """Names and addresses of all pages; one whose id nobody knows an example of is left out."""
    found = {}
    for path in re.findall(r'"(/[^"]*)": \(\) => import\(', ROUTES.read_text()):
        address = re.sub(r":\w+\??", lambda _: "", path)
        if ":" in path:
            if address not in examples:
                sys.stdout.write(f"no example for {path}\n")
                continue
            address += examples[address]
        found[path.replace("/:", "-").strip("/").replace("/", "-") or "start"] = address
    return found


async def take(out: Path) -> list[str]:
    """Take the pictures; what was wrong with the pages."""
    with tempfile.TemporaryDirectory(prefix="thingway-screenshots-") as directory:
        platform = Platform(Path(directory) / "data")
        platform.start()
        try:
            user, client = platform.ready.user, platform.ready.console_client
            first = platform.ready.application
            admin = Console(
                platform.base_url,
                (client.client_id, client.client_secret),
                user.email,
                user.password,
            )
            api = Api(platform.base_url, first.client_id, first.client_secret, 0)
            await admin.log_in()
            await api.log_in()
            given = {
                "baseUrl": platform.base_url,
                "email": user.email,
                "password": user.password,
                "pages": pages(await furnish(admin, api)),
                "screenshots": str(out),
            }
            await admin.close()
            await api.close()
            found = await asyncio.to_thread(node, "console/pages.mjs", json.dumps(given))
        finally:
            platform.stop()
    return list(json.loads(found)["problems"])


def main() -> None:
    """Read the words of the command."""
    parser = argparse.ArgumentParser(description="pictures of every page of the console")
    parser.add_argument("--out", type=Path, default=PROJECT_ROOT / ".data/screenshots")
    parser.add_argument("--readme", action="store_true", help="keep those of README.md")
    words = parser.parse_args()
    out = words.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    problems = asyncio.run(take(out))
    for name, picture in README_PICTURES.items() if words.readme else ():
        shutil.copy(out / f"{picture}.png", PROJECT_ROOT / f"docs/pictures/{name}.png")
    sys.stdout.write("\n".join([*problems, f"pictures are in {out}\n"]))


if __name__ == "__main__":
    main()
