"""The entry point of the sandbox for all languages."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

from libs.common.scheduling import FairScheduler, LaneFull
from services.workflow.errors import NodeFailed
from services.workflow.runs.model import FlowOwner
from services.workflow.sandbox.limits import MAX_REASON_CHARACTERS, CodeFailed, CodeLimits
from services.workflow.sandbox.python import PythonRunner
from services.workflow.sandbox.scripts import WorkerProcesses

LANGUAGES_BY_NAME = {"js": "js", "javascript": "js", "python": "python"}
"""Languages by their names in designs."""
CEL = "cel"
"""The language of conditions, which code nodes do not support."""
UNSUPPORTED_LANGUAGES = ("groovy", "mvel")
"""Unsupported languages that existing editors offer."""
_COMPILE_EXPRESSION = "new Function(...names, code)"
"""Compiles code to a function without calling it."""
_STOP_STATEMENT = "raise KeyError()"
"""Line before the code to check: Python compiles all lines, then stops at this one."""
_SYNTAX_ERRORS = ("SyntaxError", "NotImplementedError")
"""Start of compile errors; the second one is for unsupported syntax."""
_LINE_PATTERN = re.compile(r"\(line ([0-9]+)\)$")
MAX_WAITING_RUNS = 512
"""Maximum waiting runs of code of a tenant."""


_RunCode = Callable[[str, Mapping[str, Any], float], Awaitable[Any]]
"""Runs code with arguments and a time limit in seconds; returns its value.

Raises `CodeFailed`.
"""


class Sandbox:
    """Runs code of users. Its processes live in an `async with` block."""

    def __init__(self, processes: int, limits: CodeLimits | None = None) -> None:
        """Use `processes` processes for Python, and as many for JavaScript and CEL."""
        self._limits = limits or CodeLimits()
        self._python = PythonRunner(processes, self._limits)
        self._processes = WorkerProcesses(processes, self._limits)
        self._languages: dict[str, _RunCode] = {
            "js": self._processes.run_javascript,
            "python": self._python.run,
            CEL: self._processes.run_cel,
        }
        worker_processes = FairScheduler(
            "code in JavaScript and CEL", processes, items=MAX_WAITING_RUNS
        )
        python_workers = FairScheduler("code in Python", processes, items=MAX_WAITING_RUNS)
        self._workers = {"js": worker_processes, CEL: worker_processes, "python": python_workers}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._python)
        await self._stack.enter_async_context(self._processes)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def run(
        self,
        owner: FlowOwner,
        language: str,
        code: str,
        arguments: Mapping[str, Any],
        seconds: float,
    ) -> Any:
        """Return the value of `code` with variables; raise `NodeFailed`.

        The call first waits for a free process. Then the code may run for `seconds`, at most for
        `CodeLimits.seconds`.
        """
        if language != CEL and language not in LANGUAGES_BY_NAME:
            raise NodeFailed(describe_unsupported_language(language))
        name = LANGUAGES_BY_NAME.get(language, language)
        try:
            async with self._workers[name].slot(owner.tenant, sub=owner.flow_id):
                return await self._languages[name](
                    code, arguments, min(seconds, self._limits.seconds)
                )
        except (CodeFailed, LaneFull) as error:
            raise NodeFailed(f"code: {error}"[:MAX_REASON_CHARACTERS]) from error

    async def find_syntax_error(
        self, owner: FlowOwner, language: str, code: str, names: Sequence[str]
    ) -> str | None:
        """Return the syntax error of code with the variables `names`, or None.

        The code is not executed. A busy sandbox returns None; errors appear when the code runs.
        """
        try:
            if LANGUAGES_BY_NAME[language] == "js":
                inputs = {"names": list(names), "code": code}
                await self.run(owner, "js", _COMPILE_EXPRESSION, inputs, self._limits.seconds)
            else:
                await self.run(
                    owner, "python", f"{_STOP_STATEMENT}\n{code}", {}, self._limits.seconds
                )
        except NodeFailed as error:
            text = str(error).removeprefix("code: ")
            return (
                _LINE_PATTERN.sub(_decrement_line_number, text)
                if text.startswith(_SYNTAX_ERRORS)
                else None
            )
        return None


def _decrement_line_number(line: re.Match[str]) -> str:
    """Return the line number in the code of the user, without our first line."""
    return f"(line {int(line[1]) - 1})"


def describe_unsupported_language(language: str) -> str:
    """Return the error for an unsupported language."""
    if language in UNSUPPORTED_LANGUAGES:
        return f"{language} is not supported; use js or python"
    return f"must be js or python. Got {language}."
