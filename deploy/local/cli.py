"""The `thingway` command: its words, and nothing of what they do."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from deploy.local import apps, console, doctor, integrations, products, tenants, users
from deploy.local import up as launcher
from deploy.local.errors import CommandError, Exit, LauncherError
from deploy.local.openapi import ApiRefused
from deploy.local.options import Options, add_data, add_doors, change_of_limit, number, positive
from deploy.local.simulate import simulate

Arguments = argparse.Namespace
Command = Callable[[Arguments], Exit]
_MOST_DEVICES = 2000
_MOST_WORKERS = 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; failures are one line on stderr each and the exit code."""
    parsed = parser().parse_args(arguments)
    command: Command = parsed.command
    try:
        return int(command(parsed))
    except ApiRefused as error:
        for fault in error.faults:
            print(f"thingway: {fault}", file=sys.stderr)
        return int(error.exit_code)
    except LauncherError as error:
        print(f"thingway: {error}", file=sys.stderr)
        return int(error.exit_code)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return int(Exit.FAILED)


def parser() -> argparse.ArgumentParser:
    """The words of the command line."""
    top = argparse.ArgumentParser(
        prog="thingway", description="Thingway on one machine: run the platform and work with it."
    )
    words = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_up(words)
    _add_simulate(words)
    _add_app(words)
    _add_user(words)
    _add_tenant(words)
    _add_integration(words)
    _add_product(words)
    _add_doctor(words)
    return top


def _add(
    words: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    text: str,
    command: Command,
) -> argparse.ArgumentParser:
    added = words.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    added.set_defaults(command=command)
    return added


