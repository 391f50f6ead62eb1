"""`python -m services.gateway`."""

from libs.common.http import run_service, serve
from libs.common.settings import load
from libs.common.telemetry import start_telemetry
from services.gateway.app import create_gateway
from services.gateway.settings import GatewaySettings


async def main() -> None:
    """Serve until SIGTERM."""
    settings = load(GatewaySettings)
    telemetry = start_telemetry("gateway")
    door = await create_gateway(settings, telemetry)
    await serve(door, settings, http=door.connections.protocol, websocket=door.tunnels.protocol)
    telemetry.shutdown()


if __name__ == "__main__":
    run_service("gateway", main)
