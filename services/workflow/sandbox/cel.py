"""CEL, for conditions that may take long: in worker processes of ours."""

import json
from collections.abc import Mapping
from typing import Any

from services.workflow.sandbox.limits import CodeFailed, Limits
from services.workflow.sandbox.processes import Processes
from services.workflow.sandbox.worker import CONDITION


class Cel:
    """Evaluates conditions."""

    def __init__(self, processes: Processes, limits: Limits) -> None:
        self._processes = processes
        self._limits = limits

    async def run(self, code: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        """The value of `code`; raise `CodeFailed`."""
        request = json.dumps([code, arguments]).encode()
        if len(request) > self._limits.given:
            raise CodeFailed(f"gets more than {self._limits.given} bytes of values and text")
        answer = await self._processes.ask(CONDITION + request, seconds)
        if answer[:1] != b"R":
            raise CodeFailed(answer[1:].decode(errors="replace"))
        return json.loads(answer[1:])
