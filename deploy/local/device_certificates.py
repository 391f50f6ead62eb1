"""`thingway device …`: certificates with which devices log in, beside their keys.

The authority's private key stays in `state.json`; `auth` is told which certificates are good.
"""

from argparse import Namespace
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Column, Table

from deploy.platform import admin
from deploy.platform import state as states
from deploy.platform.certificates import Issued, device_authority
from deploy.platform.errors import CommandError
from deploy.platform.files import write_private
from libs.common.clock import from_ms
from libs.common.contracts.auth import (
    DeviceCertificate,
    DeviceCertificateRef,
    DeviceCertificates,
    Done,
    ListDeviceCertificates,
)


class _Written(msgspec.Struct):
    serial: str
    expires: int
    certificate: str
    key: str | None


async def issue(given: Namespace) -> None:
    """Issue a certificate, write it and its key, and let it log the device in."""
    state, addresses = states.load_addressed(given.data)
    authority = device_authority(state)
    states.save(given.data, state)
    issued = authority.device(given.sn, given.days, _read(given.csr) if given.csr else None)
    certificate = DeviceCertificate(given.sn, issued.serial, issued.expires)
    async with admin.connect(addresses, state.secrets["nats.admin"]) as auth:
        await auth.call("rpc.auth.add_device_certificate", certificate, Done)
    if str(given.out) == "-":
        print(issued.certificate + (issued.key or ""), end="")
        return
    written = _write(given.out, given.sn, issued)
    if given.json:
        print(msgspec.json.encode(written).decode())
        return
    print(f"certificate  {written.certificate}, until {from_ms(written.expires):%Y-%m-%d}")
    if written.key:
        print(f"private key  {written.key}: nobody else has it")
    print(f"serial       {written.serial}")


async def show(given: Namespace) -> None:
    """Print the certificates that log a device in."""
    state, addresses = states.load_addressed(given.data)
    async with admin.connect(addresses, state.secrets["nats.admin"]) as auth:
        found = await auth.call(
            "rpc.auth.list_device_certificates",
            ListDeviceCertificates(given.sn),
            DeviceCertificates,
        )
    if given.json:
        print(msgspec.json.encode(found).decode())
        return
    table = Table(Column("Serial", no_wrap=True), "Until", box=None)
    for one in found.certificates:
        table.add_row(one.serial, f"{from_ms(one.expires):%Y-%m-%d}")
    Console().print(table)


async def revoke(given: Namespace) -> None:
    """End a certificate; connections that were made with it are closed."""
    state, addresses = states.load_addressed(given.data)
    ended = DeviceCertificateRef(given.sn, given.serial.upper())
    async with admin.connect(addresses, state.secrets["nats.admin"]) as auth:
        done = await auth.call("rpc.auth.revoke_device_certificate", ended, Done)
    print(msgspec.json.encode(done).decode() if given.json else f"{ended.serial} is revoked")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error}") from error


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
