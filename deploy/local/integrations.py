"""`thingway integration`: logins of external integrations, by request to auth as administrator."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from deploy.local import admin
from deploy.local import state as states
from libs.common.clock import from_ms


async def create(directory: Path, integration: str, *, as_json: bool) -> None:
    """Create the login of an integration and print its secret, which is shown this once."""
    made = await _call(directory, "create_integration_login", {"integration": integration})
    _print_secret(made, as_json=as_json)


async def show_all(directory: Path, *, as_json: bool) -> None:
    """Print the logins."""
    found = (await _call(directory, "list_integration_logins"))["logins"]
    if as_json:
        print(json.dumps(found, indent=2))
        return
    table = Table(Column("Integration", overflow="fold"), "NATS user", "Created", box=None)
    for login in found:
        created = from_ms(login["createdAt"])
        table.add_row(login["integration"], login["user"], f"{created:%Y-%m-%d %H:%M} UTC")
    Console().print(table)


async def rotate_secret(directory: Path, integration: str, *, as_json: bool) -> None:
    """Give a login a new secret; connections of the old one end."""
    made = await _call(directory, "rotate_integration_secret", {"integration": integration})
    _print_secret(made, as_json=as_json)


async def delete(directory: Path, integration: str, *, as_json: bool) -> None:
    """Delete a login; its connections end."""
    await _call(directory, "delete_integration_login", {"integration": integration})
    if as_json:
        print(json.dumps({"integration": integration, "deleted": True}))
    else:
        print(f"the login of integration {integration} is deleted")


async def _call(directory: Path, operation: str, body: dict[str, Any] | None = None) -> Any:
    state, addresses = states.load_addressed(directory)
    async with admin.connect(addresses.nats_url, state.secrets["nats.admin"]) as platform:
        return await platform.call(f"rpc.auth.{operation}", body)


def _print_secret(made: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(made, indent=2))
        return
    print(f"integration  {made['integration']}")
    print(f"NATS user    {made['user']}")
    print(f"secret       {made['secret']}")
    print("The secret is shown this once.")
