"""Findings of the health checks."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Literal

from libs.common.telemetry.logs import without_logins

_RUNBOOKS = "docs/how-to/runbooks.md#"
Section = Literal[
    "certificates",
    "clock",
    "migrations",
    "open-files",
    "stores",
    "thingwaybackupold",
    "thingwaybackupdiskfilling",
    "thingwaydependencydown",
    "thingwaydiskfilling",
    "thingwayingestlag",
    "thingwaymessagesrefused",
    "thingwayopenfiles",
    "thingwayoutboxstuck",
    "thingwayredisfilling",
    "thingwayservicemissing",
    "thingwaystreamfilling",
    "thingwaystreamrecreated",
    "thingwaystreamreplicasmissing",
    "thingwaystreamstoragefilling",
    "thingwayversionsdiffer",
]
"""Headings in the runbook."""
CHECK_SECONDS = 3.5
"""Time for all checks, which run at the same time. `/readyz` needs up to 2 s."""
MAX_ERROR_CHARACTERS = 300
"""Maximum characters of an error, because MongoDB's driver writes long messages."""


@dataclass(frozen=True)
class Finding:
    """A line of the report."""

    subject: str
    good: bool
    text: str
    todo: str = ""
    """Runbook section to follow; empty if the check passed."""
    minor: bool = False
    """Whether the platform works despite the finding."""


def assess(
    subject: str, problem: str, ok: str, section: Section, *, minor: bool = False
) -> Finding:
    """Return a fault if there is a `problem`, else a success with the text `ok`.

    `section` of the runbook explains the problem.
    """
    if problem:
        return Finding(subject, good=False, text=problem, todo=_RUNBOOKS + section, minor=minor)
    return Finding(subject, good=True, text=ok)


def check_failed(
    subject: str, error: Exception, section: Section, *, minor: bool = False
) -> Finding:
    """Return the finding of a check that raised an error."""
    text = without_logins(f"{type(error).__name__}: {error}")
    if isinstance(error, TimeoutError):
        text = f"no answer within {CHECK_SECONDS:g} s"
    return assess(subject, text[:MAX_ERROR_CHARACTERS], "", section, minor=minor)


async def run_check(
    subject: str,
    section: Section,
    check: Coroutine[Any, Any, list[Finding]],
    until: float,
    *errors: type[Exception],
    minor: bool = False,
) -> list[Finding]:
    """Return the findings of a check; or of its failure by `errors` or at `until`.

    `until` is a time of the event loop's clock. The check may close its connections later, because
    a server that does not answer must not delay the report.
    """
    task = asyncio.ensure_future(check)
    await asyncio.wait([task], timeout=until - asyncio.get_running_loop().time())
    if task.cancel():
        return [check_failed(subject, TimeoutError(), section, minor=minor)]
    try:
        return task.result()
    except errors as error:
        return [check_failed(subject, error, section, minor=minor)]
