import pytest

from libs.common.bus.nkeys import KeyKind, KeyPair, NkeyError, verify

# Made with the `nkeys` package 0.2.1 from the raw seed 00 01 … 1f; Ed25519 is deterministic.
VECTORS = [
    (
        KeyKind.ACCOUNT,
        "SAAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4HYMHI",
        "AAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3QPZV",
    ),
    (
        KeyKind.USER,
        "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y",
        "UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK",
    ),
    (
        KeyKind.SERVER,
        "SNAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H2D5U",
        "NAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RSWB",
    ),
]
SIGNATURE_OF_HI = bytes.fromhex(
    "0794319ef7f79818813e6bd240aeaa32d85b17412c93453a1a2ca5da0e9f5ef3"
    "c1802c97a96b06339cd0a6b85d4422d3bc3628d3d7e7582b97a4c19fea8ec200"
)


@pytest.mark.parametrize(("kind", "seed", "public"), VECTORS)
def test_a_seed_gives_the_key_pair_that_the_reference_gives(kind, seed, public):
    """Kind, public key, seed and signature equal those of the `nkeys` package."""
    key = KeyPair.from_seed(seed)

    assert (kind, public, seed) == (key.kind, key.public_key, key.seed)
    assert key.sign(b"hi") == SIGNATURE_OF_HI


@pytest.mark.parametrize(("kind", "letter"), [(KeyKind.ACCOUNT, "A"), (KeyKind.USER, "U")])
def test_a_new_key_survives_its_seed(kind, letter):
    """A created key starts with its kind's letter and is the same after being read back."""
    key = KeyPair.create(kind)

    assert key.public_key.startswith(letter)
    assert key.seed.startswith("S" + letter)
    assert KeyPair.from_seed(key.seed).public_key == key.public_key


def test_a_signature_belongs_to_one_key_and_one_text():
    """Another text or another key does not verify."""
    key, other = KeyPair.create(KeyKind.SERVER), KeyPair.create(KeyKind.SERVER)
    signature = key.sign(b"a")

    assert verify(key.public_key, KeyKind.SERVER, b"a", signature)
    assert not verify(key.public_key, KeyKind.SERVER, b"b", signature)
    assert not verify(other.public_key, KeyKind.SERVER, b"a", signature)


def test_a_key_of_another_kind_is_refused():
    """A user's key cannot stand for a server's."""
    user = KeyPair.create(KeyKind.USER)

    with pytest.raises(NkeyError, match="server"):
        verify(user.public_key, KeyKind.SERVER, b"a", user.sign(b"a"))


@pytest.mark.parametrize(
    "seed",
    [
        "",
        "S",
        "not base32!",
        VECTORS[0][1][:-1] + "A",
        VECTORS[0][1].replace("CAKB", "CAKA"),
        VECTORS[0][2],
    ],
)
def test_a_broken_seed_is_refused(seed):
    """Wrong length, alphabet, checksum or kind raises `NkeyError`, nothing else."""
    with pytest.raises(NkeyError):
        KeyPair.from_seed(seed)
