"""Errors of the client."""

from typing import Any


class ThingwayError(Exception):
    """Base of all errors of this package."""


class Refused(ThingwayError):
    """The platform rejected a request.

    `status` is the HTTP status, `code` the error code of the platform
    (`parameter_validation_failed`, `device_not_found`, …), `request_id` the id in its logs.
    """

    def __init__(self, status: int, code: str, message: str, request_id: str) -> None:
        super().__init__(f"{status} {code}: {message} (request {request_id})")
        self.status = status
        self.code = code
        self.message = message
        self.request_id = request_id


class CommandFailed(ThingwayError):
    """A device rejected a command, or did not answer in time; `task` has the reason."""

    def __init__(self, task: Any) -> None:
        super().__init__(f"task {task.task_id} is {task.status.value}: {task.err_msg or ''}")
        self.task = task


class CommandPending(ThingwayError):
    """The command has no reply within the waiting time. It stays active."""

    def __init__(self, task: Any) -> None:
        super().__init__(f"task {task.task_id} is still {task.status.value}")
        self.task = task
