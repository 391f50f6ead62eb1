"""The jobs of the chart: `python -m deploy.kubernetes.jobs (setup|mongo-setup|bootstrap) …`.

`setup` is the first: it makes the secrets once, and hands each part its own as a Secret.
`NAME-setup` keeps all of them and is read by nobody else; `NAME-PART` is mounted by that part at
`/secrets`. An upgrade makes what is missing and changes nothing else.

`mongo-setup MEMBER …` makes the replica set of its members (`host:port`) and a user per service;
repeatable. MongoDB lets the first user be made over loopback only, and a pod's loopback is its own;
so this logs in as the members do to each other, with the key file (`/keys/key`). `/secrets/env` has
the passwords.

`bootstrap NAME` is the last: the first data, as the launcher makes them. It keeps how far it has
come in the Secret `NAME-bootstrap`, ends with `ready.json` there, and with the simulator's settings
in `NAME-simulator`. `THINGWAY_PUBLIC_*` name the addresses as clients see them,
`THINGWAY_ADMIN_EMAIL` the user.
"""

import argparse
import asyncio
import base64
import http.client
import json
import os
import ssl
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path, PurePath
from typing import Any

import msgspec

from deploy.docker.jobs import (
    first_data,
    public_addresses,
    ready_file,
    run_job,
    run_mongo_setup,
    simulator_file,
)
from deploy.platform import console, ready
from deploy.platform.errors import LauncherError
from deploy.platform.mongo_server import set_up_members
from deploy.platform.nats import ServerFiles
from deploy.platform.shares import Places, bootstrap_state, prepare
from deploy.platform.state import FILE_NAME, Addresses, State

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT_SECONDS = 10


class Secrets:
    """The Secrets of one release, `{name}-{part}`, by the service account of the pod.

    A Secret is written by server-side apply, which makes it when it is missing and leaves alone
    what others have put into it. Unlike a plain creation, it says the name before it is allowed,
    so a Role can say by `resourceNames` which Secrets its holder may make.
    """

    def __init__(self, name: str, manager: str) -> None:
        """Take the release's name, and `manager`, the field owner of each write."""
        self._name = name
        self._manager = manager
        self._namespace = (ACCOUNT / "namespace").read_text()
        self._tls = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        # Authorities of clusters are made by many tools, and some leave out what RFC 5280 wants.
        self._tls.verify_flags &= ~ssl.VERIFY_X509_STRICT

    def read(self, part: str) -> dict[str, bytes]:
        """The content of a part's Secret by key; empty when there is none."""
        found = self._ask("GET", part, missing_is_fine=True)
        return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}

    def write(self, part: str, content: Mapping[str, bytes]) -> None:
        """Make a part's Secret, or change it; these are all the keys that this manager gives it."""
        labels = {
            "app.kubernetes.io/instance": os.environ.get("RELEASE", self._name),
            "app.kubernetes.io/name": "thingway",
            "app.kubernetes.io/component": part,
        }
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"{self._name}-{part}", "labels": labels},
            "data": {key: base64.b64encode(value).decode() for key, value in content.items()},
        }
        self._ask("PATCH", part, body)

    def _ask(
        self, method: str, part: str, body: Any = None, *, missing_is_fine: bool = False
    ) -> dict[str, Any]:
        path = f"/api/v1/namespaces/{self._namespace}/secrets/{self._name}-{part}"
        headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"}
        if body is not None:
            path += f"?fieldManager={self._manager}&force=true"
            headers["Content-Type"] = "application/apply-patch+yaml"
        host, port = (os.environ[f"KUBERNETES_SERVICE_{name}"] for name in ("HOST", "PORT"))
        server = http.client.HTTPSConnection(
            host, int(port), timeout=_TIMEOUT_SECONDS, context=self._tls
        )
        try:
            server.request(method, path, body and json.dumps(body), headers)
            answer = server.getresponse()
            content: dict[str, Any] = json.loads(answer.read())
        finally:
            server.close()
        if answer.status == HTTPStatus.NOT_FOUND and missing_is_fine:
            return {}
        if answer.status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            raise LauncherError(f"{method} {path}: {answer.status} {content.get('message')}")
        return content


