"""Schemathesis against the documentation, the gateway's and each service's: it says the truth."""

from collections.abc import Callable

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from tests.contract.client import Api
from tests.contract.doors import GATEWAY, Door, Target, make_target
from tests.e2e.platform import Platform

pytestmark = pytest.mark.xdist_group("contract")

FEW, MANY = 2, 150
OPERATIONS = {GATEWAY: 40, "auth": 20, "device": 20, "management": 5, "workflow": 14}
"""Who is probed, and how many operations it has at the least."""
SERVICES = sorted(OPERATIONS.keys() - {GATEWAY})
"""Whose operations the gateway has; journeys go over it."""
LINKS_FOLLOWED = 10
"""At the least, so that journeys are not single calls."""


@pytest.fixture(scope="session")
async def target(platform: Platform, api: Api) -> Target:
    """Whose data may be ruined."""
    return await make_target(platform)


def _probe(
    operation: schemathesis.schemas.APIOperation,
    call: Callable[[schemathesis.Case], None],
    examples: int,
) -> None:
    """Call one operation with generated requests; the smallest failing one is raised."""

    @settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def probe(case: schemathesis.Case) -> None:
        call(case)

    probe()


def _probe_all(
    door: Door,
    call: Callable[[schemathesis.Case], None],
    examples: int,
    subtests: pytest.Subtests,
) -> None:
    count = 0
    for found in door.schema.get_all_operations():
        operation = found.ok()
        with subtests.test(operation.label):
            _probe(operation, call, examples)
        count += 1
    assert count >= OPERATIONS[door.name]


@pytest.mark.parametrize("name", SERVICES)
def test_every_operation_is_as_documented(
    name: str, platform: Platform, target: Target, subtests: pytest.Subtests
) -> None:
    """No 5xx, and no status, content type or body beyond the document.

    No operation answers without the gateway's signature, or for the wrong kind of caller.
    """
    door, refused = Door(name, platform, target), set[str]()

    def call(case: schemathesis.Case) -> None:
        if case.operation.label not in refused:
            door.call_as_stranger(case)
            refused.add(case.operation.label)
        door.call(case)

    _probe_all(door, call, FEW, subtests)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_as_documented_at_length(
    name: str, platform: Platform, target: Target, subtests: pytest.Subtests
) -> None:
    """The same with ten times the examples."""
    door = Door(name, platform, target)
    _probe_all(door, door.call, MANY, subtests)


@pytest.mark.parametrize("rounds", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_calls_with_ids_from_other_answers_are_as_documented(
    rounds: int, platform: Platform, target: Target
) -> None:
    """Journeys over the gateway use ids from earlier answers in later calls."""
    faults, followed = Door(GATEWAY, platform, target).travel(rounds)
    assert not faults
    assert len(followed) >= LINKS_FOLLOWED, followed
