"""What can go wrong."""

from typing import Any


class ThingwayError(Exception):
    """Base of all errors of this package."""


class Refused(ThingwayError):
    """The platform refused a request.

    `status` is the HTTP status, `code` the platform's own (`parameter_validation_failed`,
    `device_not_found`, …), `request_id` names the request in the platform's logs.
    """

    def __init__(self, status: int, code: str, message: str, request_id: str) -> None:
        super().__init__(f"{status} {code}: {message} (request {request_id})")
        self.status = status
        self.code = code
        self.message = message
        self.request_id = request_id


class CommandFailed(ThingwayError):
    """A device refused a command, or did not answer in its time; `task` says why."""

    def __init__(self, task: Any) -> None:
        super().__init__(f"task {task.task_id} is {task.status.value}: {task.err_msg or ''}")
        self.task = task


class CommandPending(ThingwayError):
    """A command is still on its way when the time to wait for it is over; it goes on."""

    def __init__(self, task: Any) -> None:
        super().__init__(f"task {task.task_id} is still {task.status.value}")
        self.task = task
