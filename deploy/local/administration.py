"""`thingway app`, `user`, `tenant`, `integration` and `device`: asked of `auth` as administrator.

An answer is printed as JSON with `--json`, else as lines or a table. The private key of the
authority of device certificates stays in `state.json`; `auth` is told which certificates are good.
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
from deploy.platform.certificates import Issued, device_authority
from deploy.platform.errors import CommandError
from deploy.platform.files import read_given, write_private
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
Until it has a user, whoever comes first may register, and becomes its super-admin:

  curl {base_url}/user/register -H 'TENANT_ID: {tenant}' -H 'Content-Type: application/json' \\
    -d '{{"email": "…", "nickname": "…", "password": "…"}}'

People then sign in with this client at POST {base_url}/oauth2/token."""


async def create_app(given: Namespace) -> None:
    """Create an application and print its credentials, which are shown this once."""
    wanted = CreateApplication(given.name, TENANT, given.events)
    _show_app(given, await _ask(given, "create_application", wanted, ApplicationSecret))


async def list_apps(given: Namespace) -> None:
    """Print the applications. What people copy, and scripts look for, is never on two lines."""
    found = await _ask(given, "list_applications", ListApplications(), Applications)
    columns = (
        Column("ID", no_wrap=True),
        Column("Name", overflow="fold"),
        Column("Tenant", overflow="fold"),
        Column("Client ID", no_wrap=True),
        "Events",
    )
    rows = (
        (str(one.application_id), one.name, one.tenant, one.client_id, str(one.events))
        for one in found.applications
    )
    _show_table(given, found.applications, columns, rows)


async def rotate_app(given: Namespace) -> None:
    """Give an application a new secret; tokens of the old one end at once."""
    wanted = ApplicationRef(given.id)
    made = await _ask(given, "rotate_application_secret", wanted, ApplicationSecret)
    state = states.load(given.data)
    if _is_first(state, given.id):
        state.application = Application(given.id, made.client_id, made.client_secret)
        _remember(given.data, state)
    _show_app(given, made)


async def delete_app(given: Namespace) -> None:
    """Delete an application; its tokens end at once."""
    await _ask(given, "delete_application", ApplicationRef(given.id), Done)
    state = states.load(given.data)
    if _is_first(state, given.id):
        state.application = state.device = None  # the next start makes new ones
        states.save(given.data, state)
    _show(given, {"applicationId": given.id, "deleted": True}, f"application {given.id} is deleted")


async def create_integration(given: Namespace) -> None:
    """Create the login of an integration and print its secret, which is shown this once."""
    await _new_integration_secret(given, "create_integration_login")


async def rotate_integration(given: Namespace) -> None:
    """Give a login a new secret; connections of the old one end."""
    await _new_integration_secret(given, "rotate_integration_secret")


async def _new_integration_secret(given: Namespace, operation: str) -> None:
    made = await _ask(given, operation, IntegrationRef(given.id), IntegrationSecret)
    shown = {"integration": made.integration, "NATS user": made.user, "secret": made.secret}
    _show_secret(given, made, shown)


async def list_integrations(given: Namespace) -> None:
    """Print the logins."""
    found = await _ask(given, "list_integration_logins", ListIntegrationLogins(), IntegrationLogins)
    columns = (Column("Integration", overflow="fold"), "NATS user", "Created")
    rows = ((one.integration, one.user, _minute(one.created_at)) for one in found.logins)
    _show_table(given, found.logins, columns, rows)


async def delete_integration(given: Namespace) -> None:
    """Delete a login; its connections end."""
    await _ask(given, "delete_integration_login", IntegrationRef(given.id), Done)
    text = f"the login of integration {given.id} is deleted"
    _show(given, {"integration": given.id, "deleted": True}, text)


async def create_tenant(given: Namespace) -> None:
    """Create a tenant and print its console client, whose secret is shown this once."""
    made = await _ask(given, "create_tenant", CreateTenant(given.name), CreatedTenant)
    shown = {"tenant": made.name, "client id": made.client_id, "client secret": made.client_secret}
    _show_secret(given, made, shown)
    if not given.json:
        _, addresses = states.load_addressed(given.data)
        print("\n" + _FIRST_USER.format(base_url=addresses.base_url, tenant=made.name))


