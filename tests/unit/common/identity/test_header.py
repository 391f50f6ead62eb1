"""The internal header: made by the gateway alone, valid for seconds."""

import base64

import msgspec
import pytest

from libs.common.errors import Unauthenticated
from libs.common.identity import (
    HeaderSigner,
    HeaderVerifier,
    Principal,
    PrincipalKind,
    generate_keys,
)
from libs.common.identity.header import (
    HEADER_LIFETIME_SECONDS,
    HEADER_REUSE_SECONDS,
    MAX_CACHED_HEADERS,
)

WHO = Principal(PrincipalKind.APPLICATION, "default", "1", name="app")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pair(clock: Clock) -> tuple[HeaderSigner, HeaderVerifier]:
    private, public = generate_keys()
    return HeaderSigner(private, clock), HeaderVerifier(public, clock)


def test_a_signed_principal_is_verified(pair: tuple[HeaderSigner, HeaderVerifier]):
    """The verified principal equals the signed one, also from the cache."""
    signer, verifier = pair
    for _ in range(2):
        assert verifier.verify(signer.sign(WHO)) == WHO


def test_every_flipped_bit_is_refused(pair: tuple[HeaderSigner, HeaderVerifier]):
    """No bit of payload or signature may change, and a failure is not remembered as good."""
    signer, verifier = pair
    value = signer.sign(WHO)
    parts = [base64.urlsafe_b64decode(part + "==") for part in value.split(".")]
    for which, part in enumerate(parts):
        for bit in range(0, len(part) * 8, 5):
            changed = bytearray(part)
            changed[bit // 8] ^= 1 << bit % 8
            pieces = [bytes(changed) if n == which else one for n, one in enumerate(parts)]
            forged = ".".join(base64.urlsafe_b64encode(one).rstrip(b"=").decode() for one in pieces)
            for _ in range(2):
                with pytest.raises(Unauthenticated):
                    verifier.verify(forged)
    assert verifier.verify(value) == WHO


@pytest.mark.parametrize("name", ["app", "apps", "apple"])
def test_every_flipped_bit_of_the_text_is_refused(
    pair: tuple[HeaderSigner, HeaderVerifier], name: str
):
    """Also those bits of base64's last character that mean nothing."""
    signer, verifier = pair
    value = signer.sign(msgspec.structs.replace(WHO, name=name)).encode()
    for bit in range(len(value) * 8):
        changed = bytearray(value)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Unauthenticated):
            verifier.verify(changed.decode("latin-1"))


@pytest.mark.parametrize("value", [None, "", "x", ".", "a.b", "a.b.c", "é.é", "=.=", "AAAA.AAAA"])
def test_an_invalid_header_is_rejected(
    pair: tuple[HeaderSigner, HeaderVerifier], value: str | None
):
    """Every invalid header gets 401, never an internal error."""
    with pytest.raises(Unauthenticated):
        pair[1].verify(value)


def test_another_key_is_refused(pair: tuple[HeaderSigner, HeaderVerifier], clock: Clock):
    """Only the gateway's key counts."""
    with pytest.raises(Unauthenticated):
        pair[1].verify(HeaderSigner(generate_keys()[0], clock).sign(WHO))


def test_a_header_expires_also_from_memory(pair: tuple[HeaderSigner, HeaderVerifier], clock: Clock):
    """A value that was verified before is refused from its end on."""
    signer, verifier = pair
    value = signer.sign(WHO)
    clock.now += HEADER_LIFETIME_SECONDS - 0.001
    assert verifier.verify(value) == WHO
    clock.now += 0.001
    for _ in range(2):
        with pytest.raises(Unauthenticated, match="expired"):
            verifier.verify(value)


def test_the_gateway_sends_a_header_again_while_it_has_long_to_live(
    pair: tuple[HeaderSigner, HeaderVerifier], clock: Clock
):
    """The same value for some seconds, then a new one; another principal has its own."""
    signer, _ = pair
    value = signer.sign(WHO)
    clock.now += HEADER_REUSE_SECONDS - 0.001
    assert signer.sign(WHO) == value
    assert signer.sign(Principal(PrincipalKind.APPLICATION, "default", "2")) != value
    clock.now += 0.001
    assert signer.sign(WHO) != value


def test_memory_is_bounded(pair: tuple[HeaderSigner, HeaderVerifier]):
    """A flood of principals does not grow either end without limit."""
    signer, verifier = pair
    for number in range(MAX_CACHED_HEADERS + 5):
        signer._signed.put(Principal(PrincipalKind.DEVICE, "t", str(number)), (0.0, ""))
        verifier._verified.put(str(number), None)  # type: ignore[arg-type]
    verifier.verify(signer.sign(WHO))
    assert len(signer._signed) == MAX_CACHED_HEADERS
    assert len(verifier._verified) == MAX_CACHED_HEADERS
