"""`webhook`: posts its input, optionally signed, to another system."""

from typing import Annotated, Any

import msgspec

from libs.common.bus.hops import hops_header
from services.workflow.nodes.base import NodeContext, PaletteGroup, Step
from services.workflow.nodes.parameters import Parameters, parameter_meta
from services.workflow.outgoing.http import OutgoingHttp, build_webhook_request

LONGEST_URL, LONGEST_SECRET = 4096, 1000
MAX_ARGUMENTS = 100


class WebhookParameters(Parameters):
    """The request to post."""

    webhook_url: Annotated[
        str, parameter_meta("URL", "Address to post to", min_length=1, max_length=LONGEST_URL)
    ]
    input_arguments: Annotated[
        dict[str, Any],
        parameter_meta(
            "Content",
            "Content as JSON. Default: the input",
            ui="paramAssignInput",
            max_length=MAX_ARGUMENTS,
        ),
    ] = msgspec.field(default_factory=dict)
    secret_key: (
        Annotated[
            str,
            parameter_meta(
                "Secret",
                "Signs the request with the headers TIMESTAMP, NONCE and SIGNATURE",
                secret=True,
                max_length=LONGEST_SECRET,
            ),
        ]
        | None
    ) = None


class Webhook(Step[WebhookParameters]):
    """Posts JSON. The output is the input."""

    name = "webhook"
    title = "Webhook"
    description = "Posts data to another system"
    group = PaletteGroup.EXTERNAL

    def __init__(self, http: OutgoingHttp) -> None:
        self._http = http

    async def run(self, context: NodeContext, parameters: WebhookParameters, body: Any) -> Any:
        """Post; a status other than 2xx is a failure. A dry run only checks the host."""
        url = str(context.resolve_references(parameters.webhook_url))
        content = context.resolve_references(parameters.input_arguments) or body
        secret = str(context.resolve_references(parameters.secret_key or ""))
        request = build_webhook_request(url, content, secret, hops_header(context.hops + 1))
        if context.dry_run:
            await self._http.check_request(request, context.seconds_left)
        else:
            await self._http.send_webhook(request, context.seconds_left)
        return body
