"""The `thingway` commands that administer the platform through `auth`.

Results are lines or tables, or JSON with `--json`. The private key of the certificate authority for
devices stays in `state.json`; `auth` only learns which certificates are valid.
"""

from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from rich.console import Console
from rich.table import Column, Table

from deploy.local import lock
from deploy.platform import admin, console, ready
from deploy.platform import state as states
from deploy.platform.bootstrap import TENANT
from deploy.platform.certificates import IssuedCertificate, device_authority
from deploy.platform.errors import CommandError
from deploy.platform.files import read_file, write_private
from deploy.platform.state import Application, State
from libs.common.clock import from_ms
from libs.common.contracts.auth import (
    ApplicationRef,
    Applications,
    ApplicationSecret,
    CreateApplication,
    CreatedTenant,
    CreateTenant,
    DeviceCertificate,
    DeviceCertificateRef,
    DeviceCertificates,
    Done,
    IntegrationLogins,
    IntegrationRef,
    IntegrationSecret,
    ListApplications,
    ListDeviceCertificates,
    ListIntegrationLogins,
    ListTenants,
    Tenants,
)
from libs.common.contracts.limits import SetLimits, TenantLimits

A = TypeVar("A")

_FIRST_USER = """\
Until the tenant has a user, anybody can register, and the first user becomes its super-admin:

  curl {base_url}/user/register -H 'TENANT_ID: {tenant}' -H 'Content-Type: application/json' \\
    -d '{{"email": "…", "nickname": "…", "password": "…"}}'

Users then sign in with this client at POST {base_url}/oauth2/token."""


async def create_app(given: Namespace) -> None:
    """Create an application and print its credentials, which are shown only once."""
    wanted = CreateApplication(given.name, TENANT, given.events)
    _show_app(given, await _call_auth(given, "create_application", wanted, ApplicationSecret))


async def list_apps(given: Namespace) -> None:
    """Print the applications.

    Ids are never wrapped, so that users can copy them and scripts can find them.
    """
    found = await _call_auth(given, "list_applications", ListApplications(), Applications)
    columns = (
        Column("ID", no_wrap=True),
        Column("Name", overflow="fold"),
        Column("Tenant", overflow="fold"),
        Column("Client ID", no_wrap=True),
        "Events",
    )
    rows = (
        (str(app.application_id), app.name, app.tenant, app.client_id, str(app.events))
        for app in found.applications
    )
    _show_table(given, found.applications, columns, rows)


async def rotate_app(given: Namespace) -> None:
    """Replace the secret of an application; its tokens stop working."""
    wanted = ApplicationRef(given.id)
    made = await _call_auth(given, "rotate_application_secret", wanted, ApplicationSecret)
    state = states.load(given.data)
    if _is_first(state, given.id):
        state.application = Application(given.id, made.client_id, made.client_secret)
        _save_state(given.data, state)
    _show_app(given, made)


async def delete_app(given: Namespace) -> None:
    """Delete an application; its tokens stop working."""
    await _call_auth(given, "delete_application", ApplicationRef(given.id), Done)
    state = states.load(given.data)
    if _is_first(state, given.id):
        state.application = state.device = None  # the next start creates new ones
        states.save(given.data, state)
    _show(given, {"applicationId": given.id, "deleted": True}, f"application {given.id} is deleted")


async def create_integration(given: Namespace) -> None:
    """Create credentials for an integration and print the secret."""
    await _new_integration_secret(given, "create_integration_login")


async def rotate_integration(given: Namespace) -> None:
    """Replace the secret of an integration; its connections are closed."""
    await _new_integration_secret(given, "rotate_integration_secret")


async def _new_integration_secret(given: Namespace, operation: str) -> None:
    made = await _call_auth(given, operation, IntegrationRef(given.id), IntegrationSecret)
    shown = {"integration": made.integration, "NATS user": made.user, "secret": made.secret}
    _show_secret(given, made, shown)


async def list_integrations(given: Namespace) -> None:
    """Print the integrations that have credentials."""
    found = await _call_auth(
        given, "list_integration_logins", ListIntegrationLogins(), IntegrationLogins
    )
    columns = (Column("Integration", overflow="fold"), "NATS user", "Created")
    rows = ((each.integration, each.user, _format_time(each.created_at)) for each in found.logins)
    _show_table(given, found.logins, columns, rows)


async def delete_integration(given: Namespace) -> None:
    """Delete the credentials of an integration; its connections are closed."""
    await _call_auth(given, "delete_integration_login", IntegrationRef(given.id), Done)
    text = f"the credentials of integration {given.id} are deleted"
    _show(given, {"integration": given.id, "deleted": True}, text)


async def create_tenant(given: Namespace) -> None:
    """Create a tenant and print its console client; the secret is shown only once."""
    made = await _call_auth(given, "create_tenant", CreateTenant(given.name), CreatedTenant)
    shown = {"tenant": made.name, "client id": made.client_id, "client secret": made.client_secret}
    _show_secret(given, made, shown)
    if not given.json:
        _, addresses = states.load_addressed(given.data)
        print("\n" + _FIRST_USER.format(base_url=addresses.base_url, tenant=made.name))


async def list_tenants(given: Namespace) -> None:
    """Print the tenants."""
    found = await _call_auth(given, "list_tenants", ListTenants(), Tenants)
    columns = (Column("Name", overflow="fold"), "Users", "Created")
    rows = ((each.name, str(each.users), _format_time(each.created_at)) for each in found.tenants)
    _show_table(given, found.tenants, columns, rows)


