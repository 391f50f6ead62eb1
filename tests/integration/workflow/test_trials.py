"""Designs are checked and tested before they run."""

import json

import pytest

from libs.common.contracts.access import ResourceType
from libs.common.identity.functions import Function
from tests.integration.workflow.conftest import AUTHOR
from tests.integration.workflow.designs import (
    HOT,
    alarm,
    choice,
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
        {"field": "edges[0].target", "reason": "node gone does not exist; remove the edge"}
    ]


async def test_code_that_cannot_be_read_is_refused(workflow):
    """In code nodes and conditions, when it is checked and when it is to run; a draft is kept."""
    user = workflow.admin()
    odd = {"language": "js", "expression": "const x = ;"}
    branch = {"id": "y", "expressionType": "python", "conditions": [{"expressionValue": "body ="}]}
    text = design(
        [trigger(), node("code", "code", expression=odd), choice(branch)],
        edge("start", "code"),
        edge("start", "fork"),
    )
    found = (await validate(user, text))["detail"]
    assert [(entry["node_id"], entry["field"]) for entry in found] == [
        ("code", "parameters.expression.expression"),
        ("fork", "parameters.choice.when[0].conditions[0].expressionValue"),
    ]
    assert all(entry["reason"].startswith("SyntaxError") for entry in found)
    body = {"name": "F", "design_data": text}
    refusal = {**body, "enabled": True}
    await user.refused(400, "POST", f"{FLOWS}/design", refusal, field="design_data")
    await user.done("POST", f"{FLOWS}/design", body)


async def test_a_design_of_five_megabytes_is_rejected_with_the_reason(workflow):
    """Other requests continue."""
    text = design([trigger(), node("a", SELECT, code="x" * 5_000_000)])
    verdict = await validate(workflow.admin(), text)
    assert verdict["data"] is False
    assert (await validate(workflow.admin(), alarm()))["data"] is True


@pytest.mark.parametrize("path", ["/test", "/design/test"])
async def test_a_test_returns_the_trace_and_changes_nothing(workflow, path):
    """Both routes run the design with the input; a dry run writes no entity, nothing is logged."""
    workflow.device.has(HOT)
    user = workflow.admin()
    body = {"design_data": alarm(), "input": {"temperature": 42.5}, "dry_run": True}
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


@pytest.mark.parametrize("more", [{}, {"dry_run": False}])
async def test_a_test_is_for_real(workflow, more):
    """Its nodes act, because existing editors do not send `dry_run`."""
    workflow.device.has(HOT)
    body = {"design_data": alarm(), "input": {"temperature": 42}, **more}
    await workflow.admin().done("POST", f"{FLOWS}/design/test", body)

    assert [update.exchange for update in workflow.device.updates] == [{HOT: 42.0}]


@pytest.mark.parametrize(
    "step",
    [
        node("set", "entityAssigner", exchangePayload={HOT: 42}),
        node("call", "serviceInvocation", serviceInvocationSetting={"serviceEntity": HOT}),
    ],
)
async def test_users_without_commands_test_command_nodes_dry_only(workflow, step):
    """Neither a test nor a new flow sets a value for a user who may only add flows."""
    workflow.device.has(HOT)
    workflow.grants.give(7, ResourceType.INTEGRATION, "direct")
    user = workflow.user(7, Function.WORKFLOW_ADD)
    text = design([trigger(), step], edge("start", step["id"]))
    body = {"design_data": text, "input": {}}
    alone = {"node_config": json.dumps(step), "input": {}}

    tested = await user.done("POST", f"{FLOWS}/design/test", body)
    assert tested["status"] == "ERROR"
    assert "this needs entity_data.edit" in tested["trace_infos"][-1]["error_message"]
    tested = await user.done("POST", f"{FLOWS}/node/test", alone)
    assert "this needs entity_data.edit" in tested["error_message"]
    saved = {"name": "F", "design_data": text, "enabled": True}
    await user.refused(400, "POST", f"{FLOWS}/design", saved, field="design_data")
    assert workflow.device.updates == workflow.device.calls == []
    dry = await user.done("POST", f"{FLOWS}/node/test", {**alone, "dry_run": True})
    assert dry["status"] == "SUCCESS"


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_dry_run_judges_as_a_real_one_does(workflow, dry_run):
    """An error of the device fails the node in both cases."""
    workflow.device.has(HOT)
    workflow.device.refuses = "exchange: must be at most 40"
    body = {"design_data": alarm(), "input": {"temperature": 42}, "dry_run": dry_run}
    tested = await workflow.admin().done("POST", f"{FLOWS}/design/test", body)

    assert tested["status"] == "ERROR"
    assert "must be at most 40" in tested["trace_infos"][-1]["error_message"]


