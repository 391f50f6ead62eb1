"""`thingway app`: applications, by request to the auth service as administrator."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from deploy.local import admin, lock, ready
from deploy.local import state as states
from deploy.local.bootstrap import TENANT
from deploy.local.state import Application, State

_COLUMNS = {
    "applicationId": "ID",
    "name": "Name",
    "tenant": "Tenant",
    "clientId": "Client ID",
    "events": "Events",
}
_COPIED = {"applicationId", "clientId"}
"""What people copy, and scripts look for: never on two lines."""


async def create(directory: Path, name: str, *, events: bool, as_json: bool) -> None:
    """Create an application and print its credentials, which are shown this once."""
    wanted = {"name": name, "tenant": TENANT, "events": events}
    _print_credentials(await _call(directory, "create_application", wanted), as_json=as_json)


async def show_all(directory: Path, *, as_json: bool) -> None:
    """Print the applications."""
    found = (await _call(directory, "list_applications"))["applications"]
    if as_json:
        print(json.dumps(found, indent=2))
        return
    columns = (
        Column(title, overflow="fold", no_wrap=key in _COPIED) for key, title in _COLUMNS.items()
    )
    table = Table(*columns, box=None)
    for application in found:
        table.add_row(*(str(application.get(key, "")) for key in _COLUMNS))
    Console().print(table)


async def rotate_secret(directory: Path, application_id: int, *, as_json: bool) -> None:
    """Give an application a new secret; tokens of the old one end at once."""
    wanted = {"applicationId": application_id}
    answer = await _call(directory, "rotate_application_secret", wanted)
    _remember_secret(directory, application_id, answer["clientSecret"])
    _print_credentials({"applicationId": application_id, **answer}, as_json=as_json)


async def delete(directory: Path, application_id: int, *, as_json: bool) -> None:
    """Delete an application; its tokens end at once."""
    await _call(directory, "delete_application", {"applicationId": application_id})
    state = states.load(directory)
    if _is_first(state, application_id):
        state.application = state.device = None  # the next start makes new ones
        states.save(directory, state)
    if as_json:
        print(json.dumps({"applicationId": application_id, "deleted": True}))
    else:
        print(f"application {application_id} is deleted")


async def _call(directory: Path, operation: str, body: dict[str, Any] | None = None) -> Any:
    state, addresses = states.load_addressed(directory)
    async with admin.connect(addresses.nats_url, state.secrets["nats.admin"]) as platform:
        return await platform.call(f"rpc.auth.{operation}", body)


def _remember_secret(directory: Path, application_id: int, secret: str) -> None:
    """Keep the launcher's files true when the first application's secret changes."""
    state = states.load(directory)
    if state.application is None or not _is_first(state, application_id):
        return
    state.application = Application(application_id, state.application.client_id, secret)
    states.save(directory, state)
    running = ready.read(directory)
    if running is not None and lock.is_held(directory):
        ready.write(directory, running.pids)


def _is_first(state: State, application_id: int) -> bool:
    return state.application is not None and state.application.application_id == application_id


def _print_credentials(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    print(f"application    {answer['applicationId']}")
    if "clientId" in answer:
        print(f"client id      {answer['clientId']}")
    print(f"client secret  {answer['clientSecret']}")
    print("The secret is shown this once.")
