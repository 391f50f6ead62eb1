"""`python -m services.gateway`."""

import logging

from libs.common.http import run_service, serve
from libs.common.settings import load
from libs.common.telemetry import start_telemetry
from services.gateway.app import create_gateway
from services.gateway.settings import GatewaySettings


async def main() -> None:
    """Serve until SIGTERM."""
    settings = load(GatewaySettings)
    logging.getLogger().setLevel(settings.log_level)
    telemetry = start_telemetry("gateway")
    await serve(await create_gateway(settings, telemetry), settings)
    telemetry.shutdown()


if __name__ == "__main__":
    run_service(main)
