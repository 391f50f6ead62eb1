"""Tenants, as the operator makes and lists them: `rpc.auth.{operation}`."""

import msgspec


class CreateTenant(msgspec.Struct):
    """`create_tenant`: 1 to 64 letters, digits, `_` or `-`."""

    name: str


class CreatedTenant(msgspec.Struct, rename="camel"):
    """Answer of `create_tenant`: the console client whose logins belong to the tenant.

    The secret is shown only here.
    """

    name: str
    client_id: str
    client_secret: str


class ListTenants(msgspec.Struct):
    """`list_tenants`."""


class Tenant(msgspec.Struct, rename="camel"):
    """A tenant as lists show it."""

    name: str
    created_at: int
    """ms."""
    users: int
    """How many; the first one may still register while there is none."""


class Tenants(msgspec.Struct):
    """Answer of `list_tenants`, by name."""

    tenants: list[Tenant]
