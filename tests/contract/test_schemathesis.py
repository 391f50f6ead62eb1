"""Schemathesis against the documentation that the gateway gives: it says the truth."""

from dataclasses import dataclass
from typing import Any

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

from tests.contract.client import Api, new_sn
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


@dataclass
class Target:
    """An application and a device whose data may be ruined."""

    token: str
    device_id: int
    sn: str
    key: str

    def aim(self, case: schemathesis.Case) -> dict[str, Any]:
        """Point a request at what exists, where the document allows anything; log it in."""
        given = case.path_parameters
        ends = case.method == "DELETE" or "/remove/" in case.path
        if isinstance(given.get("device_id"), int) and not ends:
            given["device_id"] = self.device_id
        if case.path.startswith("/ingest/"):
            given["sn"] = self.sn
            return {"auth": (self.sn, self.key)}
        if case.path.startswith("/oauth/"):
            return {}
        return {"headers": {"Authorization": f"Bearer {self.token}"}}


@pytest.fixture(scope="session")
async def target(platform: Platform, api: Api) -> Target:
    """An application of the fuzzer's own with one device."""
    made = platform.command("app", "create", "fuzzer")
    client = await Api(platform.base_url, made["clientId"], made["clientSecret"], 0).log_in()
    sn = new_sn()
    identity = await client.add(sn)
    key = (await client.done("POST", f"/devices/{identity}/credentials"))["key"]
    await client.close()
    return Target(client.token, identity, sn, key)


def _probe(operation: schemathesis.schemas.APIOperation, target: Target, examples: int) -> None:
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
        case.call_and_validate(checks=CHECKS, **target.aim(case))

    probe()


def _probe_all(
    schema: schemathesis.BaseSchema,
    target: Target,
    examples: int,
    subtests: pytest.Subtests,
) -> None:
    count = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        with subtests.test(operation.label):
            _probe(operation, target, examples)
        count += 1
    assert count > 20


def test_every_operation_is_as_documented(
    documentation: schemathesis.BaseSchema, target: Target, subtests: pytest.Subtests
) -> None:
    """No 5xx, no status, content type or body that the document does not tell."""
    _probe_all(documentation, target, FEW, subtests)


@pytest.mark.slow
def test_every_operation_is_as_documented_at_length(
    documentation: schemathesis.BaseSchema, target: Target, subtests: pytest.Subtests
) -> None:
    """The same with ten times the examples."""
    _probe_all(documentation, target, MANY, subtests)
