"""Compose's last job: the first application, user, product and device, as the launcher makes them.

Writes `/secrets/ready.json` (mode 0600) with the addresses as the host sees them, and
prints where it is. `THINGWAY_PUBLIC_*` name these addresses, `THINGWAY_ADMIN_EMAIL` the user.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

from deploy.platform import console, ready
from deploy.platform import state as states
from deploy.platform.bootstrap import bootstrap
from deploy.platform.errors import LauncherError
from deploy.platform.files import write_private
from deploy.platform.openapi import until_serving
from deploy.platform.state import Addresses, State
from libs.common.errors import ThingwayError

DIRECTORY = Path("/secrets")
SIMULATOR = Path("/simulator")
START_SECONDS = 180.0
DEFAULTS = {
    "THINGWAY_PUBLIC_URL": "http://127.0.0.1:8080",
    "THINGWAY_PUBLIC_MQTT_URL": "mqtt://127.0.0.1:1883",
    "THINGWAY_PUBLIC_NATS_URL": "nats://127.0.0.1:4222",
}


def public_addresses(environ: dict[str, str]) -> Addresses:
    """Where clients outside the containers find the platform."""
    http, mqtt, nats = (environ.get(name) or default for name, default in DEFAULTS.items())
    return Addresses(http, mqtt, nats)


def ready_file(state: State, public: Addresses) -> bytes:
    """The content of `ready.json`; the platform's processes are containers, so no pids."""
    content = ready.content_of(state, public, pids={})
    if content is None:
        raise AssertionError("the bootstrap ends with an application, a user and a device")
    return content


def simulator_file(state: State) -> bytes:
    """The settings of the simulator (profile `demo`)."""
    device, addresses = state.device, state.addresses
    if device is None or addresses is None:
        raise AssertionError("the bootstrap ends with a device")
    return (
        f"THINGWAY_MQTT_URL={addresses.mqtt_url}\n"
        f"THINGWAY_DEVICE_SN={device.sn}\nTHINGWAY_DEVICE_KEY={device.key}\n"
    ).encode()


async def first_data(state: State, save: Callable[[], None]) -> None:
    """Wait for the platform and bring it to its first data; repeatable.

    Raises `TimeoutError` when it does not serve in time.
    """
    addresses = state.addresses
    if addresses is None:
        raise LauncherError("no addresses: the job `setup` has not run")
    async with asyncio.timeout(START_SECONDS):
        await until_serving(addresses.base_url, addresses.ca_file)
    await bootstrap(state, addresses, console.admin_email(), save)


async def run(directory: Path, simulator: Path, public: Addresses) -> None:
    """Make the first data, and write what others need to use them."""
    state = states.load(directory)
    await first_data(state, lambda: states.save(directory, state))
    write_private(directory / ready.FILE_NAME, ready_file(state, public))
    write_private(simulator / "env", simulator_file(state))


def main() -> int:
    """Exit code 1 and one line when it cannot be."""
    try:
        asyncio.run(run(DIRECTORY, SIMULATOR, public_addresses(dict(os.environ))))
    except (LauncherError, ThingwayError) as error:
        sys.stderr.write(f"bootstrap: {error}\n")
        return 1
    except TimeoutError:
        sys.stderr.write(f"bootstrap: the platform was not ready within {START_SECONDS:.0f} s\n")
        return 1
    sys.stdout.write(
        "bootstrap: Thingway is ready; credentials: docker-compose run --rm --no-deps credentials\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
