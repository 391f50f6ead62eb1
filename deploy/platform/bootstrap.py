"""The first data: an application, a user, a product and a device.

Each step can be repeated and is saved before the next one, so the next start completes an
interrupted one.
"""

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deploy.platform import admin, console
from deploy.platform.openapi import OpenApi
from deploy.platform.state import Addresses, Application, Device, State
from libs.common.bus import RpcClient
from libs.common.contracts.auth import (
    ApplicationRef,
    Applications,
    ApplicationSecret,
    CreateApplication,
    ListApplications,
)

TENANT = console.TENANT
APPLICATION = "first-application"
DEMO_PRODUCT = Path(__file__).with_name("demo_product.json")


def demo_product() -> dict[str, Any]:
    """Return the body of the demo product, with its `model`."""
    product: dict[str, Any] = json.loads(DEMO_PRODUCT.read_bytes())
    return product


async def bootstrap(
    state: State, addresses: Addresses, email: str, save: Callable[[], None]
) -> None:
    """Create the first application, user, product and device, as far as missing.

    `email` belongs to the user. `save` is called after every step. Raises `CommandError` if the
    platform rejects a step.
    """
    async with admin.connect(addresses, state.secrets["nats.admin"]) as platform:
        if state.application is None:
            state.application = await _create_application(platform)
            save()
        if state.user is None:
            state.user = await console.create_user(platform, email)
            save()
    application = state.application
    if state.device is not None and state.device.key is not None:
        return
    async with OpenApi(
        addresses.base_url, application.client_id, application.client_secret, addresses.ca_file
    ) as api:
        await _create_device(state, api, save)


async def _create_application(auth: RpcClient) -> Application:
    """Create the application, or adopt the one of an interrupted start."""
    applications = await auth.call("rpc.auth.list_applications", ListApplications(), Applications)
    for application in applications.applications:
        if application.name == APPLICATION:
            request = ApplicationRef(application.application_id)
            made = await auth.call("rpc.auth.rotate_application_secret", request, ApplicationSecret)
            break
    else:
        new = CreateApplication(APPLICATION, TENANT, events=True)
        made = await auth.call("rpc.auth.create_application", new, ApplicationSecret)
    return Application(made.application_id, made.client_id, made.client_secret)


async def _create_device(state: State, api: OpenApi, save: Callable[[], None]) -> None:
    product = demo_product()
    model = product.pop("model")
    if state.product is None:
        await api.put_product(model, product)
        state.product = model
        save()
    device = state.device
    if device is None:
        device = state.device = Device(sn=f"DEMO{secrets.token_hex(6).upper()}")
        save()
    if device.device_id is None:
        device_id = await api.add_device(device.sn, "Simulated sensor", model)
        device = state.device = Device(sn=device.sn, device_id=device_id)
        save()
    if device.device_id is not None and device.key is None:
        sn, key = await api.issue_credentials(device.device_id)
        state.device = Device(sn=sn, device_id=device.device_id, key=key)
        save()
