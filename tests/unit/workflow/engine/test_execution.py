"""Plans run: in order, in parallel, joined once, ended by what fails."""

import asyncio

import msgspec
import pytest

from services.workflow.errors import NodeFailed
from services.workflow.nodes.base import SampleOutput
from tests.unit.workflow.fakes import Flow

NODES = "begin>a a>b b>c"


def fails(*_):
    """A node that cannot do its work."""
    raise NodeFailed("no luck")


def breaks(*_):
    """A node with a bug."""
    raise ZeroDivisionError


async def test_each_node_gets_the_output_of_the_previous_node():
    """The last output is the output of the run."""
    flow = Flow(NODES)
    run = await flow.run({"x": 1})

    assert flow.work.ran == [("a", {"x": 1}), ("b", {"a": True}), ("c", {"b": True})]
    assert (run.status, run.output) == ("SUCCESS", {"c": True})


async def test_the_trace_contains_each_node():
    """The entry has only an output; each other node names the previous one."""
    run = await Flow(NODES).run({"x": 1})

    entry, first, *_ = run.traces
    assert (entry.input, entry.output, entry.parent_trace_id) == (None, '{"x":1}', None)
    assert (
        first.input,
        first.output,
        first.parent_trace_id,
    ) == ('{"x":1}', '{"a":true}', "1-begin")
    assert [trace.node_id for trace in run.traces] == ["begin", "a", "b", "c"]
    assert {"work", "begin"} == {trace.node_label for trace in run.traces}


async def test_branches_run_at_the_same_time():
    """Each waits for the other, which only works in parallel."""
    flow = Flow("begin>a begin>b")
    both = asyncio.Barrier(2)

    async def meet(*_):
        await both.wait()
        return {}

    flow.work.does = {"a": meet, "b": meet}
    assert (await flow.run(node_seconds=5.0)).status == "SUCCESS"


async def test_a_join_runs_once_with_the_maps_of_all():
    """Later edges of the design win, regardless of the order of completion."""
    flow = Flow("begin>a begin>b a>j b>j")
    done = asyncio.Event()

    async def late(*_):
        await done.wait()
        return {"who": "a", "a": 1}

    def first(*_):
        done.set()
        return {"who": "b", "b": 1}

    flow.work.does = {"a": late, "b": first}
    await flow.run()

    assert [one for one in flow.work.ran if one[0] == "j"] == [("j", {"who": "b", "a": 1, "b": 1})]


async def test_a_join_of_other_values_is_given_the_last():
    """Maps can be put together, lists and numbers cannot."""
    flow = Flow("begin>a begin>b a>j b>j")
    flow.work.does = {"a": lambda *_: 5, "b": lambda *_: [1]}
    await flow.run()

    assert flow.work.ran[-1] == ("j", [1])


@pytest.mark.parametrize(("way", "expected"), [("left", ["l", "j"]), ("right", ["r", "j"])])
async def test_a_join_behind_a_fork_waits_only_for_the_branch_that_is_taken(way, expected):
    """Unreachable branches count as done."""
    flow = Flow("begin>fork fork:left>l fork:right>r l>j r>x x>j", fork={"way": way})
    await flow.run()

    ran = [name for name, _ in flow.work.ran]
    assert expected == [name for name in ran if name != "x"]


async def test_a_fork_that_leads_nowhere_ends_the_path_well():
    """No branch holds: the run is a success, and nothing behind it runs."""
    flow = Flow("begin>fork fork:left>l l>m", fork={"way": None})
    run = await flow.run()

    assert (run.status, flow.work.ran) == ("SUCCESS", [])


async def test_a_node_that_fails_ends_its_path_and_no_other():
    """The run is an error with the reason, siblings go on, the join runs with their output."""
    flow = Flow("begin>a begin>b a>x b>y x>j y>j")
    flow.work.does = {"a": fails}
    run = await flow.run()

    assert {"a", "b", "y", "j"} == {name for name, _ in flow.work.ran}
    assert (run.status, run.error) == ("ERROR", "no luck")
    assert flow.work.ran[-1] == ("j", {"y": True})


async def test_a_join_that_nothing_reaches_does_not_run():
    """Both ways to it have failed."""
    flow = Flow("begin>a begin>b a>j b>j j>k")
    flow.work.does = {"a": fails, "b": fails}
    await flow.run()

    assert {"a", "b"} == {name for name, _ in flow.work.ran}


async def test_a_value_that_is_too_deep_is_no_bug_of_ours():
    """Users may send such JSON, and see the reason."""

    def nests(*_):
        raise RecursionError

    flow = Flow("begin>a")
    flow.work.does = {"a": nests}
    run = await flow.run()

    assert run.error == "a value is nested too deep"