def _add_up(words: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    text = "start the platform and keep it running until Ctrl-C"
    up = _add(words, "up", text, _up)
    add_data(up)
    add_doors(up)
    up.add_argument(
        "--workers",
        type=number(1, _MOST_WORKERS),
        default=1,
        metavar="N",
        help="processes of each of gateway, device and workflow (default: %(default)s)",
    )
    up.add_argument(
        "--admin-email",
        metavar="EMAIL",
        default=console.admin_email(),
        help="e-mail address of the console user that the first start makes "
        f"(default: %(default)s; environment: {console.ADMIN_EMAIL})",
    )
    up.add_argument("--no-simulator", action="store_true", help="do not run the simulated device")


def _up(given: Arguments) -> Exit:
    return launcher.up(
        Options(
            data=given.data,
            host=given.host,
            port=given.port,
            mqtt_port=given.mqtt_port,
            nats_port=given.nats_port,
            workers=given.workers,
            simulator=not given.no_simulator,
            admin_email=given.admin_email,
        )
    )


def _add_simulate(words: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    text = "report as many devices over MQTT, with a live display of the rate"
    command = _add(words, "simulate", text, _simulate)
    add_data(command)
    command.add_argument(
        "--devices",
        type=number(1, _MOST_DEVICES),
        required=True,
        metavar="N",
        help=f"how many devices, up to {_MOST_DEVICES}; created when they do not exist",
    )
    command.add_argument(
        "--rate", type=positive, required=True, metavar="R", help="reports/s of all together"
    )
    command.add_argument(
        "--duration", type=positive, metavar="S", help="seconds (default: until Ctrl-C)"
    )


def _simulate(given: Arguments) -> Exit:
    asyncio.run(simulate(given.data, given.devices, given.rate, given.duration))
    return Exit.OK


def _add_app(words: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    app = words.add_parser(
        "app", help="work with applications", description="Work with applications."
    )
    verbs = app.add_subparsers(title="commands", metavar="COMMAND", required=True)
    create = _add(verbs, "create", "create an application and print its credentials", _app_create)
    create.add_argument("name", metavar="NAME", help="what people call it")
    create.add_argument(
        "--events", action="store_true", help="let it subscribe to events over NATS"
    )
    listing = _add(verbs, "list", "list the applications", _app_list)
    rotate = _add(verbs, "rotate-secret", "give an application a new secret", _app_rotate)
    delete = _add(verbs, "delete", "delete an application", _app_delete)
    for command in (rotate, delete):
        command.add_argument("id", metavar="ID", type=number(1, 2**53), help="its id")
    for command in (create, listing, rotate, delete):
        add_data(command)
        command.add_argument("--json", action="store_true", help="print JSON")


def _app_create(given: Arguments) -> Exit:
    asyncio.run(apps.create(given.data, given.name, events=given.events, as_json=given.json))
    return Exit.OK


def _app_list(given: Arguments) -> Exit:
    asyncio.run(apps.show_all(given.data, as_json=given.json))
    return Exit.OK


def _app_rotate(given: Arguments) -> Exit:
    asyncio.run(apps.rotate_secret(given.data, given.id, as_json=given.json))
    return Exit.OK


def _app_delete(given: Arguments) -> Exit:
    asyncio.run(apps.delete(given.data, given.id, as_json=given.json))
    return Exit.OK


def _add_user(words: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    user = words.add_parser(
        "user", help="help users of the console", description="Help users of the console."
    )
    verbs = user.add_subparsers(title="commands", metavar="COMMAND", required=True)
    text = "give a user a new password and print it; the old one and its tokens end at once"
    reset = _add(verbs, "reset-password", text, _user_reset)
    reset.add_argument("email", metavar="EMAIL", help="the user's e-mail address")
    reset.add_argument(
        "--tenant", default=console.TENANT, help="the user's tenant (default: %(default)s)"
    )
    add_data(reset)
    reset.add_argument("--json", action="store_true", help="print JSON")


def _user_reset(given: Arguments) -> Exit:
    asyncio.run(users.reset_password(given.data, given.email, given.tenant, as_json=given.json))
    return Exit.OK


def _add_tenant(words: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    tenant = words.add_parser("tenant", help="work with tenants", description="Work with tenants.")
    verbs = tenant.add_subparsers(title="commands", metavar="COMMAND", required=True)
    text = "create a tenant and print the client that its people sign in with"
    create = _add(verbs, "create", text, _tenant_create)
    create.add_argument("name", metavar="NAME", help="1 to 64 letters, digits, '_' or '-'")
    listing = _add(verbs, "list", "list the tenants", _tenant_list)
    text = "show what a tenant may use at most, or change it"
    limits = _add(verbs, "limits", text, _tenant_limits)
    limits.add_argument("name", metavar="NAME", help="the tenant")
    limits.add_argument(
        "changes",
        nargs="*",
        type=change_of_limit,
        metavar="LIMIT=NUMBER",
        help="a limit as it is shown, e.g. eachRequests=50 (or each_requests=50); "
        "eachRequests=default takes the platform's again",
    )
    for command in (create, listing, limits):
        add_data(command)
        command.add_argument("--json", action="store_true", help="print JSON")


def _tenant_create(given: Arguments) -> Exit:
    asyncio.run(tenants.create(given.data, given.name, as_json=given.json))
    return Exit.OK


def _tenant_list(given: Arguments) -> Exit:
    asyncio.run(tenants.show_all(given.data, as_json=given.json))
    return Exit.OK


def _tenant_limits(given: Arguments) -> Exit:
    changes = dict(given.changes)
    asyncio.run(tenants.limits(given.data, given.name, changes, as_json=given.json))
    return Exit.OK


def _add_integration(words: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    text = "work with the logins of external integrations"
    integration = words.add_parser("integration", help=text, description=f"W{text[1:]}.")
    verbs = integration.add_subparsers(title="commands", metavar="COMMAND", required=True)
    create = _add(verbs, "create", "create a login and print its secret", _integration_create)
    listing = _add(verbs, "list", "list the logins", _integration_list)
    rotate = _add(verbs, "rotate-secret", "give a login a new secret", _integration_rotate)
    delete = _add(verbs, "delete", "delete a login", _integration_delete)
    for command in (create, rotate, delete):
        command.add_argument("id", metavar="ID", help="id of the integration, e.g. 'lamps'")
    for command in (create, listing, rotate, delete):
        add_data(command)
        command.add_argument("--json", action="store_true", help="print JSON")


def _integration_create(given: Arguments) -> Exit:
    asyncio.run(integrations.create(given.data, given.id, as_json=given.json))
    return Exit.OK


def _integration_list(given: Arguments) -> Exit:
    asyncio.run(integrations.show_all(given.data, as_json=given.json))
    return Exit.OK


def _integration_rotate(given: Arguments) -> Exit:
    asyncio.run(integrations.rotate_secret(given.data, given.id, as_json=given.json))
    return Exit.OK


def _integration_delete(given: Arguments) -> Exit:
    asyncio.run(integrations.delete(given.data, given.id, as_json=given.json))
    return Exit.OK


def _add_product(words: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    product = words.add_parser(
        "product", help="work with products", description="Work with products."
    )
    verbs = product.add_subparsers(title="commands", metavar="COMMAND", required=True)
    text = "import a product, or a bare TSL document, from a JSON file"
    command = _add(verbs, "import", text, _product_import)
    command.add_argument("file", metavar="FILE", type=Path, help="the JSON file")
    command.add_argument(
        "--model", help="the product's model (default: as the file says, else the file's name)"
    )
    add_data(command)
    command.add_argument("--url", help="address of another platform; needs both of these:")
    command.add_argument("--client-id", metavar="ID", help="client id there")
    command.add_argument("--client-secret", metavar="SECRET", help="client secret there")


def _product_import(given: Arguments) -> Exit:
    asyncio.run(products.import_file(_target(given), given.file, given.model))
    return Exit.OK


def _target(given: Arguments) -> products.Target:
    remote = (given.url, given.client_id, given.client_secret)
    if not any(remote):
        return products.Target.of_directory(given.data)
    if not all(remote):
        raise CommandError("--url, --client-id and --client-secret belong together")
    return products.Target(
        base_url=given.url, client_id=given.client_id, client_secret=given.client_secret
    )


def _add_doctor(words: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    text = "check this machine, and the platform if it runs"
    command = _add(words, "doctor", text, _doctor)
    add_data(command)
    add_doors(command)


def _doctor(given: Arguments) -> Exit:
    doors = {
        "--port": given.port,
        "--mqtt-port": given.mqtt_port,
        "--nats-port": given.nats_port,
    }
    return asyncio.run(doctor.examine(given.data, given.host, doors))
