"""The jobs of the Helm chart: `python -m deploy.kubernetes.jobs JOB …`.

`setup` runs first. It creates the secrets once and gives each part its own Secret. `NAME-setup`
stores all of them, for this job only; part PART mounts `NAME-PART` at `/secrets`. An upgrade only
adds missing secrets.

`mongo-setup MEMBER …` creates the replica set of its members (`host:port`) and a user per service;
repeatable. MongoDB allows the creation of the first user over loopback only, and each pod has its
own loopback. Therefore the job logs in with the key file (`/keys/key`), as members do to each
other. `/secrets/env` contains the passwords.

`bootstrap NAME` runs last and creates the first data, as the launcher does. It saves its progress
in the Secret `NAME-bootstrap`, and finally writes `ready.json` to `NAME-credentials` and the
simulator's settings to `NAME-simulator`. `THINGWAY_PUBLIC_*` set the public addresses,
`THINGWAY_ADMIN_EMAIL` the user.
"""

import argparse
import asyncio
import base64
import http.client
import json
import os
import sys
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path, PurePath
from typing import Any

import msgspec

from deploy.docker.jobs import (
    create_first_data,
    encode_ready_file,
    encode_simulator_environment,
    public_addresses,
    run_job,
    run_mongo_setup,
)
from deploy.platform import console, ready
from deploy.platform.errors import LauncherError
from deploy.platform.mongo_server import set_up_with_key_file
from deploy.platform.nats import TlsFiles
from deploy.platform.shares import PartAddresses, build_bootstrap_state, create_secret_files
from deploy.platform.state import FILE_NAME, Addresses, State
from libs.common.tls import trusting_context

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_API_REQUEST_TIMEOUT_SECONDS = 10


class ReleaseSecrets:
    """The Secrets `{name}-{part}` of a release, accessed as the pod's service account.

    Secrets are written with server-side apply, which creates a missing Secret and keeps the keys of
    other field managers. The URL of an apply contains the name, unlike the URL of a create request,
    so a Role can list the allowed Secrets in `resourceNames`.
    """

    def __init__(self, name: str, manager: str) -> None:
        """`name` is the release's name, `manager` the field manager of each write."""
        self._name = name
        self._manager = manager
        self._namespace = (SERVICE_ACCOUNT_DIRECTORY / "namespace").read_text()
        self._tls = trusting_context(ca_file=str(SERVICE_ACCOUNT_DIRECTORY / "ca.crt"))

    def read(self, part: str) -> dict[str, bytes]:
        """Return the content of a part's Secret by key; empty if it does not exist."""
        secret = self._request("GET", part, allow_missing=True)
        return {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}

    def write(self, part: str, content: Mapping[str, bytes]) -> None:
        """Create or update a part's Secret; `content` has all keys of this field manager."""
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
        self._request("PATCH", part, body)

    def _request(
        self, method: str, part: str, body: Any = None, *, allow_missing: bool = False
    ) -> dict[str, Any]:
        path = f"/api/v1/namespaces/{self._namespace}/secrets/{self._name}-{part}"
        headers = {"Authorization": f"Bearer {(SERVICE_ACCOUNT_DIRECTORY / 'token').read_text()}"}
        if body is not None:
            path += f"?fieldManager={self._manager}&force=true"
            headers["Content-Type"] = "application/apply-patch+yaml"
        host, port = (os.environ[f"KUBERNETES_SERVICE_{name}"] for name in ("HOST", "PORT"))
        server = http.client.HTTPSConnection(
            host, int(port), timeout=_API_REQUEST_TIMEOUT_SECONDS, context=self._tls
        )
        try:
            server.request(method, path, body and json.dumps(body), headers)
            answer = server.getresponse()
            content: dict[str, Any] = json.loads(answer.read())
        finally:
            server.close()
        if answer.status == HTTPStatus.NOT_FOUND and allow_missing:
            return {}
        if answer.status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            raise LauncherError(f"{method} {path}: {answer.status} {content.get('message')}")
        return content


SETUP_PART = "setup"
BOOTSTRAP_PART = "bootstrap"
NATS_TLS_FILES = TlsFiles(PurePath("/tls/tls.crt"), PurePath("/tls/tls.key"))
CA_FILE = "/tls/ca.crt"
"""Path where the chart mounts the certificate authority of the servers."""
MONGO_KEY_FILE = Path("/keys/key")


