"""`webhook`: posts what comes in, signed, to an address of another system."""

from typing import Annotated, Any

import msgspec

from libs.common.bus.hops import hops_header
from services.workflow.nodes.base import Group, NodeContext, Step
from services.workflow.nodes.parameters import Parameters, parameter
from services.workflow.outgoing.http import OutgoingHttp, webhook_request

LONGEST_URL, LONGEST_SECRET = 4096, 1000
MOST_ARGUMENTS = 100


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

    def __init__(self, http: OutgoingHttp) -> None:
        self._http = http

    async def run(self, context: NodeContext, parameters: WebhookParameters, body: Any) -> Any:
        """Post; any answer but 2xx is a failure, a redirect too. A dry run does not post."""
        url = str(context.resolve(parameters.webhook_url))
        content = context.resolve(parameters.input_arguments) or body
        secret = str(context.resolve(parameters.secret_key or ""))
        request = webhook_request(url, content, secret, hops_header(context.hops + 1))
        if context.dry_run:
            await self._http.check(request, context.seconds_left)
        else:
            await self._http.post(request, context.seconds_left)
        return body
