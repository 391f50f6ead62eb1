"""The `thingway` command: the table of its commands and the argument parser."""

import argparse
import asyncio
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name

from deploy.local.options import (
    APP_ID,
    BACKUPS,
    DATA,
    INTEGRATION_ID,
    JSON,
    LISTENERS,
    PLATFORM,
    SHARED,
    SIMULATION,
    SN,
    STORES,
    VERIFICATION,
    count,
    define_command,
    file,
    flag,
    fraction,
    limit_change,
    option,
)
from deploy.platform import console
from deploy.platform.errors import Exit, LauncherError, Refused
from libs.common.errors import ThingwayError

_BACKUP = "FILE|DIR|s3://BUCKET/PREFIX"
_MAX_WORKERS = 64


GROUPS = {
    "app": "manage applications",
    "user": "manage console users",
    "tenant": "manage tenants",
    "integration": "manage credentials of external integrations",
    "product": "manage products",
    "device": "manage device certificates",
}
COMMANDS = (
    define_command(
        "up",
        "start the platform and keep it running until Ctrl-C",
        "up:up",
        DATA,
        *LISTENERS,
        count(
            "--workers",
            1,
            _MAX_WORKERS,
            "number of gateway, device and workflow processes each (default: %(default)s)",
            default=1,
        ),
        flag("--cluster", "run a cluster of 3 MongoDB, 3 NATS and 2 Redis servers in DIR"),
        option(
            "--admin-email",
            metavar="EMAIL",
            default=console.admin_email,
            help="email address of the console user that the first start creates "
            f"(default: %(default)s; environment: {console.ADMIN_EMAIL})",
        ),
        option(
            "--no-simulator",
            dest="simulator",
            action="store_false",
            help="do not run the simulated device",
        ),
        option("--no-console", dest="console", action="store_false", help="serve no console"),
    ),
    define_command(
        "simulate",
        "simulate devices that report over MQTT, and show the rate",
        "simulate:simulate",
        DATA,
        *SIMULATION,
    ),
    define_command(
        "simulate lorawan",
        "simulate a LoRaWAN network server: publish uplinks to a broker, receive downlinks",
        "lorawan.command:simulate",
        DATA,
        option(
            "--server",
            choices=("chirpstack", "tts"),
            required=True,
            help="message format: ChirpStack 4 or The Things Stack 3",
        ),
        option(
            "--model",
            action="append",
            required=True,
            metavar="MODEL",
            help="product of the sensors; needs a codec; may be repeated",
        ),
        *SIMULATION,
        option(
            "--loss",
            type=fraction,
            default=0.0,
            metavar="P",
            help="share of uplinks and downlinks that are lost, 0 to 1 (default: 0)",
        ),
        count("--seed", 0, 2**53, "seed of the random uplinks (default: 0)", default=0),
        option("--broker", metavar="URL", help="MQTT address (default: from the integration)"),
        option(
            "--username", metavar="NAME", help="user name there (default: from the integration)"
        ),
        file("--password-file", "file with the password of this user"),
        file("--ca-file", "PEM file of the broker's certificate authority"),
        flag("--connect", "also configure the integration to use this broker"),
        option("--email", metavar="EMAIL", help="user to add sensors as (default: first user)"),
        file("--email-password-file", "file with the password of this console user"),
    ),
    define_command(
        "app create",
        "create an application and print its credentials",
        "administration:create_app",
        option("name", metavar="NAME", help="name of the application"),
        flag("--events", "allow the application to subscribe to events over NATS"),
        *SHARED,
    ),
    define_command("app list", "list the applications", "administration:list_apps", *SHARED),
    define_command(
        "app rotate-secret",
        "replace the secret of an application",
        "administration:rotate_app",
        APP_ID,
        *SHARED,
    ),
    define_command(
        "app delete", "delete an application", "administration:delete_app", APP_ID, *SHARED
    ),
    define_command(
        "user reset-password",
        "set a new random password and print it; the old password and all tokens stop working",
        "administration:reset_password",
        option("email", metavar="EMAIL", help="email address of the user"),
        option("--tenant", default=console.TENANT, help="their tenant (default: %(default)s)"),
        *SHARED,
    ),
    define_command(
        "tenant create",
        "create a tenant and print its console client, with which users sign in",
        "administration:create_tenant",
        option("name", metavar="NAME", help="1 to 64 letters, digits, '_' or '-'"),
        *SHARED,
    ),
    define_command("tenant list", "list the tenants", "administration:list_tenants", *SHARED),
    define_command(
        "tenant limits",
        "show or change the limits of a tenant",
        "administration:change_limits",
        option("name", metavar="NAME", help="name of the tenant"),
        option(
            "changes",
            nargs="*",
            type=limit_change,
            metavar="LIMIT=NUMBER",
            help="new value of a limit, e.g. eachRequests=50 (or each_requests=50); "
            "eachRequests=default resets it to the default of the platform",
        ),
        *SHARED,
    ),
    define_command(
        "integration create",
        "create credentials for an integration and print the secret",
        "administration:create_integration",
        INTEGRATION_ID,
        *SHARED,
    ),
    define_command(
        "integration list", "list integrations", "administration:list_integrations", *SHARED
    ),
    define_command(
        "integration rotate-secret",
        "replace the secret of an integration",
        "administration:rotate_integration",
        INTEGRATION_ID,
        *SHARED,
    ),
    define_command(
        "integration delete",
        "delete the credentials of an integration",
        "administration:delete_integration",
        INTEGRATION_ID,
        *SHARED,
    ),
    define_command(
        "device certificate",
        "issue a certificate for a device and write it with its private key",
        "administration:issue_certificate",
        SN,
        count("--days", 1, 3650, "days until it expires (default: %(default)s)", default=365),
        file("--csr", "certificate signing request (PEM) of a device that keeps its private key"),
        option(
            "--out",
            type=Path,
            default=Path(),
            metavar="DIR",
            help="directory for SN.pem and SN.key (default: current directory); '-' prints both",
        ),
        *SHARED,
    ),
    define_command(
        "device certificates",
        "list the valid certificates of a device",
        "administration:show_certificates",
        SN,
        *SHARED,
    ),
    define_command(
        "device revoke-certificate",
        "revoke a certificate and close its connections",
        "administration:revoke_certificate",
        SN,
        option("serial", metavar="SERIAL", help="serial number of the certificate"),
        *SHARED,
    ),
    define_command(
        "product import",
        "import a product or a thing specification (TSL) from a JSON file",
        "products:import_file",
        file("file", "the JSON file"),
        option("--model", help="product model (default: from the file or its name)"),
        *PLATFORM,
    ),
    define_command(
        "product import-template",
        "create a product and its codec from a public device template",
        "products:import_template",
        option(
            "template",
            metavar="DIR|ZIP",
            type=Path,
            help="folder with device-template.yaml (next to its shared folders), or a ZIP file",
        ),
        option("--model", help="model of the product (default: the folder name)"),
        *PLATFORM,
    ),
    define_command(
        "backup",
        "back up the running platform: secrets, databases and streams at one moment",
        "backups:backup",
        option(
            "to",
            metavar="DIR|s3://BUCKET/PREFIX|-",
            help="target: a directory, S3-compatible storage with credentials in AWS_ACCESS_KEY_ID "
            "and AWS_SECRET_ACCESS_KEY, or standard output",
        ),
        option("--tenant", metavar="NAME", help="back up one tenant, to move it elsewhere"),
        option(
            "--recipient",
            action="append",
            metavar="KEY",
            help="encrypt for this age public key (age1…); may be repeated",
        ),
        *BACKUPS,
        flag("--verify", "read the stored backup and verify it"),
        count("--keep", 1, 10_000, "verify, then delete backups except the N newest"),
        count("--keep-days", 1, 36_500, "verify, then delete backups that are older than N days"),
    ),
    define_command(
        "backup list",
        "list the complete backups in a directory or S3-compatible storage",
        "backups:list_backups",
        option("source", metavar="DIR|s3://BUCKET/PREFIX", help="where the backups are"),
        JSON,
    ),
    define_command(
        "backup verify",
        "restore a backup into temporary stores, compare them, and report the result",
        "verification:verify",
        option(
            "source", metavar=_BACKUP, help="a backup; of a directory or prefix: the newest backup"
        ),
        *VERIFICATION,
    ),
    define_command(
        "restore",
        "restore a backup into empty stores, or the backup of a tenant into a platform",
        "backups:restore",
        option(
            "file",
            metavar=f"{_BACKUP}|-",
            help="a backup; of a directory or prefix: the newest backup; '-': standard input",
        ),
        *BACKUPS,
        flag("--verify", "compare the restored data with the backup"),
        flag("--dry-run", "read and verify the backup, change nothing"),
        flag(
            "--only-secrets",
            "with URLs: write state.json to DIR, which contains the credentials of the stores",
        ),
        count("--replicas", 1, 5, "replicas of each stream (default: as in the backup)"),
    ),
    define_command(
        "migrate",
        "migrate the databases to this version, as services do at their start",
        "migrating:run_migrations",
        *STORES,
        flag("--contract", "also remove data that only older versions need; prevents a downgrade"),
    ),
    define_command("version", "print all versions", "programs:show_versions", *SHARED),
    define_command(
        "doctor",
        "check this machine and the running platform; in a container, what its service can reach",
        "doctor:run",
        DATA,
        *LISTENERS,
        JSON,
    ),
)