async def test_a_bug_of_ours_is_an_error_of_the_node():
    """The service log has the traceback; users see only the error type."""
    flow = Flow("begin>a")
    flow.work.does = {"a": breaks}
    run = await flow.run()

    assert run.error == "internal error of the node: ZeroDivisionError"


async def test_a_node_has_a_time_limit():
    """One that takes longer is ended; the others go on."""
    flow = Flow("begin>a begin>b")
    flow.work.does = {"a": lambda *_: asyncio.Event().wait()}
    run = await flow.run(node_seconds=0.01)

    assert run.error == "the node took longer than 0.01 s"
    assert {"a", "b"} == {name for name, _ in flow.work.ran}


async def test_a_run_has_a_time_limit():
    """Nodes behind it are not begun any more."""
    flow = Flow("begin>a a>b")
    flow.work.does = {"a": lambda *_: asyncio.Event().wait()}
    run = await flow.run(run_seconds=0.01, node_seconds=5.0)

    assert run.error == "the run took longer than 0.01 s"


async def test_references_are_to_outputs_by_node_id():
    """Also to those of nodes further back, and to the entry."""
    flow = Flow(
        "begin>a a>b b>c",
        c={"text": {"x": "#{properties.begin['x']}", "all": "#{properties.a}"}},
    )
    run = await flow.run({"x": 1})

    assert run.output == {"x": 1, "all": {"a": True}}


async def test_a_reference_to_nothing_names_it():
    """The node fails with the missing reference in its error."""
    flow = Flow("begin>a", a={"text": "#{properties.begin['gone']}"})
    run = await flow.run({"x": 1})

    assert "properties.begin['gone']" in run.error


async def test_a_run_is_sealed_before_its_first_unrepeatable_node():
    """A run with only repeatable nodes may restart."""
    seals = []
    flow = Flow("begin>a a>harm1 harm1>harm2")
    run = await flow.run(seals=seals)
    assert [run] == seals

    seals = []
    await Flow(NODES).run(seals=seals)
    assert seals == []


async def test_a_node_knows_its_run():
    """Tenant, flow, hops and the time that it has."""
    flow = Flow("begin>a")
    await flow.run()

    (context,) = flow.work.contexts
    assert (
        context.tenant,
        context.flow_id,
        context.run_id,
        context.node_id,
        context.hops,
        context.dry_run,
    ) == ("t", 2, 1, "a", 4, False)


async def test_an_unknown_value_ends_the_path_of_a_dry_run():
    """Nodes that need it are skipped with their followers."""
    flow = Flow(
        "begin>ask ask>a ask>b a>c b>d",
        a={"text": "#{properties.ask['status']}"},
        b={"text": "#{properties.ask['body']['x']}"},
    )
    flow.work.does["ask"] = lambda *_: SampleOutput({"status": 200})
    run = await flow.run()

    assert run.status == "SUCCESS"
    assert {trace.node_id for trace in run.traces} == {"begin", "ask", "a", "c"}
    assert ("c", 200) in flow.work.ran


async def test_a_node_that_is_there_to_answer_has_the_last_word():
    """Its output is the run's, even if other nodes finish later."""
    flow = Flow("begin>answer answer>b begin>c c>d d>e")
    run = await flow.run()

    assert run.output == {"answer": True}


async def test_a_long_trace_omits_its_end():
    """It is bounded, and every text in it is still JSON."""
    names = [f"n{number}" for number in range(100)]
    flow = Flow(" ".join(f"{a}>{b}" for a, b in zip(["begin", *names], names, strict=False)))
    for name in names:
        flow.work.does[name] = lambda *_, name=name: {"text": name * 8000}
    run = await flow.run()

    texts = [trace.output for trace in run.traces]
    assert sum(map(len, texts)) < 1_200_000
    assert all(isinstance(msgspec.json.decode(text), dict) for text in texts)
    assert "the trace is full" in texts[-1]


@pytest.mark.parametrize("odd", ["\ud800", object])
async def test_an_output_that_nobody_can_read_is_an_error_of_its_node(odd):
    """Outputs are JSON values; the run ends as every other one."""
    flow = Flow("begin>a begin>b")
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    flow.work.does = {"a": lambda *_: odd if isinstance(odd, str) else deep}
    run = await flow.run()

    assert run.error.startswith(("internal error of the node: ", "a value is nested too deep"))
    assert {"a", "b"} == {name for name, _ in flow.work.ran}


async def test_a_timeout_inside_a_node_differs_from_the_nodes_own():
    """A timeout of another service has its own error."""
    flow = Flow("begin>a")

    def late(*_):
        raise TimeoutError

    flow.work.does = {"a": late}
    assert (await flow.run()).error == "another service did not respond to the node in time"
