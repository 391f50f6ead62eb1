"""The `thingway` command: a table of its words, and nothing of what they do."""

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
    CROWD,
    DATA,
    DOORS,
    INTEGRATION_ID,
    JSON,
    PLATFORM,
    SHARED,
    SN,
    STORES,
    Command,
    change_of_limit,
    count,
    file,
    flag,
    option,
    part,
)
from deploy.platform import console
from deploy.platform.errors import Exit, LauncherError, Refused
from libs.common.errors import ThingwayError

_MOST_WORKERS = 64


GROUPS = {
    "app": "work with applications",
    "user": "help users of the console",
    "tenant": "work with tenants",
    "integration": "work with the logins of external integrations",
    "product": "work with products",
    "device": "work with certificates of devices",
}
COMMANDS = (
    Command.of(
        "up",
        "start the platform and keep it running until Ctrl-C",
        "up:up",
        DATA,
        *DOORS,
        count(
            "--workers",
            1,
            _MOST_WORKERS,
            "processes of each of gateway, device and workflow (default: %(default)s)",
            default=1,
        ),
        flag("--cluster", "run three of MongoDB and NATS and two of Redis, from now on in DIR"),
        option(
            "--admin-email",
            metavar="EMAIL",
            default=console.admin_email,
            help="e-mail address of the console user that the first start makes "
            f"(default: %(default)s; environment: {console.ADMIN_EMAIL})",
        ),
        option(
            "--no-simulator",
            dest="simulator",
            action="store_false",
            help="do not run the simulated device",
        ),
        option("--no-console", dest="console", action="store_false", help="show no console at /"),
    ),
    Command.of(
        "simulate",
        "report as many devices over MQTT, with a live display of the rate",
        "simulate:simulate",
        DATA,
        *CROWD,
    ),
    Command.of(
        "simulate lorawan",
        "be a LoRaWAN network server: tell a broker what sensors say, and take their downlinks",
        "lorawan.command:simulate",
        DATA,
        option(
            "--server",
            choices=("chirpstack", "tts"),
            required=True,
            help="whose messages: ChirpStack 4, or The Things Stack 3",
        ),
        option(
            "--model",
            action="append",
            required=True,
            metavar="MODEL",
            help="product of the sensors, which has a codec; may be repeated",
        ),
        *CROWD,
        option(
            "--loss",
            type=part,
            default=0.0,
            metavar="P",
            help="part of the uplinks and downlinks that nobody hears (default: 0)",
        ),
        count("--seed", 0, 2**53, "other uplinks for another one (default: 0)", default=0),
        option("--broker", metavar="URL", help="its MQTT (default: as the integration has it)"),
        option("--username", metavar="NAME", help="user there (default: the same)"),
        file("--password-file", "with its password"),
        file("--ca-file", "PEM of whom to trust there"),
        flag("--connect", "have the integration connect to it as well"),
        option("--email", metavar="EMAIL", help="who adds the sensors (default: first user)"),
        file("--email-password-file", "with the password"),
    ),
    Command.of(
        "app create",
        "create an application and print its credentials",
        "administration:create_app",
        option("name", metavar="NAME", help="what people call it"),
        flag("--events", "let it subscribe to events over NATS"),
        *SHARED,
    ),
    Command.of("app list", "list the applications", "administration:list_apps", *SHARED),
    Command.of(
        "app rotate-secret",
        "give an application a new secret",
        "administration:rotate_app",
        APP_ID,
        *SHARED,
    ),
    Command.of("app delete", "delete an application", "administration:delete_app", APP_ID, *SHARED),
    Command.of(
        "user reset-password",
        "give a user a new password and print it; the old one and its tokens end at once",
        "administration:reset_password",
        option("email", metavar="EMAIL", help="the user's e-mail address"),
        option("--tenant", default=console.TENANT, help="the user's tenant (default: %(default)s)"),
        *SHARED,
    ),
    Command.of(
        "tenant create",
        "create a tenant and print the client that its people sign in with",
        "administration:create_tenant",
        option("name", metavar="NAME", help="1 to 64 letters, digits, '_' or '-'"),
        *SHARED,
    ),
    Command.of("tenant list", "list the tenants", "administration:list_tenants", *SHARED),
    Command.of(
        "tenant limits",
        "show what a tenant may use at most, or change it",
        "administration:change_limits",
        option("name", metavar="NAME", help="the tenant"),
        option(
            "changes",
            nargs="*",
            type=change_of_limit,
            metavar="LIMIT=NUMBER",
            help="a limit as it is shown, e.g. eachRequests=50 (or each_requests=50); "
            "eachRequests=default takes the platform's again",
        ),
        *SHARED,
    ),
    Command.of(
        "integration create",
        "create a login and print its secret",
        "administration:create_integration",
        INTEGRATION_ID,
        *SHARED,
    ),
    Command.of("integration list", "list the logins", "administration:list_integrations", *SHARED),
    Command.of(
        "integration rotate-secret",
        "give a login a new secret",
        "administration:rotate_integration",
        INTEGRATION_ID,
        *SHARED,
    ),
    Command.of(
        "integration delete",
        "delete a login",
        "administration:delete_integration",
        INTEGRATION_ID,
        *SHARED,
    ),
    Command.of(
        "device certificate",
        "issue a certificate with which a device logs in, and write it and its private key",
        "administration:issue_certificate",
        SN,
        count("--days", 1, 3650, "days that it holds (default: %(default)s)", default=365),
        file("--csr", "certificate signing request (PEM): the device keeps its private key"),
        option(
            "--out",
            type=Path,
            default=Path(),
            metavar="DIR",
            help="folder for SN.pem and SN.key (default: the current one); '-' prints both",
        ),
        *SHARED,
    ),
    Command.of(
        "device certificates",
        "list the certificates with which a device logs in",
        "administration:show_certificates",
        SN,
        *SHARED,
    ),
    Command.of(
        "device revoke-certificate",
        "end a certificate at once, and its connections",
        "administration:revoke_certificate",
        SN,
        option("serial", metavar="SERIAL", help="its serial number"),
        *SHARED,
    ),
    Command.of(
        "product import",
        "import a product, or a bare TSL document, from a JSON file",
        "products:import_file",
        file("file", "the JSON file"),
        option(
            "--model", help="the product's model (default: as the file says, else the file's name)"
        ),
        *PLATFORM,
    ),
    Command.of(
        "product import-template",
        "make a product and its codec from a public device template",
        "templates:import_template",
        option(
            "template",
            metavar="DIR|ZIP",
            type=Path,
            help="the folder of device-template.yaml, beside folders that it shares, or a ZIP",
        ),
        option("--model", help="the product's model (default: the folder's name)"),
        *PLATFORM,
    ),
    Command.of(
        "backup",
        "back the platform up while it runs: secrets, databases and streams of one moment",
        "backups:backup",
        option("to", metavar="DIR|-", help="where the file goes; '-': standard output"),
        option("--tenant", metavar="NAME", help="only this tenant, to be moved elsewhere"),
        option(
            "--recipient",
            action="append",
            metavar="KEY",
            help="encrypt for this public key of age (age1…); may be repeated",
        ),
        *BACKUPS,
        flag("--verify", "read it again and compare"),
    ),
    Command.of(
        "restore",
        "restore a backup into an empty data directory or empty stores; a tenant's into a platform",
        "backups:restore",
        option("file", metavar="FILE|-", help="the backup; '-': standard input"),
        *BACKUPS,
        flag("--verify", "compare what is there with the backup"),
        flag("--dry-run", "read and check it, change nothing"),
        flag(
            "--only-secrets",
            "with URLs: write state.json to DIR, from which the stores get their logins",
        ),
        count("--replicas", 1, 5, "replicas of each stream (default: as in the backup)"),
    ),
    Command.of(
        "migrate",
        "bring the databases to this version, as services do when they start",
        "migrating:run",
        *STORES,
        flag(
            "--contract", "also take away what only older versions need: there is no way back then"
        ),
    ),
    Command.of("version", "print what runs here", "programs:show_versions", JSON),
    Command.of(
        "doctor",
        "check this machine, and the platform if it runs; in a container, what its service sees",
        "doctor:examine",
        DATA,
        *DOORS,
        JSON,
    ),
)

