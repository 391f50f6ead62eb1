"""Entry point of the gateway: `python -m services.gateway`."""

from libs.common.http import run_service, serve
from libs.common.settings import SettingsInvalid, load_settings
from libs.common.telemetry import start_telemetry
from libs.common.tls import ServerTls
from services.gateway.app import create_gateway
from services.gateway.settings import GatewaySettings


async def main() -> None:
    """Serve until SIGTERM."""
    settings = load_settings(GatewaySettings)
    telemetry = start_telemetry("gateway", settings.replicas)
    tls = ServerTls.from_settings(settings, settings.device_ca_file)
    certificate_ports = settings.certificate_port or settings.certificate_nats_port
    if certificate_ports and not (tls and settings.device_ca_file):
        raise SettingsInvalid(
            "THINGWAY_CERTIFICATE_PORT and THINGWAY_CERTIFICATE_NATS_PORT require "
            "THINGWAY_TLS_CERTIFICATE and THINGWAY_DEVICE_CA_FILE"
        )
    gateway = await create_gateway(settings, telemetry, tls)
    await serve(
        gateway,
        settings,
        http=gateway.connections.create_protocol,
        websocket=gateway.tunnels.create_protocol,
        tls=tls,
        headers=gateway.headers,
        more_ports=[settings.operations_port] if settings.operations_port else [],
    )
    telemetry.shutdown()


if __name__ == "__main__":
    run_service("gateway", main)
