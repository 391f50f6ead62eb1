"""Findings of the health checks."""

from dataclasses import dataclass
from typing import Literal

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
CHECK_SECONDS = 3.0
"""Timeout of a check; all checks run at the same time. `/readyz` needs up to 2 s."""
MAX_ERROR_CHARACTERS = 300
"""MongoDB's driver writes long error messages."""


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
    """Return a finding: bad if `problem` is not empty, else good with the text `ok`.

    `section` of the runbook explains the problem.
    """
    if problem:
        return Finding(subject, good=False, text=problem, todo=_RUNBOOKS + section, minor=minor)
    return Finding(subject, good=True, text=ok)


def check_failed(subject: str, error: Exception, section: Section) -> Finding:
    """Return the finding of a check that raised an error."""
    text = without_logins(f"{type(error).__name__}: {error}")
    if isinstance(error, TimeoutError):
        text = f"no answer within {CHECK_SECONDS:.0f} s"
    return assess(subject, text[:MAX_ERROR_CHARACTERS], "", section)
