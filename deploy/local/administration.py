"""The `thingway` commands that administer the platform through `auth`.

Results are lines or tables, or JSON with `--json`. The private key of the certificate authority for
devices stays in `state.json`; `auth` only learns which certificates are valid.
"""

import os
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
from deploy.platform.bootstrap import DEFAULT_TENANT
from deploy.platform.certificates import IssuedCertificate, device_authority
from deploy.platform.errors import CommandError
from deploy.platform.files import read_file, write_private
from deploy.platform.state import FirstApplication, State
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
    ListUsers,
    Tenants,
    Users,
)
from libs.common.contracts.limits import SetLimits, TenantLimits

A = TypeVar("A")

_FIRST_USER_INSTRUCTIONS = """\
Until the tenant has a user, anybody can register, and the first user becomes its super-admin:

  curl {base_url}/user/register -H 'TENANT_ID: {tenant}' -H 'Content-Type: application/json' \\
    -d '{{"email": "…", "nickname": "…", "password": "…"}}'

Users then sign in with this client at POST {base_url}/oauth2/token."""


async def create_app(options: Namespace) -> None:
    """Create an application and print its credentials, which are shown only once."""
    request = CreateApplication(options.name, DEFAULT_TENANT, options.events)
    _print_app(options, await _call_auth(options, "create_application", request, ApplicationSecret))


async def list_apps(options: Namespace) -> None:
    """Print the applications.

    Ids are never wrapped, so that users can copy them and scripts can find them.
    """
    applications = await _call_auth(options, "list_applications", ListApplications(), Applications)
    columns = (
        Column("ID", no_wrap=True),
        Column("Name", overflow="fold"),
        Column("Tenant", overflow="fold"),
        Column("Client ID", no_wrap=True),
        "Events",
    )
    rows = (
        (str(app.application_id), app.name, app.tenant, app.client_id, str(app.events))
        for app in applications.applications
    )
    _print_table(options, applications.applications, columns, rows)


async def rotate_app(options: Namespace) -> None:
    """Replace the secret of an application; its tokens stop working."""
    request = ApplicationRef(options.id)
    made = await _call_auth(options, "rotate_application_secret", request, ApplicationSecret)
    state = states.load(options.data)
    if _is_first_application(state, options.id):
        state.application = FirstApplication(options.id, made.client_id, made.client_secret)
        _save_state(options.data, state)
    _print_app(options, made)


async def delete_app(options: Namespace) -> None:
    """Delete an application; its tokens stop working."""
    await _call_auth(options, "delete_application", ApplicationRef(options.id), Done)
    state = states.load(options.data)
    if _is_first_application(state, options.id):
        state.application = state.device = None  # the next start creates new ones
        states.save(options.data, state)
    _print_answer(
        options,
        {"applicationId": options.id, "deleted": True},
        f"application {options.id} is deleted",
    )


async def create_integration(options: Namespace) -> None:
    """Create credentials for an integration and print the secret."""
    await _print_new_secret(options, "create_integration_login")


async def rotate_integration(options: Namespace) -> None:
    """Replace the secret of an integration; its connections are closed."""
    await _print_new_secret(options, "rotate_integration_secret")


async def _print_new_secret(options: Namespace, operation: str) -> None:
    made = await _call_auth(options, operation, IntegrationRef(options.id), IntegrationSecret)
    rows = {"integration": made.integration, "NATS user": made.user, "secret": made.secret}
    _print_secret(options, made, rows)


async def list_integrations(options: Namespace) -> None:
    """Print the integrations that have credentials."""
    integrations = await _call_auth(
        options, "list_integration_logins", ListIntegrationLogins(), IntegrationLogins
    )
    columns = (Column("Integration", overflow="fold"), "NATS user", "Created")
    rows = (
        (each.integration, each.user, _format_time(each.created_at)) for each in integrations.logins
    )
    _print_table(options, integrations.logins, columns, rows)


async def delete_integration(options: Namespace) -> None:
    """Delete the credentials of an integration; its connections are closed."""
    await _call_auth(options, "delete_integration_login", IntegrationRef(options.id), Done)
    text = f"the credentials of integration {options.id} are deleted"
    _print_answer(options, {"integration": options.id, "deleted": True}, text)


async def create_tenant(options: Namespace) -> None:
    """Create a tenant and print its console client; the secret is shown only once."""
    made = await _call_auth(options, "create_tenant", CreateTenant(options.name), CreatedTenant)
    rows = {"tenant": made.name, "client id": made.client_id, "client secret": made.client_secret}
    _print_secret(options, made, rows)
    if not options.json:
        _, addresses = states.load_with_addresses(options.data)
        print("\n" + _FIRST_USER_INSTRUCTIONS.format(base_url=addresses.base_url, tenant=made.name))


async def list_tenants(options: Namespace) -> None:
    """Print the tenants."""
    tenants = await _call_auth(options, "list_tenants", ListTenants(), Tenants)
    columns = (Column("Name", overflow="fold"), "Users", "Created")
    rows = ((each.name, str(each.users), _format_time(each.created_at)) for each in tenants.tenants)
    _print_table(options, tenants.tenants, columns, rows)


async def change_limits(options: Namespace) -> None:
    """Change limits of a tenant if changes are given; print the resulting limits."""
    request = SetLimits(options.name, dict(options.changes))
    answer = await _call_auth(options, "set_limits", request, TenantLimits)
    columns = ("Limit", Column("Maximum", justify="right"), "")
    rows = (
        (name, str(maximum), "custom" if name in answer.own else "")
        for name, maximum in msgspec.to_builtins(answer.limits).items()
    )
    _print_table(options, answer, columns, rows)


