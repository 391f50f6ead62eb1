"""What may be done with the codecs of products."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from libs.common.clock import now_ms
from libs.common.errors import Conflict, InvalidInput, TooManyRequests
from libs.common.identity import Principal
from libs.common.things import GENERIC
from libs.common.tsl import Fault, InvalidValues, Tsl, TslDocument
from services.device.lorawan.codec_runner import CodecWorkers
from services.device.lorawan.codec_scripts import (
    DECODERS,
    ENCODERS,
    ENTRIES,
    decoded,
    encoded,
    entry_of,
    is_expected,
    take_memories,
)
from services.device.lorawan.codec_worker import Call, Outcome
from services.device.lorawan.history_request import SECONDS, calls_of, candidates, judged
from services.device.lorawan.schemas import (
    CodecFault,
    Healing,
    PutCodec,
    RememberedValues,
    TriedCodec,
    TryCodec,
)
from services.device.things.codec_model import Codec, CodecFailed
from services.device.things.errors import built_in, codec_not_found
from services.device.things.product_model import (
    CodecExample,
    HistoryRequest,
    ProductCodec,
    PutHealing,
    codec_of,
)
from services.device.things.product_store import ProductStore
from services.device.things.specifications import Tsls

LATEST_MS = 2**53 - 1
"""A trial takes what a device remembers of any time: frames of documents are old."""
LARGEST = 1024 * 1024
"""Bytes of a codec with its examples."""
MOST_TRIALS = 4
"""Imports and trials of a tenant that are under way in a process."""
ALONE = "script"
"""The name of a script that came alone."""


def without_history_request(request: HistoryRequest | None) -> InvalidInput:
    """400: its devices cannot be asked for what they remember."""
    if request is None:
        text = "the codec has no service with start_time and end_time that asks for history"
    else:
        text = f"{request.service} {request.fault}"
    return InvalidInput(text, field="on", code="product_without_history_request")


class CodecService:
    """Codecs run in `workers`, never in the process of the service."""

    def __init__(self, products: ProductStore, tsls: Tsls, workers: CodecWorkers) -> None:
        self._products = products
        self._codecs = products.codecs
        self._tsls = tsls
        self._workers = workers
        self._trials: Counter[str] = Counter()

    async def get(self, principal: Principal, model: str) -> ProductCodec:
        """The codec of a product; raise `NotFound`."""
        await self._products.get(principal.tenant, model)
        found = await self._codecs.find(principal.tenant, model)
        if found is None:
            raise codec_not_found(model)
        return found

    async def put(self, principal: Principal, model: str, body: PutCodec) -> ProductCodec:
        """Give a product a codec in the place of the one that it has.

        Raises `InvalidInput` with every fault of scripts, functions and examples.
        """
        tenant = principal.tenant
        if model.lower() == GENERIC:
            raise built_in(model)
        product = await self._products.get(tenant, model)
        tsl = await self._tsls.find(tenant, model, product.current_version)
        stored = await self.checked(tenant, body, tsl.document)
        await self._products.put_codec(tenant, model, stored)
        return stored

    async def checked(self, tenant: str, body: PutCodec, document: TslDocument) -> ProductCodec:
        """A codec as it is kept, of a product with a TSL; nothing is stored.

        Raises `InvalidInput` with every fault of scripts, functions and examples.
        """
        with self._trial(tenant):
            codec = await self._read(tenant, body)
            await self._try(tenant, codec, body.examples)
            history = await self._history_request(tenant, codec, document)
        stored = ProductCodec(
            version=codec.version,
            scripts=codec.scripts,
            decoder=codec.decoder,
            encoder=codec.encoder,
            examples=body.examples,
            history=history,
        )
        if len(msgspec.json.encode(stored)) > LARGEST:
            raise InvalidInput(f"must be at most {LARGEST} bytes in all", field="scripts")
        return stored

    async def delete(self, principal: Principal, model: str) -> str:
        """Take the codec from a product; return the model."""
        await self._products.get(principal.tenant, model)
        if not await self._products.delete_codec(principal.tenant, model):
            raise codec_not_found(model)
        return model

    async def healing(self, principal: Principal, model: str) -> Healing:
        """Whether devices of a product are asked for what never arrived; raise `NotFound`."""
        codec = await self.get(principal, model)
        setting = await self._products.healing(principal.tenant, model)
        request = codec.history
        return Healing(
            on=setting.on,
            hour=setting.hour,
            day=setting.day,
            service=request.service if request else None,
            fault=request.fault if request else None,
        )

    async def put_healing(self, principal: Principal, model: str, body: PutHealing) -> Healing:
        """Let devices be asked, or not any more.

        The codec is judged anew, by the current TSL. Raises `InvalidInput` when it has no request
        that is right, `Conflict` when it is changed meanwhile.
        """
        tenant, stored = principal.tenant, await self.get(principal, model)
        if body.on:
            product = await self._products.get(tenant, model)
            tsl = await self._tsls.find(tenant, model, product.current_version)
            with self._trial(tenant):
                stored.history = await self._history_request(tenant, codec_of(stored), tsl.document)
            if stored.history is None or stored.history.fault:
                raise without_history_request(stored.history)
            if not await self._products.put_judged(tenant, model, stored):
                raise Conflict("the codec was changed meanwhile", field="model")
        await self._products.put_healing(tenant, model, body)
        return await self.healing(principal, model)

    async def tried(self, principal: Principal, model: str, body: TryCodec) -> TriedCodec:
        """What the codec of a product, or the one of the body, makes of a frame or of values."""
        tenant = principal.tenant
        if body.values is not None and (body.hex, body.base64) != (None, None):
            raise InvalidInput("either bytes or values are needed", field="values")
        content = body.content() if body.values is None else body.values
        product = await self._products.get(tenant, model)
        with self._trial(tenant):
            if body.codec is not None:
                codec = await self._read(tenant, body.codec)
            else:
                codec = codec_of(await self.get(principal, model))
            if body.values is not None and not codec.encoder:
                raise InvalidInput("the codec has no encoder", field="values")
            call = Call("decode" if body.values is None else "encode", content, body.port, now_ms())
            (outcome,) = await self._workers.run(tenant, codec, [call], logging=True)
        tsl = await self._tsls.find(tenant, model, product.current_version)
        try:
            if body.values is None:
                tried = _decoded(codec, outcome, tsl)
            else:
                tried = _encoded(codec, outcome, body.port, _refused(tsl, body.values))
        except CodecFailed as error:
            tried = TriedCodec(fault=str(error))
        tried.log = outcome.log
        return tried

    @contextmanager
    def _trial(self, tenant: str) -> Iterator[None]:
        """Count a trial; raise `TooManyRequests` when as many are under way."""
        if self._trials[tenant] >= MOST_TRIALS:
            raise TooManyRequests(
                f"at most {MOST_TRIALS} codecs are tried at a time", retry_after=1.0
            )
        self._trials[tenant] += 1
        try:
            yield
        finally:
            self._trials[tenant] -= 1
            if not self._trials[tenant]:
                del self._trials[tenant]

    async def _read(self, tenant: str, body: PutCodec) -> Codec:
        """The codec of a body; raise `InvalidInput` with every fault of it."""
        if (body.script is None) == (not body.scripts):
            raise InvalidInput("either script or scripts is needed", field="script")
        scripts = body.scripts if body.script is None else {ALONE: body.script}
        paths = {name: ALONE if body.script is not None else f"scripts.{name}" for name in scripts}
        faults = [Fault(paths[name], "has a NUL") for name in scripts if "\0" in scripts[name]]
        if sum(len(text.encode()) for text in scripts.values()) > LARGEST:
            faults.append(Fault("scripts", f"must be at most {LARGEST} bytes in all"))
        if faults:
            raise InvalidInput.of_faults(faults)
        names = {*ENTRIES, *(step.entry for step in (*body.decoder, *body.encoder))}
        outcomes = await self._workers.read(tenant, list(scripts.values()), sorted(names))
        functions: dict[str, list[str]] = {}
        for name, outcome in zip(scripts, outcomes, strict=True):
            functions[name] = outcome.value or []
            if outcome.fault is not None:
                faults.append(Fault(paths[name], outcome.fault))
        if faults:
            raise InvalidInput.of_faults(faults)
        return _assembled(body, scripts, functions)

    async def _try(self, tenant: str, codec: Codec, examples: Sequence[CodecExample]) -> None:
        """Decode examples; raise `InvalidInput` with every fault."""
        paths = [f"examples[{at}]" for at in range(len(examples))]
        calls = [
            Call("decode", one.content(f"{path}."), one.port, 0)
            for path, one in zip(paths, examples, strict=True)
        ]
        outcomes = await self._workers.run(tenant, codec, calls) if calls else []
        faults = []
        for path, one, outcome in zip(paths, examples, outcomes, strict=True):
            try:
                given = decoded(codec.decoder, outcome.given()).properties
            except CodecFailed as error:
                faults.append(Fault(path, str(error)))
                continue
            if one.expected is not None and not is_expected(given, one.expected):
                text = msgspec.json.encode(given).decode()
                faults.append(Fault(f"{path}.expected", f"the codec gives {text:.500}"))
        if faults:
            raise InvalidInput.of_faults(faults)

    async def _history_request(
        self, tenant: str, codec: Codec, document: TslDocument
    ) -> HistoryRequest | None:
        """How devices can be asked for what they remember."""
        services = candidates(document) if codec.encoder else []
        if not services:
            return None
        calls = calls_of(services)
        answered = await self._workers.run_within(SECONDS, tenant, codec, calls)
        return judged(codec, services, answered.outcomes)


def _assembled(body: PutCodec, scripts: dict[str, str], functions: dict[str, list[str]]) -> Codec:
    """The codec of scripts whose functions are known."""
    faults = []
    for chain, steps in (("decoder", body.decoder), ("encoder", body.encoder)):
        for at, step in enumerate(steps):
            if step.script not in scripts:
                faults.append(Fault(f"{chain}[{at}].script", f"there is no {step.script}"))
            elif step.entry not in functions[step.script]:
                reason = f"{step.entry} is no function of {step.script}"
                faults.append(Fault(f"{chain}[{at}].entry", reason))
    if body.encoder and not body.decoder:
        faults.append(Fault("decoder", "is needed where encoder is given"))
    if faults:
        raise InvalidInput.of_faults(faults)
    if body.decoder:
        return Codec(scripts=scripts, decoder=body.decoder, encoder=body.encoder)
    decoder, encoder = entry_of(functions, DECODERS), entry_of(functions, ENCODERS)
    if not decoder:
        wanted = ", ".join(DECODERS)
        raise InvalidInput(f"has no function {wanted}", field="scripts" if body.scripts else ALONE)
    return Codec(scripts=scripts, decoder=decoder, encoder=encoder)


def _decoded(codec: Codec, outcome: Outcome, tsl: Tsl) -> TriedCodec:
    properties, warnings, left_out = decoded(codec.decoder, outcome.given())
    given = dict(properties)
    readings, bad = take_memories(given, tsl, 0, LATEST_MS)
    accepted, faults = tsl.check_decoded(given)
    return TriedCodec(
        properties=properties,
        warnings=warnings,
        accepted=accepted,
        history=[RememberedValues(*one) for one in readings],
        refused=_shown([*left_out, *faults, *bad]),
    )


def _encoded(codec: Codec, outcome: Outcome, port: int, refused: list[CodecFault]) -> TriedCodec:
    sent = encoded(codec.encoder, outcome.given(), port)
    return TriedCodec(
        hex=sent.content.hex(),
        base64=msgspec.to_builtins(sent.content),
        port=sent.port,
        warnings=sent.warnings,
        refused=refused,
    )


def _refused(tsl: Tsl, values: dict[str, Any]) -> list[CodecFault]:
    """What a write of values would be refused for; services are encoded as values are."""
    properties: dict[str, Any] = {k: one for k, one in values.items() if not tsl.service(k)}
    if not properties:
        return []
    try:
        tsl.check_write(properties, {})
    except InvalidValues as error:
        return _shown(error.faults)
    return []


def _shown(faults: Sequence[Fault]) -> list[CodecFault]:
    return [CodecFault(one.path, one.reason) for one in faults]