async def test_a_saved_flow_is_tested_by_its_id(workflow):
    """The latest design of a visible flow is used unless the body has a design."""
    user = workflow.admin()
    wanted = {"name": "F", "design_data": alarm()}
    flow = (await user.done("POST", f"{FLOWS}/design", wanted))["id"]
    tested = await user.done(
        "POST", f"{FLOWS}/test", {"flow_id": flow, "input": {"temperature": 1}}
    )
    assert (tested["flow_id"], len(tested["trace_infos"])) == (flow, 2)
    other = design([trigger()])
    tested = await user.done("POST", f"{FLOWS}/test", {"flow_id": int(flow), "design_data": other})
    assert (tested["flow_id"], len(tested["trace_infos"])) == (flow, 1)

    await user.refused(404, "POST", f"{FLOWS}/test", {"flow_id": "999"}, field="id")
    await user.refused(400, "POST", f"{FLOWS}/test", {"input": {}}, field="design_data")
    await workflow.user(8, *AUTHOR).refused(403, "POST", f"{FLOWS}/test", {"flow_id": flow})


async def test_inputs_may_come_by_the_names_that_editors_use(workflow):
    """An editor's sample input is keyed by the names of parameters."""
    body = {"design_data": alarm(), "input": {"The temperature": "12"}}
    tested = await workflow.admin().done("POST", f"{FLOWS}/test", body)

    assert tested["trace_infos"][0]["output"] == '{"temperature":12.0}'
    assert len(tested["trace_infos"]) == 2


async def test_a_reference_to_nothing_is_an_error_of_that_node(workflow):
    """The trace has the missing reference."""
    workflow.device.has(HOT)
    tested = await workflow.admin().done(
        "POST", f"{FLOWS}/test", {"design_data": alarm(), "input": {}}
    )

    assert tested["status"] == "ERROR"
    failed = tested["trace_infos"][-1]
    assert (failed["node_id"], failed["status"]) == ("fork", "ERROR")
    assert "'temperature'" in failed["error_message"]


async def test_a_test_of_what_cannot_run_is_an_error_of_its_nodes(workflow):
    """Editors show nothing of a refusal: in the trace each node at fault has its reasons."""
    user = workflow.admin()
    odd = node("odd", "teleport")
    text = design([trigger(), odd, {**odd, "id": "_x"}], edge("start", "odd"), edge("odd", "gone"))
    tested = await user.done("POST", f"{FLOWS}/test", {"design_data": text})
    assert tested["status"] == "ERROR"
    assert {info["status"] for info in tested["trace_infos"]} == {"ERROR"}
    said = {info["node_id"]: info["error_message"] for info in tested["trace_infos"]}
    assert set(said) == {"start", "odd", "_x"}
    assert said["start"] == "edges[1].target: node gone does not exist; remove the edge"
    assert "node type teleport does not exist" in said["odd"]
    assert "id: must have" in said["_x"]

    body = {"design_data": alarm(), "input": {"temperature": "hot"}}
    tested = await user.done("POST", f"{FLOWS}/test", body)
    (entry,) = tested["trace_infos"]
    assert (tested["status"], entry["node_id"]) == ("ERROR", "start")
    assert entry["error_message"] == "input: temperature must be DOUBLE. Got hot."


async def test_a_test_without_a_design_is_rejected(workflow):
    """There is no node that could have a trace."""
    for text in ("{}", "x", ""):
        body = {"design_data": text}
        await workflow.admin().refused(400, "POST", f"{FLOWS}/test", body, field="design_data")


@pytest.mark.parametrize("given", ["text", 1, True, [], [{}]], ids=str)
async def test_the_input_of_a_test_is_an_object(workflow, given):
    """Any other JSON value is refused with its field, of flows and of nodes."""
    config = node("set", "entityAssigner", exchangePayload={HOT: 1})
    for path, body in (
        ("test", {"design_data": alarm()}),
        ("design/test", {"design_data": alarm()}),
        ("node/test", {"node_config": json.dumps(config)}),
    ):
        sent = {**body, "input": given}
        await workflow.admin().refused(400, "POST", f"{FLOWS}/{path}", sent, field="input")


async def test_a_node_is_tested_alone(workflow):
    """Its references, whichever node they name, are to the input."""
    config = node("set", "entityAssigner", exchangePayload={HOT: "#{properties.other['t']}"})
    workflow.device.has(HOT)
    body = {"node_config": json.dumps(config), "input": {"t": 5}, "dry_run": True}
    traced = await workflow.admin().done("POST", f"{FLOWS}/node/test", body)

    assert ("set", "SUCCESS", '{"t":5}', json.dumps({HOT: 5}, separators=(",", ":"))) == tuple(
        traced[name] for name in ("node_id", "status", "input", "output")
    )
    assert workflow.device.updates == []