_UNGROUPED = {each.words for each in COMMANDS if each.words.partition(" ")[0] not in GROUPS}
"""Commands without a group."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; print its faults to stderr, one a line, and return the exit code."""
    given = create_parser().parse_args(
        _join_words(sys.argv[1:] if arguments is None else arguments)
    )
    try:
        done = resolve_name(f"{__package__}.{given.run}")(given)
        return int((asyncio.run(done) if inspect.iscoroutine(done) else done) or Exit.OK)
    except Refused as error:
        return _print_faults(error.exit_code, *error.faults)
    except LauncherError as error:
        return _print_faults(error.exit_code, error)
    except ThingwayError as error:
        return _print_faults(Exit.FAILED, error.text)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return int(Exit.FAILED)


def _print_faults(code: Exit, *faults: object) -> int:
    for fault in faults:
        print(f"thingway: {fault}", file=sys.stderr)
    return int(code)


def _join_words(arguments: Sequence[str]) -> list[str]:
    """Join the two words of a command whose first word is a command as well."""
    both = " ".join(arguments[:2])
    return [both, *arguments[2:]] if both in _UNGROUPED else list(arguments)


def create_parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    top = argparse.ArgumentParser(
        prog="thingway", description="Thingway on one machine: run the platform and work with it."
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    subparsers = {"": commands}
    for command in COMMANDS:
        group, _, word = ("", "", command.words)
        if command.words not in _UNGROUPED:
            group, _, word = command.words.rpartition(" ")
        if group not in subparsers:
            named = commands.add_parser(
                group, help=GROUPS[group], description=_sentence(GROUPS[group])
            )
            subparsers[group] = named.add_subparsers(
                title="commands", metavar="COMMAND", required=True
            )
        parser = subparsers[group].add_parser(
            word, help=command.text, description=_sentence(command.text)
        )
        parser.set_defaults(run=command.run)
        for each in command.options:
            default = each["settings"].get("default")
            computed = {"default": default()} if callable(default) else {}
            parser.add_argument(*each["names"], **each["settings"] | computed)
    return top


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
