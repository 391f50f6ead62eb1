"""Asks integrations, and says clearly when one is away, late or out of its mind."""

from typing import Any, TypeVar

from libs.common.bus import NobodyAnswers, RpcClient
from libs.common.contracts.integrations import Operation, operation_subject
from libs.common.errors import ThingwayError, Unavailable, UpstreamFailed, UpstreamTimeout

A = TypeVar("A")


class IntegrationClient:
    """Asks integrations over the bus."""

    def __init__(self, client: RpcClient) -> None:
        self._client = client

    async def ask(
        self, integration: str, operation: Operation, request: Any, answer: type[A], seconds: float
    ) -> A:
        """Ask, and wait up to `seconds`; raises what the integration refuses with.

        Besides that `Unavailable` when it is not there, `UpstreamTimeout` when it is late and
        `UpstreamFailed` when it answers nonsense.
        """
        subject = operation_subject(integration, operation)
        try:
            return await self._client.call(subject, request, answer, seconds)
        except NobodyAnswers as error:
            text = f"integration {integration} is not there at the moment"
            raise Unavailable(text) from error
        except Unavailable as error:
            if not isinstance(error.__cause__, TimeoutError):
                raise
            text = f"integration {integration} did not answer within {seconds:g} s"
            raise UpstreamTimeout(text) from error
        except ThingwayError as error:
            if error.status != ThingwayError.status:
                raise
            text = f"integration {integration} failed: {error.message}"
            raise UpstreamFailed(text) from error
