"""Errors and exit codes of the `thingway` command."""

import enum


class Exit(enum.IntEnum):
    """Exit codes of the `thingway` command."""

    OK = 0
    FAILED = 1
    """The command failed: rejected, or the platform is not running."""
    CANNOT_START = 2
    """This machine or the options prevent a start; nothing was changed."""


class LauncherError(Exception):
    """A failure with a message of one line and an exit code."""

    def __init__(self, message: str, exit_code: Exit = Exit.CANNOT_START) -> None:
        super().__init__(" ".join(message.split()))
        self.exit_code = exit_code


class CommandError(LauncherError):
    """A failure of a command on a running platform: exit code 1."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Exit.FAILED)


class InputRejected(CommandError):
    """A rejected input, with one or more faults."""

    def __init__(self, message: str, faults: list[str]) -> None:
        super().__init__(message)
        self.faults = faults or [message]
