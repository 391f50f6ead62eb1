"""The construction of the callout, and of the device credentials that it checks."""

from dataclasses import dataclass

from libs.common.bus.nkeys import KeyPair
from libs.common.identity.device_keys import RefusedLogins
from libs.common.identity.header import PassVerifier
from libs.common.identity.users import TenantsOfUsers
from libs.common.limits.tenants import KnownLimits
from libs.common.tls import mqtt_doors
from services.auth.callout.admission_registry import AdmissionRegistry
from services.auth.callout.login_authorizer import LoginAuthorizer
from services.auth.callout.service import Callout
from services.auth.connections import offer_connections
from services.auth.core import Core
from services.auth.device_credentials import DeviceService, offer_devices
from services.auth.tokens.device_keys import FirstKeys


@dataclass(frozen=True)
class CalloutParts:
    """What runs beside the HTTP operations."""

    callout: Callout
    registry: AdmissionRegistry
    refused_devices: RefusedLogins


def wire_callout(core: Core) -> CalloutParts:
    """Construct the callout, and offer the operations on device credentials and connections."""
    settings, redis, bus = core.settings, core.redis, core.bus
    refused_devices = RefusedLogins(redis)
    registry = AdmissionRegistry(
        redis,
        core.devices,
        bus,
        mqtt_doors(settings.mqtt_url, settings.ca_file),
        settings.nats_user,
        settings.nats_password,
    )
    first_keys = FirstKeys(redis, settings.callout_seed)
    devices = DeviceService(
        core.devices, core.device_copies, first_keys, core.revoker, registry, refused_devices
    )
    authorizer = LoginAuthorizer(
        devices=devices,
        applications=core.applications,
        integrations=core.integrations,
        registry=registry,
        connections=core.connections,
        limits=KnownLimits(core.rpc),
        refused=core.refused,
        passes=PassVerifier(settings.internal_public_key),
        clients=core.mqtt_clients,
    )
    offer_devices(core.rpc_server, devices)
    offer_connections(core.rpc_server, core.connections)
    key = KeyPair.from_seed(settings.callout_seed)
    callout = Callout(bus, authorizer, key, TenantsOfUsers(redis))
    return CalloutParts(callout, registry, refused_devices)
