"""`webhook`: posts what comes in, signed, to an address of another system."""

import hashlib
import hmac
import secrets
import time
from typing import Annotated, Any

import msgspec

from libs.common.bus.hops import hops_header
from services.workflow.errors import NodeFailed
from services.workflow.nodes.base import Group, NodeContext, Parameters, Step, parameter
from services.workflow.outgoing.http import HttpRequest, OutgoingHttp

LONGEST_URL, LONGEST_SECRET = 4096, 1000
MOST_ARGUMENTS = 100
_OK = range(200, 300)


class WebhookParameters(Parameters):
    """What to post, and where."""

    webhook_url: Annotated[
        str, parameter("URL", "Where to post", min_length=1, max_length=LONGEST_URL)
    ]
    input_arguments: Annotated[
        dict[str, Any],
        parameter(
            "Content",
            "What to post, as JSON; what came in when there is nothing",
            ui="paramAssignInput",
            max_length=MOST_ARGUMENTS,
        ),
    ] = msgspec.field(default_factory=dict)
    secret_key: (
        Annotated[
            str,
            parameter(
                "Secret",
                "Signs what is posted: headers TIMESTAMP, NONCE and SIGNATURE",
                secret=True,
                max_length=LONGEST_SECRET,
            ),
        ]
        | None
    ) = None


class Webhook(Step[WebhookParameters]):
    """Posts JSON; what came in goes on unchanged."""

    name = "webhook"
    title = "Webhook"
    description = "Posts data to another system"
    group = Group.EXTERNAL
    parameters = WebhookParameters

    def __init__(self, http: OutgoingHttp) -> None:
        self._http = http

    async def run(self, context: NodeContext, parameters: WebhookParameters, body: Any) -> Any:
        """Post; any answer but 2xx is a failure, a redirect too. A dry run does not post."""
        url = str(context.resolve(parameters.webhook_url))
        given = context.resolve(parameters.input_arguments)
        secret = context.resolve(parameters.secret_key or "")
        content = msgspec.json.encode(given or body)
        headers = {"Content-Type": "application/json", **hops_header(context.hops + 1)}
        if secret:
            headers |= signed(str(secret), content)
        request = HttpRequest(method="POST", url=url, headers=headers, body=content)
        if context.dry_run:
            await self._http.check(request, context.seconds_left)
            return body
        answer = await self._http.send(request, context.seconds_left)
        if answer.status not in _OK:
            raise NodeFailed(f"the webhook was answered with {answer.status}")
        return body


def signed(secret: str, content: bytes) -> dict[str, str]:
    """Headers by which the receiver knows us: hex HMAC-SHA256(secret, timestamp+nonce+body).

    The timestamp is in seconds; a receiver that refuses old ones and nonces it has seen is
    safe from repetition.
    """
    timestamp, nonce = str(int(time.time())), secrets.token_hex(16)
    code = hmac.new(secret.encode(), (timestamp + nonce).encode() + content, hashlib.sha256)
    return {"TIMESTAMP": timestamp, "NONCE": nonce, "SIGNATURE": code.hexdigest()}
