"""`httpIn`: the flow begins when somebody posts to its address."""

import re
from collections.abc import Iterable
from typing import Annotated, Any

from services.workflow.errors import NodeFailed
from services.workflow.nodes.base import Entry, Fault, Parameters, parameter

_TOKEN = re.compile(r"[A-Za-z0-9_-]{32,128}").fullmatch


class HttpInParameters(Parameters):
    """Who may begin the flow."""

    token: Annotated[
        str,
        parameter(
            "Token",
            "The end of the address, `/workflow/hooks/<token>`; whoever knows it may begin the "
            "flow. 32 to 128 letters, digits, - and _, made at random",
            secret=True,
        ),
    ]

    def faults(self) -> Iterable[Fault]:
        """A token that could be guessed, or that no address can end with."""
        if not _TOKEN(self.token):
            yield Fault("token", "must have 32 to 128 letters, digits, - and _, made at random")


class HttpIn(Entry[HttpInParameters]):
    """Begins a flow with a request: `body`, `params` (its query) and `header`."""

    name = "httpIn"
    title = "HTTP In"
    description = "Runs the flow when its address is posted to"
    parameters = HttpInParameters
    listed = False  # existing editors cannot make a token

    def entered(self, parameters: HttpInParameters, given: Any) -> dict[str, Any]:
        """The request; what is missing in a test is empty."""
        if given is None:
            given = {}
        if not isinstance(given, dict):
            raise NodeFailed("the input must be a map with body, params and header")
        return {"body": None, "params": {}, "header": {}} | given
