"""The check of `helm test`: a report sent over MQTT appears in the history.

Arguments: `URL MQTT_URL` inside the cluster. The check uses the first application in
`/secrets/ready.json` and deletes its device at the end.
"""

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiomqtt

from deploy.platform import ready
from deploy.platform.bootstrap import read_demo_product
from deploy.platform.errors import CommandError
from deploy.platform.openapi import OpenApiClient
from libs.common.tls import parse_mqtt_urls

SECRETS_DIRECTORY = Path("/secrets")
TIMEOUT_SECONDS = 60.0
_PAUSE_SECONDS = 0.2
_DEVICES_PATH = "/device/openapi/v1/devices"


async def check_report_is_stored(api: OpenApiClient, mqtt_url: str, ca_file: str) -> None:
    """Send a report as a new device; raise `TimeoutError` if it is not stored in time."""
    sn = f"DEMO{secrets.token_hex(6).upper()}"
    device = await api.ensure_device(sn, "helm test", read_demo_product()["model"])
    try:
        sn, key = await api.issue_credentials(device)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await _publish_report(
                parse_mqtt_urls(mqtt_url, ca_file)[0], sn, key, {"temperature": 21.5}
            )
            await _wait_until_stored(api, device, {"temperature": 21.5})
    finally:
        await api.request("DELETE", f"{_DEVICES_PATH}/{device}")


async def _publish_report(
    server: Mapping[str, Any], sn: str, key: str, properties: dict[str, float]
) -> None:
    """Publish a report and wait for its acknowledgement."""
    async with aiomqtt.Client(**server, username=sn, password=key, identifier=sn) as client:
        body = json.dumps({"properties": properties})
        await client.publish(f"thing/{sn}/up/report", body, qos=1)


async def _wait_until_stored(api: OpenApiClient, device: int, properties: dict[str, float]) -> None:
    path = f"{_DEVICES_PATH}/{device}/properties/history?startTime=0&pageSize=1"
    while True:
        records = (await api.request("GET", path))["list"]
        if records and records[0]["properties"] == properties:
            return
        await asyncio.sleep(_PAUSE_SECONDS)


async def _run(base_url: str, mqtt_url: str) -> None:
    ready_content = ready.read(SECRETS_DIRECTORY)
    if ready_content is None:
        raise CommandError(
            f"no {ready.FILE_NAME} in {SECRETS_DIRECTORY}: the bootstrap job has not finished"
        )
    application = ready_content.application
    ca_file = os.environ.get("THINGWAY_CA_FILE", "")
    login = (application.client_id, application.client_secret)
    async with OpenApiClient(base_url, *login, ca_file) as api:
        await check_report_is_stored(api, mqtt_url, ca_file)


def main() -> int:
    """Run the check; on failure, print one line and return exit code 1."""
    base_url, mqtt_url = sys.argv[1:]
    try:
        asyncio.run(_run(base_url, mqtt_url))
    except (CommandError, aiomqtt.MqttError) as error:
        sys.stderr.write(f"check: {error}\n")
        return 1
    except TimeoutError:
        sys.stderr.write(f"check: the report was not in history within {TIMEOUT_SECONDS:.0f} s\n")
        return 1
    sys.stdout.write("check: the report sent over MQTT is in the history\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
