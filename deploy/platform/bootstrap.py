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
from deploy.platform.openapi import OpenApiClient
from deploy.platform.state import Addresses, FirstApplication, FirstDevice, State
from libs.common.bus import RpcClient
from libs.common.contracts.auth import (
    ApplicationRef,
    Applications,
    ApplicationSecret,
    CreateApplication,
    ListApplications,
)

DEFAULT_TENANT = console.DEFAULT_TENANT
FIRST_APPLICATION_NAME = "first-application"
DEMO_PRODUCT_FILE = Path(__file__).with_name("demo_product.json")


def read_demo_product() -> dict[str, Any]:
    """Return the body of the demo product, with its `model`."""
    product: dict[str, Any] = json.loads(DEMO_PRODUCT_FILE.read_bytes())
    return product


async def bootstrap(
    state: State, addresses: Addresses, email: str, save: Callable[[], None]
) -> None:
    """Create the first application, user, product and device that are missing.

    `email` belongs to the user. `save` is called after every step. Raises `CommandError` if the
    platform rejects a step.
    """
    async with admin.connect_rpc(addresses, state.secrets["nats.admin"]) as platform:
        if state.application is None:
            state.application = await _create_application(platform)
            save()
        if state.user is None:
            state.user = await console.create_first_user(platform, email)
            save()
    application = state.application
    if state.device is not None and state.device.key is not None:
        return
    async with OpenApiClient(
        addresses.base_url, application.client_id, application.client_secret, addresses.ca_file
    ) as api:
        await _create_device(state, api, save)


async def _create_application(auth: RpcClient) -> FirstApplication:
    """Create the application, or rotate its secret if it exists already."""
    applications = await auth.call("rpc.auth.list_applications", ListApplications(), Applications)
    for application in applications.applications:
        if application.name == FIRST_APPLICATION_NAME:
            request = ApplicationRef(application.application_id)
            made = await auth.call("rpc.auth.rotate_application_secret", request, ApplicationSecret)
            break
    else:
        new = CreateApplication(FIRST_APPLICATION_NAME, DEFAULT_TENANT, events=True)
        made = await auth.call("rpc.auth.create_application", new, ApplicationSecret)
    return FirstApplication(made.application_id, made.client_id, made.client_secret)


async def _create_device(state: State, api: OpenApiClient, save: Callable[[], None]) -> None:
    product = read_demo_product()
    model = product.pop("model")
    if state.product is None:
        await api.put_product(model, product)
        state.product = model
        save()
    device = state.device
    if device is None:
        device = state.device = FirstDevice(sn=f"DEMO{secrets.token_hex(6).upper()}")
        save()
    if device.device_id is None:
        device_id = await api.ensure_device(device.sn, "Simulated sensor", model)
        device = state.device = FirstDevice(sn=device.sn, device_id=device_id)
        save()
    if device.device_id is not None and device.key is None:
        sn, key = await api.issue_credentials(device.device_id)
        state.device = FirstDevice(sn=sn, device_id=device.device_id, key=key)
        save()
