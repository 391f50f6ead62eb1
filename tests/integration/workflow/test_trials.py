"""Designs are checked and tested before they run."""

import json

import pytest

from libs.common.identity.functions import Function
from tests.integration.workflow.conftest import AUTHOR
from tests.integration.workflow.designs import (
    HOT,
    alarm,
    design,
    edge,
    node,
    trigger,
)

FLOWS = "/workflow/flows"
SELECT = "entitySelector"


async def validate(user, text):
    """The answer of a check."""
    answer = await user.ask("POST", f"{FLOWS}/design/validate", {"design_data": text})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_good_design_is_valid(workflow):
    """`data` is true, and there are no reasons."""
    verdict = await validate(workflow.admin(), alarm())

    assert verdict["data"] is True
    assert "detail" not in verdict


async def test_a_bad_design_is_refused_with_its_reason(workflow):
    """`data` is false, and `detail` says where it is wrong and what to do."""
    verdict = await validate(workflow.admin(), design([trigger()], edge("start", "gone")))

    assert verdict["data"] is False
    assert verdict["status"] == "Success"
    assert verdict["detail"] == [
        {"field": "edges[0].target", "reason": "there is no node gone; remove the edge"}
    ]


async def test_five_megabytes_of_design_are_refused_with_the_reason(workflow):
    """And everything else goes on."""
    text = design([trigger(), node("a", SELECT, code="x" * 5_000_000)])
    verdict = await validate(workflow.admin(), text)
    assert verdict["data"] is False
    assert (await validate(workflow.admin(), alarm()))["data"] is True


@pytest.mark.parametrize("path", ["/test", "/design/test"])
async def test_a_test_shows_what_each_node_did_and_touches_nothing(workflow, path):
    """Both routes run the design with the input; no entity is written, nothing is logged."""
    workflow.device.has(HOT)
    user = workflow.admin()
    body = {"design_data": alarm(), "input": {"temperature": 42.5}}
    tested = await user.done("POST", f"{FLOWS}{path}", body)

    assert tested["status"] == "SUCCESS"
    assert "flow_id" not in tested
    entry, fork, assigned = tested["trace_infos"]
    assert (
        entry["node_id"],
        entry["node_label"],
        entry["output"],
    ) == ("start", "trigger", '{"temperature":42.5}')
    assert "input" not in entry
    assert entry["output"] == fork["input"] == fork["output"]
    assert (json.dumps({HOT: 42.5}, separators=(",", ":")), "SET") == (
        assigned["output"],
        assigned["node_name"],
    )
    assert f"{assigned['message_id']}-fork" == assigned["parent_trace_id"]
    assert workflow.device.updates == []


async def test_a_test_that_is_asked_to_writes(workflow):
    """`dry_run: false` does what the flow would do."""
    workflow.device.has(HOT)
    body = {"design_data": alarm(), "input": {"temperature": 42}, "dry_run": False}
    await workflow.admin().done("POST", f"{FLOWS}/design/test", body)

    assert [one.exchange for one in workflow.device.updates] == [{HOT: 42.0}]


async def test_inputs_may_come_by_the_names_that_editors_use(workflow):
    """An editor's sample input is keyed by the names of parameters."""
    body = {"design_data": alarm(), "input": {"The temperature": "12"}}
    tested = await workflow.admin().done("POST", f"{FLOWS}/test", body)

    assert tested["trace_infos"][0]["output"] == '{"temperature":12.0}'
    assert len(tested["trace_infos"]) == 2


async def test_a_reference_to_nothing_is_an_error_of_that_node(workflow):
    """The trace names what is missing."""
    workflow.device.has(HOT)
    tested = await workflow.admin().done(
        "POST", f"{FLOWS}/test", {"design_data": alarm(), "input": {}}
    )

    assert tested["status"] == "ERROR"
    failed = tested["trace_infos"][-1]
    assert (failed["node_id"], failed["status"]) == ("fork", "ERROR")
    assert "'temperature'" in failed["error_message"]


async def test_a_test_of_what_cannot_run_names_the_field(workflow):
    """A design that is wrong, and an input that does not fit, are the client's mistakes."""
    user = workflow.admin()
    await user.refused(400, "POST", f"{FLOWS}/test", {"design_data": "{}"}, field="design_data")
    body = {"design_data": alarm(), "input": {"temperature": "hot"}}
    await user.refused(400, "POST", f"{FLOWS}/test", body, field="input")


async def test_a_node_is_tested_alone(workflow):
    """Its references, whichever node they name, are to the input."""
    config = node("set", "entityAssigner", exchangePayload={HOT: "#{properties.other['t']}"})
    workflow.device.has(HOT)
    body = {"node_config": json.dumps(config), "input": {"t": 5}}
    traced = await workflow.admin().done("POST", f"{FLOWS}/node/test", body)

    assert ("set", "SUCCESS", '{"t":5}', json.dumps({HOT: 5}, separators=(",", ":"))) == tuple(
        traced[name] for name in ("node_id", "status", "input", "output")
    )
    assert workflow.device.updates == []


async def test_a_node_that_cannot_be_tested_is_refused(workflow):
    """An entry, an unknown component, and what is no node."""
    user = workflow.admin()
    for config in (json.dumps(trigger()), json.dumps(node("a", "teleport")), "{}", "x"):
        body = {"node_config": config, "input": {}}
        await user.refused(400, "POST", f"{FLOWS}/node/test", body, field="node_config")


async def test_a_user_tests_only_what_the_user_sees(workflow):
    """A test reads values, so it needs the same grants as a flow that runs."""
    workflow.device.has(HOT, 7)
    user = workflow.user(7, *AUTHOR)
    config = node("read", SELECT, entities=[HOT])
    body = {"node_config": json.dumps(config), "input": {}}

    await user.refused(400, "POST", f"{FLOWS}/node/test", body, field="node_config")
    await user.refused(
        400,
        "POST",
        f"{FLOWS}/test",
        {"design_data": design([trigger(), config], edge("start", "read"))},
        field="design_data",
    )
    viewer = workflow.user(8, Function.WORKFLOW_VIEW)
    await viewer.refused(403, "POST", f"{FLOWS}/node/test", body)


async def test_the_catalogue_has_what_an_editor_needs(workflow):
    """Groups are arrays, `data` is JSON with component, properties and outputProperties."""
    user = workflow.user(7, Function.WORKFLOW_VIEW)
    groups = await user.done("GET", "/workflow/components")

    assert {"entry", "control", "action", "external"} == set(groups)
    found = {one["name"]: json.loads(one["data"]) for rows in groups.values() for one in rows}
    fork = found["choice"]["properties"]["choice"]
    assert (
        fork["uiComponent"],
        fork["required"],
        fork["type"],
    ) == ("conditionsInput", True, "object")
    assert found["serviceInvocation"]["outputProperties"]["payload"]["editable"] is True
    assert not found["trigger"]["component"]["testable"]
    assert found["choice"]["component"]["testable"]
    one = await user.done("GET", "/workflow/components/choice")
    assert found["choice"] == json.loads(one)
    await user.refused(404, "GET", "/workflow/components/teleport", field="name")
    languages = await user.done("GET", "/workflow/components/languages")
    assert {"code", "expression"} == set(languages)
