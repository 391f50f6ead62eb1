"""The door to the sandbox: one runner for all languages."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Self

from libs.common.scheduling import FairScheduler, LaneFull
from services.workflow.errors import NodeFailed
from services.workflow.runs.model import Owner
from services.workflow.sandbox.limits import LONGEST_REASON, CodeFailed, Limits
from services.workflow.sandbox.python import Python
from services.workflow.sandbox.scripts import Processes

LANGUAGES = {"js": "js", "javascript": "js", "python": "python"}
"""Names of languages that designs have, and ours."""
CEL = "cel"
"""The language of conditions; code nodes have it not."""
REFUSED = ("groovy", "mvel")
"""Languages that existing editors offer."""
_COMPILE = "new Function(...names, code)"
"""Makes a function of code, and calls it not."""
_STOP = "raise KeyError()"
"""A first line for Python, which is read whole before it begins."""
_SYNTAX = ("SyntaxError", "NotImplementedError")
"""What errors of reading begin with; the second one is of what this Python has not."""
_LINE = re.compile(r"\(line ([0-9]+)\)$")
MOST_WAITING = 512
"""Pieces of code of one tenant that wait for a process."""


_Run = Callable[[str, Mapping[str, Any], float], Awaitable[Any]]
"""Gives the value of code with arguments within so many seconds; raises `CodeFailed`."""


class Sandbox:
    """Runs people's code; `async with` holds its processes."""

    def __init__(self, processes: int, limits: Limits | None = None) -> None:
        """`processes` for Python, and so many for JavaScript and CEL."""
        self._limits = limits or Limits()
        self._python = Python(processes, self._limits)
        self._processes = Processes(processes, self._limits)
        self._languages: dict[str, _Run] = {
            "js": self._processes.javascript,
            "python": self._python.run,
            CEL: self._processes.cel,
        }
        ours = FairScheduler("code in JavaScript and CEL", processes, items=MOST_WAITING)
        montys = FairScheduler("code in Python", processes, items=MOST_WAITING)
        self._workers = {"js": ours, CEL: ours, "python": montys}
        self._held = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._held.enter_async_context(self._python)
        await self._held.enter_async_context(self._processes)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._held.aclose()

    async def run(
        self, owner: Owner, language: str, code: str, arguments: Mapping[str, Any], seconds: float
    ) -> Any:
        """The value of `code` with `arguments` for variables; raise `NodeFailed`.

        It waits for its turn at a process. Then it gets `seconds`, and never more than the limit of
        the sandbox.
        """
        if language != CEL and language not in LANGUAGES:
            raise NodeFailed(unknown_language(language))
        name = LANGUAGES.get(language, language)
        try:
            async with self._workers[name].slot(owner.tenant, sub=owner.flow_id):
                return await self._languages[name](
                    code, arguments, min(seconds, self._limits.seconds)
                )
        except (CodeFailed, LaneFull) as error:
            raise NodeFailed(f"code: {error}"[:LONGEST_REASON]) from error

    async def fault(
        self, owner: Owner, language: str, code: str, names: Sequence[str]
    ) -> str | None:
        """What is wrong with the syntax of code whose variables have `names`; None for nothing.

        None of it runs. A sandbox that has no time for it says nothing: the code's own run will.
        """
        try:
            if LANGUAGES[language] == "js":
                given = {"names": list(names), "code": code}
                await self.run(owner, "js", _COMPILE, given, self._limits.seconds)
            else:
                await self.run(owner, "python", f"{_STOP}\n{code}", {}, self._limits.seconds)
        except NodeFailed as error:
            text = str(error).removeprefix("code: ")
            return _LINE.sub(_one_less, text) if text.startswith(_SYNTAX) else None
        return None


def _one_less(line: re.Match[str]) -> str:
    """The line of a text that `_STOP` does not stand before."""
    return f"(line {int(line[1]) - 1})"


def unknown_language(language: str) -> str:
    """Why code of a language is not run."""
    if language in REFUSED:
        return f"{language} is not run here; write it in js or python"
    return f"{language} is no language that is run here; there are js and python"
