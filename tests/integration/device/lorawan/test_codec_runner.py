"""Codecs in their processes."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from services.device.lorawan import codec_runner as codec_workers
from services.device.lorawan.codec_calls import CallOutcome, CodecCall
from services.device.lorawan.codec_runner import LOST_OUTCOME, CodecWorkers
from services.device.things.codec_model import Codec, CodecArgument, CodecStep

AT = 1_700_000_000_000
FIRST = "function Decode(port, bytes) { return {first: bytes[0]} }"
LOOP = "function Decode() { for (;;) {} }"


def codec(source: str) -> Codec:
    args = [CodecArgument("port"), CodecArgument("bytes", payload=True)]
    return Codec(scripts={"codec.js": source}, decoder=[CodecStep("codec.js", "Decode", args)])


def frames(*payloads: bytes) -> list[CodecCall]:
    return [CodecCall("decode", payload, 85, AT) for payload in payloads]


@pytest_asyncio.fixture
async def workers() -> AsyncIterator[CodecWorkers]:
    async with CodecWorkers(maximum=2) as found:
        yield found


async def test_a_batch_is_decoded(workers: CodecWorkers) -> None:
    """Each payload has its outcome, in order, and the codec is sent once."""
    for _ in range(2):
        outcomes = await workers.run("a", codec(FIRST), frames(b"\x01", b"\x02"))
        assert [outcome.value for outcome in outcomes] == [{"first": 1}, {"first": 2}]


async def test_a_fault_affects_one_call(workers: CodecWorkers) -> None:
    """Other calls of the batch have their values."""
    source = "function Decode(port, bytes) { if (bytes[0]) throw Error('odd'); return {} }"
    outcomes = await workers.run("a", codec(source), frames(b"\x00", b"\x01", b"\x00"))
    assert [(outcome.value, outcome.fault) for outcome in outcomes] == [
        ({}, None),
        (None, "Error: odd"),
        ({}, None),
    ]


async def test_a_value_that_cannot_be_encoded_is_replaced(workers: CodecWorkers) -> None:
    """Invalid Unicode becomes null, an integer beyond 64 bits a float."""
    source = "function Decode(p, bytes) { return {a: [1, 1e20, '\\ud800'][bytes[0]]} }"
    outcomes = await workers.run("a", codec(source), frames(b"\x00", b"\x01", b"\x02"))
    assert [(outcome.value, outcome.fault) for outcome in outcomes] == [
        ({"a": 1}, None),
        ({"a": 1e20}, None),
        ({"a": None}, None),
    ]


async def test_a_looping_codec_does_not_delay_another_tenant(workers: CodecWorkers) -> None:
    """The batch of a looping codec fails while another tenant's continues."""
    loop = asyncio.create_task(workers.run("a", codec(LOOP), frames(*[b""] * 50)))
    (other,) = await workers.run("b", codec(FIRST), frames(b"\x07"))
    assert other.value == {"first": 7}
    assert not loop.done()
    outcomes = await loop
    assert {outcome.fault for outcome in outcomes} == {
        "takes too long",
        "was ended several times in a row",
    }


async def test_more_tenants_than_processes_take_turns(workers: CodecWorkers) -> None:
    """All calls are answered within the maximum number of processes."""
    batches = [workers.run(f"t{one}", codec(FIRST), frames(bytes([one]))) for one in range(6)]
    found = await asyncio.gather(*batches)
    assert [outcomes[0].value for outcomes in found] == [{"first": one} for one in range(6)]


async def test_a_killed_worker_is_replaced(workers: CodecWorkers) -> None:
    """The running batch fails, and the next one is answered."""
    endless = "function Decode() { let s = 'x'; for (;;) s += s.replace(/x/g, 'xx') }"
    (lost,) = await workers.run("a", codec(endless), frames(b""))
    assert lost.fault is not None
    (next_one,) = await workers.run("a", codec(FIRST), frames(b"\x03"))
    assert next_one.value == {"first": 3}


class Ended(CodecWorkers):
    """Codec processes that certain bytes kill."""

    batches = 0

    async def run(self, tenant: str, codec: Codec, calls: Sequence[CodecCall]) -> list[CallOutcome]:
        self.batches += 1
        if any(call.content == b"end" for call in calls):
            return [LOST_OUTCOME] * len(calls)
        return await super().run(tenant, codec, calls)


