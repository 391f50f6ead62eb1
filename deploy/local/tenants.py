"""`thingway tenant`: tenants, by request to the auth service as administrator."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from deploy.local import admin
from deploy.local import state as states
from libs.common.clock import from_ms

_FIRST_USER = """\
Until it has a user, whoever comes first may register, and becomes its super-admin:

  curl {base_url}/user/register -H 'TENANT_ID: {tenant}' -H 'Content-Type: application/json' \\
    -d '{{"email": "…", "nickname": "…", "password": "…"}}'

People then sign in with this client at POST {base_url}/oauth2/token."""


async def create(directory: Path, name: str, *, as_json: bool) -> None:
    """Create a tenant and print its console client, whose secret is shown this once."""
    made, base_url = await _call(directory, "create_tenant", {"name": name})
    if as_json:
        print(json.dumps(made, indent=2))
        return
    print(f"tenant         {made['name']}")
    print(f"client id      {made['clientId']}")
    print(f"client secret  {made['clientSecret']}")
    print("The secret is shown this once.\n")
    print(_FIRST_USER.format(base_url=base_url, tenant=made["name"]))


async def show_all(directory: Path, *, as_json: bool) -> None:
    """Print the tenants."""
    answer, _ = await _call(directory, "list_tenants")
    found = answer["tenants"]
    if as_json:
        print(json.dumps(found, indent=2))
        return
    table = Table(Column("Name", overflow="fold"), "Users", "Created", box=None)
    for tenant in found:
        created = from_ms(tenant["createdAt"])
        table.add_row(tenant["name"], str(tenant["users"]), f"{created:%Y-%m-%d %H:%M} UTC")
    Console().print(table)


async def limits(
    directory: Path, name: str, changes: dict[str, int | None], *, as_json: bool
) -> None:
    """Change limits of a tenant, when there are changes, and print those that hold then."""
    answer, _ = await _call(directory, "set_limits", {"tenant": name, "limits": changes})
    if as_json:
        print(json.dumps(answer, indent=2))
        return
    table = Table("Limit", Column("At most", justify="right"), "", box=None)
    for limit, most in answer["limits"].items():
        table.add_row(limit, str(most), "its own" if limit in answer["own"] else "")
    Console().print(table)


async def _call(
    directory: Path, operation: str, body: dict[str, Any] | None = None
) -> tuple[Any, str]:
    """The answer, and where the platform is."""
    state, addresses = states.load_addressed(directory)
    async with admin.connect(addresses.nats_url, state.secrets["nats.admin"]) as platform:
        return await platform.call(f"rpc.auth.{operation}", body), addresses.base_url
