"""What a check finds."""

from dataclasses import dataclass

_RUNBOOKS = "docs/runbooks.md#"
CHECK_SECONDS = 8.0
"""How long one check may take."""


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


def found(subject: str, wrong: str, right: str, section: str, *, minor: bool = False) -> Finding:
    """A finding: `wrong` says what is wrong, and is empty when nothing is.

    `section` is the heading of the runbook that helps.
    """
    if wrong:
        return Finding(subject, good=False, text=wrong, todo=_RUNBOOKS + section, minor=minor)
    return Finding(subject, good=True, text=right)


def failed(subject: str, error: Exception, section: str) -> Finding:
    """A check that did not come to its end."""
    return found(subject, f"{type(error).__name__}: {error}"[:500], "", section)