async def change_limits(given: Namespace) -> None:
    """Change limits of a tenant if changes are given; print the resulting limits."""
    wanted = SetLimits(given.name, dict(given.changes))
    answer = await _call_auth(given, "set_limits", wanted, TenantLimits)
    columns = ("Limit", Column("Maximum", justify="right"), "")
    rows = (
        (name, str(most), "custom" if name in answer.own else "")
        for name, most in msgspec.to_builtins(answer.limits).items()
    )
    _show_table(given, answer, columns, rows)


async def reset_password(given: Namespace) -> None:
    """Set a new random password and print it; the old one and all tokens stop working."""
    state, addresses = states.load_addressed(given.data)
    async with admin.connect(addresses, state.secrets["nats.admin"]) as auth:
        user = await console.reset_password(auth, given.tenant, given.email)
    state = states.load(given.data)
    if given.tenant == TENANT and state.user is not None and state.user.email == user.email:
        state.user = user
        _save_state(given.data, state)
    _show_secret(given, user, {"user": user.email, "password": user.password}, what="password")


async def _call_auth(given: Namespace, operation: str, request: Any, answer: type[A]) -> A:
    state, addresses = states.load_addressed(given.data)
    async with admin.connect(addresses, state.secrets["nats.admin"]) as auth:
        return await auth.call(f"rpc.auth.{operation}", request, answer)


def _is_first(state: State, application_id: int) -> bool:
    return state.application is not None and state.application.application_id == application_id


def _save_state(directory: Path, state: State) -> None:
    """Save a changed application or user, also in `ready.json` of a running platform."""
    states.save(directory, state)
    running = ready.read(directory)
    if running is not None and lock.is_held(directory):
        ready.write(directory, running.pids)


def _show(given: Namespace, answer: Any, text: str) -> None:
    encoded = msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()
    print(encoded if given.json else text)


def _show_app(given: Namespace, made: ApplicationSecret) -> None:
    shown = {
        "application": str(made.application_id),
        "client id": made.client_id,
        "client secret": made.client_secret,
    }
    _show_secret(given, made, shown)


def _show_secret(
    given: Namespace, answer: Any, shown: Mapping[str, str], what: str = "secret"
) -> None:
    width = max(map(len, shown)) + 2
    lines = [f"{name:<{width}}{value}" for name, value in shown.items()]
    _show(given, answer, "\n".join([*lines, f"The {what} is shown only once."]))


def _show_table(
    given: Namespace, answer: Any, columns: Iterable[Column | str], rows: Iterable[tuple[str, ...]]
) -> None:
    if given.json:
        _show(given, answer, "")
        return
    table = Table(*columns, box=None)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _format_time(at: int) -> str:
    """Return a time in ms as text."""
    return f"{from_ms(at):%Y-%m-%d %H:%M} UTC"


class _CertificateFiles(msgspec.Struct):
    serial: str
    expires: int
    certificate: str
    key: str | None

    @property
    def text(self) -> str:
        """Return the file names and the expiry as text."""
        until = f"{from_ms(self.expires):%Y-%m-%d}"
        key = f"private key  {self.key} (the only copy)\n" if self.key else ""
        return f"certificate  {self.certificate}, until {until}\n{key}serial       {self.serial}"


async def issue_certificate(given: Namespace) -> None:
    """Issue a certificate, register it with `auth`, and write it and its key."""
    state, _ = states.load_addressed(given.data)
    authority = device_authority(state)
    states.save(given.data, state)
    issued = authority.issue_device_certificate(
        given.sn, given.days, read_file(given.csr) if given.csr else None
    )
    certificate = DeviceCertificate(given.sn, issued.serial, issued.expires)
    await _call_auth(given, "add_device_certificate", certificate, Done)
    if str(given.out) == "-":
        print(issued.certificate + (issued.key or ""), end="")
        return
    written = _write(given.out, given.sn, issued)
    _show(given, written, written.text)


async def show_certificates(given: Namespace) -> None:
    """Print the valid certificates of a device."""
    wanted = ListDeviceCertificates(given.sn)
    found = await _call_auth(given, "list_device_certificates", wanted, DeviceCertificates)
    columns = (Column("Serial", no_wrap=True), "Until")
    rows = ((each.serial, f"{from_ms(each.expires):%Y-%m-%d}") for each in found.certificates)
    _show_table(given, found, columns, rows)


async def revoke_certificate(given: Namespace) -> None:
    """Revoke a certificate; its connections are closed."""
    revoked = DeviceCertificateRef(given.sn, given.serial.upper())
    done = await _call_auth(given, "revoke_device_certificate", revoked, Done)
    _show(given, done, f"{revoked.serial} is revoked")


def _write(directory: Path, sn: str, issued: IssuedCertificate) -> _CertificateFiles:
    """Write the files, readable by their owner only; raise `CommandError` on failure."""
    certificate, key = directory / f"{sn}.pem", directory / f"{sn}.key"
    try:
        write_private(certificate, issued.certificate.encode())
        if issued.key:
            write_private(key, issued.key.encode())
    except OSError as error:
        raise CommandError(f"cannot write {certificate}: {error}") from error
    made = str(key) if issued.key else None
    return _CertificateFiles(issued.serial, issued.expires, str(certificate), made)