async def list_users(options: Namespace) -> None:
    """Print the users of a tenant."""
    request = ListUsers(options.tenant, options.super_admins)
    answer = await _call_auth(options, "list_users", request, Users)
    columns = (
        Column("Email", overflow="fold"),
        Column("Nickname", overflow="fold"),
        "Super-admin",
        "Enabled",
        "Created",
    )
    rows = (
        (
            user.email,
            user.nickname,
            str(user.super_admin),
            str(user.enabled),
            _format_time(user.created_at),
        )
        for user in answer.users
    )
    _print_table(options, answer.users, columns, rows)


async def reset_password(options: Namespace) -> None:
    """Set a new random password and print it; the old one and all tokens stop working."""
    states.require_owner(options.data)
    state, addresses = states.load_with_addresses(options.data)
    async with admin.connect_rpc(addresses, state.secrets["nats.admin"]) as auth:
        user = await console.reset_password(auth, options.tenant, options.email)
    state = states.load(options.data)
    if (
        options.tenant == DEFAULT_TENANT
        and state.user is not None
        and state.user.email == user.email
    ):
        state.user = user
        _save_state(options.data, state)
    _print_secret(options, user, {"user": user.email, "password": user.password}, what="password")


async def _call_auth(options: Namespace, operation: str, request: Any, answer: type[A]) -> A:
    states.require_owner(options.data)
    state, addresses = states.load_with_addresses(options.data)
    async with admin.connect_rpc(addresses, state.secrets["nats.admin"]) as auth:
        return await auth.call(f"rpc.auth.{operation}", request, answer)


def _is_first_application(state: State, application_id: int) -> bool:
    return state.application is not None and state.application.application_id == application_id


def _save_state(directory: Path, state: State) -> None:
    """Save the state, and write it to `ready.json` if the platform runs."""
    states.save(directory, state)
    running = ready.read(directory)
    if running is not None and lock.is_held(directory):
        ready.write(directory, running.pids)


def _print_answer(options: Namespace, answer: Any, text: str) -> None:
    encoded = msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()
    print(encoded if options.json else text)


def _print_app(options: Namespace, made: ApplicationSecret) -> None:
    rows = {
        "application": str(made.application_id),
        "client id": made.client_id,
        "client secret": made.client_secret,
    }
    _print_secret(options, made, rows)


def _print_secret(
    options: Namespace, answer: Any, rows: Mapping[str, str], what: str = "secret"
) -> None:
    width = max(map(len, rows)) + 2
    lines = [f"{name:<{width}}{value}" for name, value in rows.items()]
    _print_answer(options, answer, "\n".join([*lines, f"The {what} is shown only once."]))


def _print_table(
    options: Namespace,
    answer: Any,
    columns: Iterable[Column | str],
    rows: Iterable[tuple[str, ...]],
) -> None:
    if options.json:
        _print_answer(options, answer, "")
        return
    table = Table(*columns, box=None)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _format_time(at: int) -> str:
    """Return a time in epoch ms as text in UTC."""
    return f"{from_ms(at):%Y-%m-%d %H:%M} UTC"


class _CertificateFiles(msgspec.Struct):
    serial: str
    expires: int
    certificate: str
    key: str | None

    @property
    def text(self) -> str:
        """Return the file names, expiry and serial number as text."""
        until = f"{from_ms(self.expires):%Y-%m-%d}"
        key = f"private key  {self.key} (the only copy)\n" if self.key else ""
        return f"certificate  {self.certificate}, until {until}\n{key}serial       {self.serial}"


async def issue_certificate(options: Namespace) -> None:
    """Issue a certificate, register it with `auth`, and write it and its key."""
    states.require_owner(options.data)
    if str(options.out) != "-" and not os.access(options.out, os.W_OK | os.X_OK):
        raise CommandError(
            f"cannot write to the directory {options.out}: choose another with --out, "
            "or print the certificate with --out -"
        )
    state, _ = states.load_with_addresses(options.data)
    authority = device_authority(state)
    states.save(options.data, state)
    issued = authority.issue_device_certificate(
        options.sn, options.days, read_file(options.csr) if options.csr else None
    )
    certificate = DeviceCertificate(options.sn, issued.serial, issued.expires)
    await _call_auth(options, "add_device_certificate", certificate, Done)
    if str(options.out) == "-":
        print(issued.certificate + (issued.key or ""), end="")
        return
    written = _write_certificate_files(options.out, options.sn, issued)
    _print_answer(options, written, written.text)


async def show_certificates(options: Namespace) -> None:
    """Print the valid certificates of a device."""
    request = ListDeviceCertificates(options.sn)
    certificates = await _call_auth(
        options, "list_device_certificates", request, DeviceCertificates
    )
    columns = (Column("Serial", no_wrap=True), "Until")
    rows = (
        (each.serial, f"{from_ms(each.expires):%Y-%m-%d}") for each in certificates.certificates
    )
    _print_table(options, certificates, columns, rows)


async def revoke_certificate(options: Namespace) -> None:
    """Revoke a certificate; its connections are closed."""
    revoked = DeviceCertificateRef(options.sn, options.serial.upper())
    done = await _call_auth(options, "revoke_device_certificate", revoked, Done)
    _print_answer(options, done, f"{revoked.serial} is revoked")


def _write_certificate_files(
    directory: Path, sn: str, issued: IssuedCertificate
) -> _CertificateFiles:
    """Write certificate and key for this user only; raise `CommandError` on failure."""
    certificate, key = directory / f"{sn}.pem", directory / f"{sn}.key"
    try:
        write_private(certificate, issued.certificate.encode())
        if issued.key:
            write_private(key, issued.key.encode())
    except OSError as error:
        raise CommandError(f"cannot write {certificate}: {error}") from error
    made = str(key) if issued.key else None
    return _CertificateFiles(issued.serial, issued.expires, str(certificate), made)
