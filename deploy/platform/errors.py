"""What the launcher and its commands tell the person at the terminal."""

import enum


class Exit(enum.IntEnum):
    """Exit codes of the `thingway` command."""

    OK = 0
    FAILED = 1
    """The command could not do what was asked (refused, not running)."""
    CANNOT_START = 2
    """This machine or these options do not allow a start; nothing was changed."""


class LauncherError(Exception):
    """A failure to be told in one line, with the exit code of the command."""

    def __init__(self, message: str, exit_code: Exit = Exit.CANNOT_START) -> None:
        super().__init__(" ".join(message.split()))
        self.exit_code = exit_code


class CommandError(LauncherError):
    """A command of a running platform failed: exit code 1."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Exit.FAILED)


class Refused(CommandError):
    """What was given is refused, for one reason or several."""

    def __init__(self, message: str, faults: list[str]) -> None:
        super().__init__(message)
        self.faults = faults or [message]
