"""Findings of the health checks."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Literal

from libs.common.telemetry.logs import hide_logins

_RUNBOOKS = "docs/how-to/runbooks.md#"
RunbookSection = Literal[
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
"""Anchors of headings in the runbook."""
MAX_CHECKUP_SECONDS = 3.5
"""Maximum seconds for all checks, which run concurrently. `/readyz` needs up to 2 s."""
MAX_ERROR_CHARACTERS = 300
"""Maximum characters of an error in the report, because MongoDB's driver writes long messages."""


@dataclass(frozen=True)
class Finding:
    """Result of a check: a line of the report."""

    subject: str
    good: bool
    text: str
    todo: str = ""
    """Runbook section to follow; empty if the check passed."""
    minor: bool = False
    """Whether the platform works despite the finding."""


def build_finding(
    subject: str, problem: str, ok: str, section: RunbookSection, *, minor: bool = False
) -> Finding:
    """Return a bad finding if `problem` is not empty, else a good one with `ok`.

    A bad finding refers to `section` of the runbook.
    """
    if problem:
        return Finding(subject, good=False, text=problem, todo=_RUNBOOKS + section, minor=minor)
    return Finding(subject, good=True, text=ok)


def build_error_finding(
    subject: str, error: Exception, section: RunbookSection, *, minor: bool = False
) -> Finding:
    """Return the bad finding of a check that raised `error`."""
    text = hide_logins(f"{type(error).__name__}: {error}")
    if isinstance(error, TimeoutError):
        text = f"no answer within {MAX_CHECKUP_SECONDS:g} s"
    return build_finding(subject, text[:MAX_ERROR_CHARACTERS], "", section, minor=minor)


async def run_check(
    subject: str,
    section: RunbookSection,
    check: Coroutine[Any, Any, list[Finding]],
    deadline: float,
    *errors: type[Exception],
    minor: bool = False,
) -> list[Finding]:
    """Return the findings of a check; a bad one after one of `errors` or the deadline.

    `deadline` is a time on the event loop's clock. The check may close its connections later,
    because a server that does not answer must not delay the report.
    """
    task = asyncio.ensure_future(check)
    await asyncio.wait([task], timeout=deadline - asyncio.get_running_loop().time())
    if task.cancel():
        return [build_error_finding(subject, TimeoutError(), section, minor=minor)]
    try:
        return task.result()
    except errors as error:
        return [build_error_finding(subject, error, section, minor=minor)]