def read_state(secrets: ReleaseSecrets, part: str) -> State:
    """Return the state in the Secret of a part; an empty one if none exists.

    Raises `LauncherError` if it cannot be decoded: new secrets would lock everybody out.
    """
    content = secrets.read(part).get(FILE_NAME)
    try:
        return State() if content is None else msgspec.json.decode(content, type=State)
    except msgspec.MsgspecError as error:
        raise LauncherError(f"cannot read {FILE_NAME} of the Secret {part}: {error}") from error


def write_state(secrets: ReleaseSecrets, part: str, state: State) -> None:
    """Save a state in the Secret of a part."""
    secrets.write(part, {FILE_NAME: msgspec.json.encode(state)})


def write_secrets(secrets: ReleaseSecrets, parts: PartAddresses) -> None:
    """Create missing secrets, save them all, and then write the parts' Secrets."""
    state = read_state(secrets, SETUP_PART)
    console.adopt_console_client(state, os.environ)
    shares = create_secret_files(state, parts)
    bootstrap = build_bootstrap_state(state, read_state(secrets, BOOTSTRAP_PART), parts)
    write_state(secrets, SETUP_PART, state)
    write_state(secrets, BOOTSTRAP_PART, bootstrap)
    for part in dict.fromkeys(share.part for share in shares):
        files = {share.name: share.content.encode() for share in shares if share.part == part}
        secrets.write(part, files)


def setup(arguments: Sequence[str]) -> int:
    """Create the secrets, save them, and give each part its own."""
    parser = argparse.ArgumentParser(prog="python -m deploy.kubernetes.jobs setup")
    parser.add_argument("--name", required=True, help="prefix of the Secrets' names")
    parser.add_argument("--mongo", required=True, help="members, host:port separated by commas")
    parser.add_argument(
        "--nats-members", default="", help="hosts of a cluster, separated by commas"
    )
    parser.add_argument("--redis", required=True, help="host:port")
    parser.add_argument("--url", required=True, help="URL of the gateway in the cluster")
    parser.add_argument("--mqtt-url", required=True)
    parser.add_argument("--nats-url", required=True)
    parser.add_argument("--exporters", action="store_true", help="exporters log in to the stores")
    parser.add_argument(
        "--tls", action="store_true", help=f"nats-server uses {NATS_TLS_FILES.certificate}"
    )
    options = parser.parse_args(arguments)
    parts = PartAddresses(
        mongo=options.mongo,
        mongo_direct=False,
        redis=options.redis,
        addresses=Addresses(
            options.url, options.mqtt_url, options.nats_url, ca_file=CA_FILE if options.tls else ""
        ),
        tls=NATS_TLS_FILES if options.tls else None,
        nats_members=tuple(filter(None, options.nats_members.split(","))),
        nats_server_name="$NATS_SERVER_NAME",
        exporters=options.exporters,
    )
    done = "every part has its secrets"
    return run_job(
        "setup", lambda: write_secrets(ReleaseSecrets(options.name, "setup"), parts), done
    )


def mongo_setup(members: Sequence[str]) -> int:
    """Create the replica set of `members` (`host:port`) and its users."""
    key, password = MONGO_KEY_FILE.read_text(), os.environ["MONGO_ADMIN"]
    return run_mongo_setup(lambda users: set_up_with_key_file(members, key, password, users))


def _bootstrap(name: str) -> None:
    secrets = ReleaseSecrets(name, "bootstrap")
    state = read_state(secrets, BOOTSTRAP_PART)
    asyncio.run(create_first_data(state, lambda: write_state(secrets, BOOTSTRAP_PART, state)))
    public = public_addresses(os.environ)
    secrets.write("credentials", {ready.FILE_NAME: encode_ready_file(state, public)})
    secrets.write("simulator", {"env": encode_simulator_environment(state)})


def bootstrap(arguments: Sequence[str]) -> int:
    """Wait for the platform and create its first data; repeatable."""
    [name] = arguments
    done = "Thingway is ready"
    return run_job("bootstrap", lambda: _bootstrap(name), done, "the platform")


JOBS = {"setup": setup, "mongo-setup": mongo_setup, "bootstrap": bootstrap}

if __name__ == "__main__":
    sys.exit(JOBS[sys.argv[1]](sys.argv[2:]))