async def list_tenants(given: Namespace) -> None:
    """Print the tenants."""
    found = await _ask(given, "list_tenants", ListTenants(), Tenants)
    columns = (Column("Name", overflow="fold"), "Users", "Created")
    rows = ((one.name, str(one.users), _minute(one.created_at)) for one in found.tenants)
    _show_table(given, found.tenants, columns, rows)


async def change_limits(given: Namespace) -> None:
    """Change limits of a tenant, when there are changes, and print those that hold then."""
    wanted = SetLimits(given.name, dict(given.changes))
    answer = await _ask(given, "set_limits", wanted, TenantLimits)
    columns = ("Limit", Column("At most", justify="right"), "")
    rows = (
        (name, str(most), "its own" if name in answer.own else "")
        for name, most in msgspec.to_builtins(answer.limits).items()
    )
    _show_table(given, answer, columns, rows)


async def reset_password(given: Namespace) -> None:
    """Give a user a new password and print it; the old one and every token end at once."""
    state, addresses = states.load_addressed(given.data)
    async with admin.connect(addresses, state.secrets["nats.admin"]) as auth:
        user = await console.reset_password(auth, given.tenant, given.email)
    state = states.load(given.data)
    if given.tenant == TENANT and state.user is not None and state.user.email == user.email:
        state.user = user
        _remember(given.data, state)
    _show_secret(given, user, {"user": user.email, "password": user.password}, what="password")


async def _ask(given: Namespace, operation: str, request: Any, answer: type[A]) -> A:
    state, addresses = states.load_addressed(given.data)
    async with admin.connect(addresses, state.secrets["nats.admin"]) as auth:
        return await auth.call(f"rpc.auth.{operation}", request, answer)


def _is_first(state: State, application_id: int) -> bool:
    return state.application is not None and state.application.application_id == application_id


def _remember(directory: Path, state: State) -> None:
    """Keep the launcher's files true when the first application or user changes."""
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
    _show(given, answer, "\n".join([*lines, f"The {what} is shown this once."]))


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


def _minute(at: int) -> str:
    """A time in ms, as people read it."""
    return f"{from_ms(at):%Y-%m-%d %H:%M} UTC"


class _Written(msgspec.Struct):
    serial: str
    expires: int
    certificate: str
    key: str | None

    @property
    def text(self) -> str:
        """Where the files are, as people read it."""
        until = f"{from_ms(self.expires):%Y-%m-%d}"
        key = f"private key  {self.key}: nobody else has it\n" if self.key else ""
        return f"certificate  {self.certificate}, until {until}\n{key}serial       {self.serial}"


async def issue_certificate(given: Namespace) -> None:
    """Issue a certificate, write it and its key, and let it log the device in."""
    state, _ = states.load_addressed(given.data)
    authority = device_authority(state)
    states.save(given.data, state)
    issued = authority.device(given.sn, given.days, read_given(given.csr) if given.csr else None)
    certificate = DeviceCertificate(given.sn, issued.serial, issued.expires)
    await _ask(given, "add_device_certificate", certificate, Done)
    if str(given.out) == "-":
        print(issued.certificate + (issued.key or ""), end="")
        return
    written = _write(given.out, given.sn, issued)
    _show(given, written, written.text)


async def show_certificates(given: Namespace) -> None:
    """Print the certificates that log a device in."""
    wanted = ListDeviceCertificates(given.sn)
    found = await _ask(given, "list_device_certificates", wanted, DeviceCertificates)
    columns = (Column("Serial", no_wrap=True), "Until")
    rows = ((one.serial, f"{from_ms(one.expires):%Y-%m-%d}") for one in found.certificates)
    _show_table(given, found, columns, rows)


async def revoke_certificate(given: Namespace) -> None:
    """End a certificate; connections that were made with it are closed."""
    ended = DeviceCertificateRef(given.sn, given.serial.upper())
    done = await _ask(given, "revoke_device_certificate", ended, Done)
    _show(given, done, f"{ended.serial} is revoked")


def _write(directory: Path, sn: str, issued: Issued) -> _Written:
    """Write the files, readable by their owner only; raise `CommandError`."""
    certificate, key = directory / f"{sn}.pem", directory / f"{sn}.key"
    try:
        write_private(certificate, issued.certificate.encode())
        if issued.key:
            write_private(key, issued.key.encode())
    except OSError as error:
        raise CommandError(f"cannot write {certificate}: {error}") from error
    made = str(key) if issued.key else None
    return _Written(issued.serial, issued.expires, str(certificate), made)
