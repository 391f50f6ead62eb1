"""Sealed secrets: of use with the key and for their owner only."""

import pytest

from libs.common.identity import generate_keys
from libs.common.identity.seal import Seal, SealBroken


def test_sealed_data_can_be_opened():
    """It needs the same key and context; each seal looks different."""
    seal = Seal(generate_keys()[0])
    first, second = seal.seal("s3cret", "acme"), seal.seal("s3cret", "acme")
    assert first != second
    assert "s3cret" not in first
    assert seal.open(first, "acme") == seal.open(second, "acme") == "s3cret"


@pytest.mark.parametrize("change", ["key", "context", "text", "nonsense"])
def test_nothing_else_opens_it(change):
    """Another key, another owner, an altered text, and no seal at all."""
    key, other = generate_keys()
    sealed = Seal(key).seal("s3cret", "acme")
    opener = Seal(other if change == "key" else key)
    text = {"text": "A" + sealed[1:] if sealed[0] != "A" else "B" + sealed[1:], "nonsense": "%"}
    with pytest.raises(SealBroken):
        opener.open(text.get(change, sealed), "other" if change == "context" else "acme")
