"""What a check finds."""

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
    "thingwaydependencydown",
    "thingwaydiskfilling",
    "thingwayingestlag",
    "thingwaymessagesrefused",
    "thingwayopenfiles",
    "thingwayoutboxstuck",
    "thingwayservicemissing",
    "thingwaystreamfilling",
    "thingwaystreamreplicasmissing",
    "thingwayversionsdiffer",
]
"""Headings of the runbook."""
CHECK_SECONDS = 8.0
"""How long one check may take."""
MOST_TEXT = 300
"""Characters of an error; MongoDB's driver tells much."""


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    subject: str
    good: bool
    text: str
    todo: str = ""
    """Where it stands what to do, when there is something to do."""
    minor: bool = False
    """Whether the platform works all the same."""


def found(
    subject: str, wrong: str, right: str, section: Section, *, minor: bool = False
) -> Finding:
    """A finding: `wrong` says what is wrong, and is empty when nothing is.

    `section` of the runbook helps.
    """
    if wrong:
        return Finding(subject, good=False, text=wrong, todo=_RUNBOOKS + section, minor=minor)
    return Finding(subject, good=True, text=right)


def failed(subject: str, error: Exception, section: Section) -> Finding:
    """A check that did not come to its end."""
    text = without_logins(f"{type(error).__name__}: {error}")
    return found(subject, text[:MOST_TEXT], "", section)