async def test_a_node_that_cannot_be_tested_is_an_error(workflow):
    """Entries, unknown types and invalid parameters are errors of the node."""
    user = workflow.admin()
    for config, reason in (
        (trigger(), "must not be an entry"),
        (node("a", "teleport"), "node type teleport does not exist"),
        (node("a", SELECT), "entities"),
    ):
        body = {"node_config": json.dumps(config), "input": {}}
        traced = await user.done("POST", f"{FLOWS}/node/test", body)
        assert (traced["node_id"], traced["status"]) == (config["id"], "ERROR")
        assert reason in traced["error_message"]
    for text in ("{}", "x"):
        body = {"node_config": text, "input": {}}
        await user.refused(400, "POST", f"{FLOWS}/node/test", body, field="node_config")


async def test_a_test_needs_the_grants_of_its_entities(workflow):
    """A test reads values, so it needs the same grants as a flow that runs."""
    workflow.device.has(HOT, 7)
    user = workflow.user(7, *AUTHOR)
    config = node("read", SELECT, entities=[HOT])
    body = {"node_config": json.dumps(config), "input": {}}

    tested = [await user.done("POST", f"{FLOWS}/node/test", body)]
    whole = {"design_data": design([trigger(), config], edge("start", "read"))}
    tested += (await user.done("POST", f"{FLOWS}/test", whole))["trace_infos"]
    assert [(one["node_id"], one["error_message"]) for one in tested] == [
        ("read", f"parameters: entity {HOT} does not exist or is not visible to you")
    ] * 2
    viewer = workflow.user(8, Function.WORKFLOW_VIEW)
    await viewer.refused(403, "POST", f"{FLOWS}/node/test", body)


async def test_an_entity_that_does_not_exist_is_a_fault_of_the_design(workflow):
    """Also for who sees everything: the flow could not run. A pattern may fit later."""
    admin, gone = workflow.admin(), "direct.device.gone.temperature"
    workflow.device.missing = {gone}
    read = node("read", SELECT, entities=[HOT, gone])
    text = design([trigger(), read], edge("start", "read"))

    verdict = await admin.ask("POST", f"{FLOWS}/design/validate", {"design_data": text})
    body = {"name": "gone", "design_data": text, "enabled": True}
    refused = await admin.refused(400, "POST", f"{FLOWS}/design", body)

    assert verdict.json()["data"] is False
    (reason,) = refused["data"]
    assert (reason["node_id"], reason["field"]) == ("read", "parameters")
    assert gone in reason["reason"]
    listening = design([node("start", "eventListener", entities=["direct.device.gone.*"])])
    verdict = await admin.ask("POST", f"{FLOWS}/design/validate", {"design_data": listening})
    assert verdict.json()["data"] is True


async def test_the_catalogue_has_the_structure_for_editors(workflow):
    """Groups are arrays, `data` is JSON with component, properties and outputProperties."""
    user = workflow.user(7, Function.WORKFLOW_VIEW)
    groups = await user.done("GET", "/workflow/components")

    assert {"entry", "control", "action", "external"} == set(groups)
    found = _components(groups)
    fork = found["choice"]["properties"]["choice"]
    assert (
        fork["uiComponent"],
        fork["required"],
        fork["type"],
    ) == ("conditionsInput", True, "object")
    assert found["serviceInvocation"]["outputProperties"]["payload"]["editable"] is True
    one = await user.done("GET", "/workflow/components/choice")
    assert found["choice"] == json.loads(one)
    await user.refused(404, "GET", "/workflow/components/teleport", field="name")
    languages = await user.done("GET", "/workflow/components/languages")
    assert {"code", "expression"} == set(languages)


async def test_the_catalogue_has_the_schemas_of_nested_parameters(workflow):
    """An editor can make a form of every parameter, also of one for which it has no component."""
    user = workflow.user(7, Function.WORKFLOW_VIEW)
    found = _components(await user.done("GET", "/workflow/components"))

    for entry in found.values():
        shape = entry["schema"]["$defs"][entry["schema"]["$ref"].rpartition("/")[2]]
        assert set(shape["properties"]) == set(entry["properties"]) | set(entry["outputProperties"])
    broker = found["mqttPublish"]["schema"]["$defs"]["MqttBroker"]
    assert broker["properties"]["port"]["maximum"] == 65535


async def test_the_catalogue_says_which_nodes_are_tested_alone(workflow):
    """An editor begins that test without an input, which decides, sets and calls nothing."""
    user = workflow.user(7, Function.WORKFLOW_VIEW)
    found = _components(await user.done("GET", "/workflow/components?all=true"))

    assert {name for name, one in found.items() if one["component"]["testable"]} == {
        "code", "webhook", "httpRequest", "email", "mqttPublish", "output",
    }  # fmt: skip


async def test_choices_of_a_parameter_are_labels_by_value(workflow):
    """Editors send the index of a choice if the choices are a list."""
    user = workflow.user(7, Function.WORKFLOW_VIEW)
    found = json.loads(await user.done("GET", "/workflow/components/httpRequest"))

    methods = found["properties"]["method"]["enum"]
    assert methods["PATCH"] == "PATCH"
    assert set(methods) == {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"}


def _components(groups):
    """`data` by name."""
    return {row["name"]: json.loads(row["data"]) for rows in groups.values() for row in rows}
