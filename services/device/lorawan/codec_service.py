"""Operations on codecs of products."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from libs.common.clock import now_ms
from libs.common.decoding import copy_fields
from libs.common.errors import Conflict, InvalidInput, TooManyRequests
from libs.common.identity import Principal
from libs.common.things import GENERIC_MODEL
from libs.common.tsl import Fault, InvalidValues, Tsl, TslDocument
from libs.common.tsl.limits import explain_unstorable
from services.device.lorawan.codec_calls import CallOutcome, CodecCall
from services.device.lorawan.codec_runner import CodecWorkers
from services.device.lorawan.codec_scripts import (
    DECODER_ARGUMENTS_BY_ENTRY_POINT,
    ENCODER_ARGUMENTS_BY_ENTRY_POINT,
    ENTRY_POINTS,
    equals_example,
    extract_past_readings,
    find_entry_point,
    parse_decoder_result,
    parse_encoder_result,
)
from services.device.lorawan.history_request import (
    MAX_CHECK_SECONDS,
    build_test_calls,
    choose_history_request,
    find_range_services,
)
from services.device.lorawan.schemas import (
    CodecFault,
    CodecTestResult,
    GapHealingSettings,
    PastReading,
    PutCodec,
    TestCodec,
)
from services.device.things.codec_model import Codec, CodecFailed
from services.device.things.errors import built_in_product_error, codec_not_found
from services.device.things.product_model import (
    CodecExample,
    HistoryRequest,
    ProductCodec,
    PutGapHealing,
    extract_codec,
)
from services.device.things.product_store import ProductStore
from services.device.things.specifications import TslStore

LATEST_TEST_READING_MS = 2**53 - 1
"""Latest time of a past reading in a test: no limit, since documented frames may be old."""
MAX_CODEC_BYTES = 1024 * 1024
"""Maximum bytes of a codec with its examples."""
MAX_CONCURRENT_TESTS = 4
"""Maximum codecs of a tenant that a process validates or tests at the same time."""
SINGLE_SCRIPT_NAME = "script"
"""Name of a script that was sent without a name."""


def history_request_error(request: HistoryRequest | None) -> InvalidInput:
    """Return the error of a codec that cannot request past readings."""
    if request is None:
        text = "the codec has no service with start_time and end_time that requests past readings"
    else:
        text = f"{request.service} {request.fault}"
    return InvalidInput(text, field="on", code="product_without_history_request")


class CodecService:
    """Imports, tests and stores codecs; they run in `workers` only."""

    def __init__(self, products: ProductStore, tsls: TslStore, workers: CodecWorkers) -> None:
        self._products = products
        self._codecs = products.codecs
        self._tsls = tsls
        self._workers = workers
        self._running_tests: Counter[str] = Counter()

    async def get(self, principal: Principal, model: str) -> ProductCodec:
        """Return the codec of a product; raise `NotFound`."""
        await self._products.get(principal.tenant, model)
        codec = await self._codecs.find(principal.tenant, model)
        if codec is None:
            raise codec_not_found(model)
        return codec

    async def put(self, principal: Principal, model: str, body: PutCodec) -> ProductCodec:
        """Replace the codec of a product; raise like `validate`.

        Also raises `NotFound` for an unknown product and `Conflict` for the built-in product.
        """
        tenant = principal.tenant
        if model.lower() == GENERIC_MODEL:
            raise built_in_product_error(model)
        product = await self._products.get(tenant, model)
        tsl = await self._tsls.find_or_generic(tenant, model, product.current_version)
        stored = await self.validate(tenant, body, tsl.document)
        await self._products.put_codec(tenant, model, stored)
        return stored

    async def validate(self, tenant: str, body: PutCodec, document: TslDocument) -> ProductCodec:
        """Return a codec as it will be stored, for a product with this TSL.

        Scripts are checked first, then functions, then examples. Raises `InvalidInput` with all
        faults of the first of these checks that fails, and `TooManyRequests` at
        `MAX_CONCURRENT_TESTS`.
        """
        with self._hold_test_slot(tenant):
            codec = await self._build_codec(tenant, body)
            await self._check_examples(tenant, codec, body.examples)
            history = await self._find_history_request(tenant, codec, document)
        stored = copy_fields(ProductCodec, codec, examples=body.examples, history=history)
        if len(msgspec.json.encode(stored)) > MAX_CODEC_BYTES:
            raise InvalidInput(f"must be at most {MAX_CODEC_BYTES} bytes in all", field="scripts")
        return stored

    async def delete(self, principal: Principal, model: str) -> str:
        """Remove the codec of a product and return the model."""
        await self._products.get(principal.tenant, model)
        if not await self._products.delete_codec(principal.tenant, model):
            raise codec_not_found(model)
        return model

    async def get_healing(self, principal: Principal, model: str) -> GapHealingSettings:
        """Return the healing settings of a product; raise `NotFound`."""
        codec = await self.get(principal, model)
        setting = await self._products.find_healing(principal.tenant, model)
        request = codec.history
        return GapHealingSettings(
            on=setting.on,
            hour=setting.hour,
            day=setting.day,
            service=request.service if request else None,
            fault=request.fault if request else None,
        )

    async def put_healing(
        self, principal: Principal, model: str, body: PutGapHealing
    ) -> GapHealingSettings:
        """Set the healing settings of a product.

        If `body.on`, the codec is first checked by the current TSL. Then raises `InvalidInput` when
        the codec has no valid request for past readings, `Conflict` when it was changed meanwhile.
        """
        tenant, stored = principal.tenant, await self.get(principal, model)
        if body.on:
            product = await self._products.get(tenant, model)
            tsl = await self._tsls.find_or_generic(tenant, model, product.current_version)
            with self._hold_test_slot(tenant):
                stored.history = await self._find_history_request(
                    tenant, extract_codec(stored), tsl.document
                )
            if stored.history is None or stored.history.fault:
                raise history_request_error(stored.history)
            if not await self._products.update_history_request(tenant, model, stored):
                text = "the codec was changed at the same time: read it and repeat the request"
                raise Conflict(text, field="model")
        await self._products.put_healing(tenant, model, body)
        return await self.get_healing(principal, model)

    async def test_codec(
        self, principal: Principal, model: str, body: TestCodec
    ) -> CodecTestResult:
        """Test the codec of a product, or of the body, with a frame or values."""
        tenant = principal.tenant
        if body.values is not None and (body.hex, body.base64) != (None, None):
            raise InvalidInput("either bytes or values are needed", field="values")
        if (reason := explain_unstorable(body.values)) is not None:
            raise InvalidInput(reason, field="values")
        content = body.content() if body.values is None else body.values
        product = await self._products.get(tenant, model)
        with self._hold_test_slot(tenant):
            if body.codec is not None:
                codec = await self._build_codec(tenant, body.codec)
            else:
                codec = extract_codec(await self.get(principal, model))
            if body.values is not None and not codec.encoder:
                raise InvalidInput("the codec has no encoder", field="values")
            call = CodecCall(
                "decode" if body.values is None else "encode", content, body.port, now_ms()
            )
            (outcome,) = await self._workers.run(tenant, codec, [call], logging=True)
        tsl = await self._tsls.find_or_generic(tenant, model, product.current_version)
        try:
            if body.values is None:
                result = _decoder_test_result(codec, outcome, tsl)
            else:
                result = _encoder_test_result(
                    codec, outcome, body.port, _find_write_faults(tsl, body.values)
                )
        except CodecFailed as error:
            result = CodecTestResult(fault=str(error))
        result.log = outcome.log
        return result

    @contextmanager
    def _hold_test_slot(self, tenant: str) -> Iterator[None]:
        """Count a running test; raise `TooManyRequests` at `MAX_CONCURRENT_TESTS`."""
        if self._running_tests[tenant] >= MAX_CONCURRENT_TESTS:
            text = f"at most {MAX_CONCURRENT_TESTS} codecs are tested at a time"
            raise TooManyRequests(text, retry_after=1.0)
        self._running_tests[tenant] += 1
        try:
            yield
        finally:
            self._running_tests[tenant] -= 1
            if not self._running_tests[tenant]:
                del self._running_tests[tenant]

    async def _build_codec(self, tenant: str, body: PutCodec) -> Codec:
        """Return the codec of a body; raise `InvalidInput` with all faults of the first check."""
        if (body.script is None) == (not body.scripts):
            raise InvalidInput("either script or scripts is needed", field="script")
        scripts = body.scripts if body.script is None else {SINGLE_SCRIPT_NAME: body.script}
        prefix = "scripts." if body.script is None else ""
        paths = {name: f"{prefix}{name}" for name in scripts}
        faults = [Fault(paths[name], "contains a NUL") for name in scripts if "\0" in scripts[name]]
        if sum(len(text.encode()) for text in scripts.values()) > MAX_CODEC_BYTES:
            faults.append(Fault("scripts", f"must be at most {MAX_CODEC_BYTES} bytes in all"))
        if faults:
            raise InvalidInput.from_faults(faults)
        names = {*ENTRY_POINTS, *(step.entry for step in (*body.decoder, *body.encoder))}
        outcomes = await self._workers.find_functions(tenant, list(scripts.values()), sorted(names))
        functions: dict[str, list[str]] = {}
        for name, outcome in zip(scripts, outcomes, strict=True):
            functions[name] = outcome.value or []
            if outcome.fault is not None:
                faults.append(Fault(paths[name], outcome.fault))
        if faults:
            raise InvalidInput.from_faults(faults)
        return _assemble_codec(body, scripts, functions)

    async def _check_examples(
        self, tenant: str, codec: Codec, examples: Sequence[CodecExample]
    ) -> None:
        """Decode examples; raise `InvalidInput` with all that fail or differ from `expected`."""
        paths = [f"examples[{at}]" for at in range(len(examples))]
        calls = [
            CodecCall("decode", example.content(f"{path}."), example.port, 0)
            for path, example in zip(paths, examples, strict=True)
        ]
        outcomes = await self._workers.run(tenant, codec, calls) if calls else []
        faults = []
        for path, example, outcome in zip(paths, examples, outcomes, strict=True):
            try:
                decoded = parse_decoder_result(codec.decoder, outcome.result()).properties
            except CodecFailed as error:
                faults.append(Fault(path, str(error)))
                continue
            if example.expected is not None and not equals_example(decoded, example.expected):
                text = msgspec.json.encode(decoded).decode()
                faults.append(Fault(f"{path}.expected", f"the codec returns {text:.500}"))
        if faults:
            raise InvalidInput.from_faults(faults)

    async def _find_history_request(
        self, tenant: str, codec: Codec, document: TslDocument
    ) -> HistoryRequest | None:
        """Return the service for requests of past readings, with its fault if it has one.

        Returns None if the TSL has no service with a time range, or the codec has no encoder.
        """
        services = find_range_services(document) if codec.encoder else []
        if not services:
            return None
        calls = build_test_calls(services)
        answered = await self._workers.run_within(MAX_CHECK_SECONDS, tenant, codec, calls)
        return choose_history_request(codec, services, answered.outcomes)


def _assemble_codec(
    body: PutCodec, scripts: dict[str, str], functions: dict[str, list[str]]
) -> Codec:
    """Return the codec; raise `InvalidInput` if a script, a function or the decoder is missing."""
    faults = []
    for chain, steps in (("decoder", body.decoder), ("encoder", body.encoder)):
        for at, step in enumerate(steps):
            if step.script not in scripts:
                faults.append(Fault(f"{chain}[{at}].script", f"{step.script} does not exist"))
            elif step.entry not in functions[step.script]:
                reason = f"{step.script} has no function {step.entry}"
                faults.append(Fault(f"{chain}[{at}].entry", reason))
    if body.encoder and not body.decoder:
        faults.append(Fault("decoder", "is required when encoder is given"))
    if faults:
        raise InvalidInput.from_faults(faults)
    if body.decoder:
        return Codec(scripts=scripts, decoder=body.decoder, encoder=body.encoder)
    decoder, encoder = (
        find_entry_point(functions, DECODER_ARGUMENTS_BY_ENTRY_POINT),
        find_entry_point(functions, ENCODER_ARGUMENTS_BY_ENTRY_POINT),
    )
    if not decoder:
        entry_points = ", ".join(DECODER_ARGUMENTS_BY_ENTRY_POINT)
        field = "scripts" if body.scripts else SINGLE_SCRIPT_NAME
        raise InvalidInput(f"has no function {entry_points}", field=field)
    return Codec(scripts=scripts, decoder=decoder, encoder=encoder)


def _decoder_test_result(codec: Codec, outcome: CallOutcome, tsl: Tsl) -> CodecTestResult:
    properties, warnings, left_out = parse_decoder_result(codec.decoder, outcome.result())
    decoded = dict(properties)
    readings, bad = extract_past_readings(decoded, tsl, 0, LATEST_TEST_READING_MS)
    accepted, faults = tsl.check_decoded(decoded)
    return CodecTestResult(
        properties=properties,
        warnings=warnings,
        accepted=accepted,
        history=[PastReading(*reading) for reading in readings],
        refused=_to_codec_faults([*left_out, *faults, *bad]),
    )


def _encoder_test_result(
    codec: Codec, outcome: CallOutcome, port: int, refused: list[CodecFault]
) -> CodecTestResult:
    sent = parse_encoder_result(codec.encoder, outcome.result(), port)
    return CodecTestResult(
        hex=sent.content.hex(),
        base64=msgspec.to_builtins(sent.content),
        port=sent.port,
        warnings=sent.warnings,
        refused=refused,
    )


def _find_write_faults(tsl: Tsl, values: dict[str, Any]) -> list[CodecFault]:
    """Return the faults of the properties in `values`; inputs of services are not checked."""
    properties: dict[str, Any] = {k: value for k, value in values.items() if not tsl.service(k)}
    if not properties:
        return []
    try:
        tsl.check_write(properties, {})
    except InvalidValues as error:
        return _to_codec_faults(error.faults)
    return []


def _to_codec_faults(faults: Sequence[Fault]) -> list[CodecFault]:
    return [CodecFault(fault.path, fault.reason) for fault in faults]
