"""Fixtures of every test of `device`."""

from collections.abc import Callable

import pytest


@pytest.fixture
def database(emptied: Callable[[str], str]) -> str:
    """Name of an empty database with the service's indexes."""
    return emptied("device")


@pytest.fixture(scope="module")
def module_database(emptied: Callable[[str], str]) -> str:
    """The same for what a module's tests share; another one than `database`."""
    return emptied("device of a module")
