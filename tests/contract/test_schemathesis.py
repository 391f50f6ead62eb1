"""Schemathesis against the documentation that the gateway gives: it says the truth."""

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.contract.client import Api
from tests.e2e.platform import Platform

pytestmark = pytest.mark.xdist_group("contract")

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
FEW, MANY = 15, 150


@pytest.fixture(scope="session")
def documentation(platform: Platform):
    """The merged document."""
    document = httpx.get(f"{platform.base_url}/openapi.json").raise_for_status().json()
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=platform.base_url)
    return schema


@pytest.fixture(scope="session")
async def fuzzer(platform: Platform) -> dict[str, str]:
    """The header of an application whose data may be ruined."""
    made = platform.command("app", "create", "fuzzer")
    client = await Api(platform.base_url, made["clientId"], made["clientSecret"], 0).log_in()
    await client.close()
    return {"Authorization": f"Bearer {client.token}"}


def _probe(
    operation: schemathesis.schemas.APIOperation, headers: dict[str, str], examples: int
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
        case.call_and_validate(headers=headers, checks=CHECKS)

    probe()


def _probe_all(
    schema: schemathesis.BaseSchema,
    headers: dict[str, str],
    examples: int,
    subtests: pytest.Subtests,
) -> None:
    count = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        open_path = operation.path.startswith(("/oauth/", "/ingest/"))
        with subtests.test(operation.label):
            _probe(operation, {} if open_path else headers, examples)
        count += 1
    assert count > 20


def test_every_operation_is_as_documented(
    documentation: schemathesis.BaseSchema, fuzzer: dict[str, str], subtests: pytest.Subtests
) -> None:
    """No 5xx, no status, content type or body that the document does not tell."""
    _probe_all(documentation, fuzzer, FEW, subtests)


@pytest.mark.slow
def test_every_operation_is_as_documented_at_length(
    documentation: schemathesis.BaseSchema, fuzzer: dict[str, str], subtests: pytest.Subtests
) -> None:
    """The same with ten times the examples."""
    _probe_all(documentation, fuzzer, MANY, subtests)
