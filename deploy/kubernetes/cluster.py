"""Secrets of the namespace that a pod runs in, by its own service account.

A Secret is written by server-side apply, which makes it when it is missing and leaves alone what
others have put into it. Unlike a plain creation, it says the name before it is allowed, so a Role
can say by `resourceNames` which Secrets its holder may make.
"""

import base64
import http.client
import json
import os
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from deploy.platform.errors import LauncherError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT_SECONDS = 10


class Secrets:
    """The Secrets of one release: `{name}-{part}`."""

    def __init__(self, name: str, manager: str) -> None:
        """`manager` names the owner of what is written."""
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