_ALONE = {one.words for one in COMMANDS if one.words.partition(" ")[0] not in GROUPS}
"""Commands that stand in no group."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; failures are one line on stderr each and the exit code."""
    given = parser().parse_args(_worded(sys.argv[1:] if arguments is None else arguments))
    try:
        done = resolve_name(f"{__package__}.{given.run}")(given)
        return int((asyncio.run(done) if inspect.iscoroutine(done) else done) or Exit.OK)
    except Refused as error:
        return _told(error.exit_code, *error.faults)
    except LauncherError as error:
        return _told(error.exit_code, error)
    except ThingwayError as error:
        return _told(Exit.FAILED, error.text)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return int(Exit.FAILED)


def _told(code: Exit, *faults: object) -> int:
    for fault in faults:
        print(f"thingway: {fault}", file=sys.stderr)
    return int(code)


def _worded(arguments: Sequence[str]) -> list[str]:
    """The same with a command of two words as one, where the first is a command by itself."""
    both = " ".join(arguments[:2])
    return [both, *arguments[2:]] if both in _ALONE else list(arguments)


def parser() -> argparse.ArgumentParser:
    """The words of the command line."""
    top = argparse.ArgumentParser(
        prog="thingway", description="Thingway on one machine: run the platform and work with it."
    )
    first = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    places = {"": first}
    for command in COMMANDS:
        group, _, word = ("", "", command.words)
        if command.words not in _ALONE:
            group, _, word = command.words.rpartition(" ")
        if group not in places:
            named = first.add_parser(group, help=GROUPS[group], description=_said(GROUPS[group]))
            places[group] = named.add_subparsers(title="commands", metavar="COMMAND", required=True)
        added = places[group].add_parser(word, help=command.text, description=_said(command.text))
        added.set_defaults(run=command.run)
        for one in command.options:
            default = one["more"].get("default")
            made = {"default": default()} if callable(default) else {}
            added.add_argument(*one["names"], **one["more"] | made)
    return top


def _said(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