ALL = "setup"
BOOTSTRAP = "bootstrap"
TLS = ServerFiles(PurePath("/tls/tls.crt"), PurePath("/tls/tls.key"))
CA_FILE = "/tls/ca.crt"
"""Where the chart mounts them."""
MONGO_KEY = Path("/keys/key")


def read_state(secrets: Secrets, part: str) -> State:
    """The state that a part keeps; an empty one when there is none yet.

    Raises `LauncherError` for one that cannot be read: new secrets would lock everybody out.
    """
    content = secrets.read(part).get(FILE_NAME)
    try:
        return State() if content is None else msgspec.json.decode(content, type=State)
    except msgspec.MsgspecError as error:
        raise LauncherError(f"cannot read {FILE_NAME} of the Secret {part}: {error}") from error


def write_state(secrets: Secrets, part: str, state: State) -> None:
    """Keep the state of a part."""
    secrets.write(part, {FILE_NAME: msgspec.json.encode(state)})


def hand_out(secrets: Secrets, places: Places) -> None:
    """Create the secrets, store all of them, and only then give each part its own."""
    state = read_state(secrets, ALL)
    console.adopt_client(state, os.environ)
    shares = prepare(state, places)
    begun = bootstrap_state(state, read_state(secrets, BOOTSTRAP), places)
    write_state(secrets, ALL, state)
    write_state(secrets, BOOTSTRAP, begun)
    for part in dict.fromkeys(share.part for share in shares):
        files = {one.name: one.content.encode() for one in shares if one.part == part}
        secrets.write(part, files)


def setup(arguments: Sequence[str]) -> int:
    """Make the secrets, keep them, hand them out."""
    parser = argparse.ArgumentParser(prog="python -m deploy.kubernetes.jobs setup")
    parser.add_argument("--name", required=True, help="what the Secrets' names begin with")
    parser.add_argument("--mongo", required=True, help="members, host:port separated by commas")
    parser.add_argument("--nats-members", default="", help="hosts of a cluster, by commas")
    parser.add_argument("--redis", required=True, help="host:port")
    parser.add_argument("--url", required=True, help="where the gateway is in the cluster")
    parser.add_argument("--mqtt-url", required=True)
    parser.add_argument("--nats-url", required=True)
    parser.add_argument("--tls", action="store_true", help=f"nats-server shows {TLS.certificate}")
    given = parser.parse_args(arguments)
    places = Places(
        mongo=given.mongo,
        mongo_direct=False,
        redis=given.redis,
        addresses=Addresses(
            given.url, given.mqtt_url, given.nats_url, ca_file=CA_FILE if given.tls else ""
        ),
        tls=TLS if given.tls else None,
        nats_members=tuple(filter(None, given.nats_members.split(","))),
        nats_server_name="$NATS_SERVER_NAME",
    )
    done = "every part has its secrets"
    return run_job("setup", lambda: hand_out(Secrets(given.name, "setup"), places), done)


def mongo_setup(members: Sequence[str]) -> int:
    """Set MongoDB up."""
    key, password = MONGO_KEY.read_text(), os.environ["MONGO_ADMIN"]
    return run_mongo_setup(lambda users: set_up_members(members, key, password, users))


def _make_first_data(name: str) -> None:
    secrets = Secrets(name, "bootstrap")
    state = read_state(secrets, BOOTSTRAP)
    asyncio.run(first_data(state, lambda: write_state(secrets, BOOTSTRAP, state)))
    public = public_addresses(os.environ)
    secrets.write("credentials", {ready.FILE_NAME: ready_file(state, public)})
    secrets.write("simulator", {"env": simulator_file(state)})


def bootstrap(arguments: Sequence[str]) -> int:
    """Wait for the platform and bring it to its first data; repeatable."""
    [name] = arguments
    done = "Thingway is ready"
    return run_job("bootstrap", lambda: _make_first_data(name), done, "the platform")


JOBS = {"setup": setup, "mongo-setup": mongo_setup, "bootstrap": bootstrap}

if __name__ == "__main__":
    sys.exit(JOBS[sys.argv[1]](sys.argv[2:]))