async def test_the_call_that_ends_a_process_is_found() -> None:
    """Other calls of the batch have their outcomes."""
    async with Ended() as workers:
        some = frames(*(b"\x03", b"\x04", b"end", b"\x05"))
        outcomes = await workers.run_despite_crashes("a", codec(FIRST), some)
    assert [outcome.value for outcome in outcomes] == [
        {"first": 3},
        {"first": 4},
        None,
        {"first": 5},
    ]
    assert outcomes[2] is LOST_OUTCOME


STUCK = "function Decode(p, bytes) { [].reverse.call({length: 2 ** 53 - 1}) }"
"""QuickJS does not interrupt this."""


async def test_a_call_that_cannot_be_interrupted_ends_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process ends long before it counts as silent."""
    monkeypatch.setattr(codec_workers, "ANSWER_TIMEOUT_SECONDS", 3600.0)
    async with asyncio.timeout(120), CodecWorkers() as found:
        assert await found.run("a", codec(STUCK), frames(b"\x01")) == [LOST_OUTCOME]
        outcomes = await found.run("a", codec(FIRST), frames(b"\x01"))
    assert [outcome.value for outcome in outcomes] == [{"first": 1}]


async def test_calls_that_kill_processes_are_given_up() -> None:
    """The remaining calls are rejected after several lost processes."""
    async with Ended() as workers:
        outcomes = await workers.run_despite_crashes("a", codec(FIRST), frames(*[b"end"] * 256))
        assert workers.batches == 12
    assert outcomes == [LOST_OUTCOME] * 256


async def test_memory_of_earlier_calls_causes_no_fault(workers: CodecWorkers) -> None:
    """Pending promises of earlier calls cause no fault."""
    source = """function Decode() {
      const big = new Array(6e4).fill(0);
      (async () => { await null; return big })();
      return {a: 1};
    }"""
    outcomes = await workers.run("a", codec(source), frames(*[b"\x01"] * 40))
    assert [outcome.value for outcome in outcomes] == [{"a": 1}] * 40


async def test_scripts_are_read_in_a_process(workers: CodecWorkers) -> None:
    """The result is the functions of each script, or its fault."""
    first, second = await workers.find_functions("a", [FIRST, "function ("], ["Decode", "Encode"])
    assert (first.value, first.fault) == (["Decode"], None)
    assert second.fault is not None
    assert "SyntaxError" in second.fault


async def test_the_console_of_a_codec_is_kept_on_demand(workers: CodecWorkers) -> None:
    """The outcome of each call has its console output."""
    source = codec("function Decode(p, bytes) { console.log(bytes[0]); return {} }")
    kept = await workers.run("a", source, frames(b"\x01", b"\x02"), logging=True)
    assert [one.log for one in kept] == [["1"], ["2"]]
    (ignored,) = await workers.run("a", source, frames(b"\x03"))
    assert ignored.log == []


@pytest.mark.parametrize(
    "source",
    [
        # the text shows nothing: the call is tried again with every built-in object changeable
        "'use strict'; const p = 'proto' + 'type', f = () => Object, o = f(); o[p].one = () => 1;",
        # the change cannot be undone: the next call gets a new context
        "Object.freeze(Array.prototype); Array.one = () => 1; [].one = 0;",
    ],
)
async def test_scripts_change_built_in_objects_in_every_call(
    workers: CodecWorkers, source: str
) -> None:
    """Each call sees only its own changes."""
    call = "([].one || Array.one)()"
    script = f"{source} function Decode(p, bytes) {{ return {{a: {call}, n: typeof Array.n}} }}"
    outcomes = await workers.run("a", codec(script), frames(*[b"\x01"] * 3))
    assert [(outcome.value, outcome.fault) for outcome in outcomes] == [
        ({"a": 1, "n": "undefined"}, None)
    ] * 3


async def test_more_tenants_than_processes_get_their_answers() -> None:
    """Calls are answered even when all tenants repeat them immediately."""
    async with CodecWorkers(maximum=1) as few:

        async def ask(tenant: str) -> list[object]:
            batches = [await few.run(tenant, codec(FIRST), frames(b"\x01")) for _ in range(2)]
            return [one.value for batch in batches for one in batch]

        found = await asyncio.gather(*map(ask, ("a", "b", "a")))
    assert found == [[{"first": 1}] * 2] * 3


async def test_a_cancelled_call_does_not_answer_the_next(workers: CodecWorkers) -> None:
    """A cancelled call kills its process."""
    await workers.run("a", codec(FIRST), frames(b"\x01"))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):  # a call that loops is ended after 0.1 s
            await workers.run("a", codec(LOOP), frames(b""))
    (outcome,) = await workers.run("a", codec(FIRST), frames(b"\x05"))
    assert outcome.value == {"first": 5}
