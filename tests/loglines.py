"""What the code of the platform logs during a test."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from libs.common.telemetry.logs import JsonFormatter

ROOTS = ("libs", "services")


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter("test"))
        self.found: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(msgspec.json.decode(self.format(record)))


@contextmanager
def logged_lines() -> Iterator[list[dict[str, Any]]]:
    """Give the lines from INFO on, as JSON objects, in a list that grows."""
    handler = _Lines()
    loggers = [logging.getLogger(root) for root in ROOTS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield handler.found
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
        logger.removeHandler(handler)
