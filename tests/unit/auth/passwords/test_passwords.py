"""The rule of passwords and addresses, and the threads that hash, without a server."""

import asyncio
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from argon2 import PasswordHasher
from hypothesis import given
from hypothesis import strategies as st

from libs.common.errors import InvalidInput, TooManyRequests
from services.auth import passwords as hashing
from services.auth.passwords import MAX_WAITING_HASHES_PER_TENANT, PasswordHasherPool
from services.auth.users.rules import (
    generate_password,
    validate_email,
    validate_nickname,
    validate_password,
)

PRINTABLE = [chr(code) for code in range(33, 127)]


@given(st.text(PRINTABLE, min_size=5, max_size=60).map(lambda text: f"aB3{text}"))
def test_printable_ascii_with_all_three_sorts_is_a_password(text):
    """Any further characters are allowed."""
    assert validate_password(text) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "blank"),
        ("        ", "blank"),
        ("Abcdef1", "8 to 63"),
        ("Abcdef1" * 9 + "x", "8 to 63"),
        ("Abc def1", "printable ASCII"),
        ("Abcdef1\n", "printable ASCII"),
        ("Abcdef1ü", "printable ASCII"),
        ("abcdefg1", "upper-case"),
        ("ABCDEFG1", "lower-case"),
        ("Abcdefgh", "digit"),
        ("!!!!!!!!", "upper-case letter, a lower-case letter, a digit"),
    ],
)
def test_the_error_of_a_weak_password_names_the_missing_part(text, reason):
    """It names the field, too."""
    with pytest.raises(InvalidInput, match=reason) as caught:
        validate_password(text, "new_password")

    assert (caught.value.status, caught.value.field) == (400, "new_password")


def test_made_passwords_satisfy_the_rule_and_differ():
    """A hundred generated passwords are valid and distinct."""
    made = {validate_password(generate_password()) for _ in range(100)}

    assert len(made) == 100


@pytest.mark.parametrize(
    "text", ["a@b.de", " first.last+tag@sub.example.com ", "o'neil@ex-ample.org", "A@B.CO"]
)
def test_addresses_that_people_have_are_taken(text):
    """Without the space around them."""
    assert validate_email(text) == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a@b",
        "@example.com",
        "a@",
        "a b@example.com",
        "a@exa_mple.com",
        "a@-b.com",
        "a@b.com\n.de",
        "a@b.com\x00",
        "ä@example.com",
        f"{'a' * 65}@example.com",
        f"a@{'b.' * 130}com",
    ],
)
def test_an_invalid_email_address_is_rejected(text):
    """The error is 400 and names `email`."""
    with pytest.raises(InvalidInput) as caught:
        validate_email(text)

    assert (caught.value.status, caught.value.field) == (400, "email")


def test_a_nickname_has_1_to_127_printable_characters():
    """Of any script."""
    assert validate_nickname(" Ünal 🚀 ") == "Ünal 🚀"
    for bad in ("", " ", "n" * 128, "a\nb"):
        with pytest.raises(InvalidInput) as caught:
            validate_nickname(bad)
        assert caught.value.field == "nickname"


async def test_a_hash_matches_its_password_only():
    """No hash at all matches nothing, and costs the same."""
    hashes = PasswordHasherPool(threads=1)

    stored = await hashes.hash("t1", "Passw0rd")

    assert stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert await hashes.matches("Passw0rd", stored)
    assert not await hashes.matches("passw0rd", stored)
    assert not await hashes.matches("Passw0rd", None)
    hashes.close()


async def test_a_hash_of_other_parameters_is_renewed():
    """At the next log-in."""
    hashes = PasswordHasherPool(threads=1)

    weaker = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("Passw0rd")

    renewed = await hashes.rehash_if_outdated("Passw0rd", weaker)
    assert renewed is not None
    assert await hashes.rehash_if_outdated("Passw0rd", renewed) is None
    assert await hashes.matches("Passw0rd", renewed)
    hashes.close()


class SlowHasher:
    """Counts hashes, which wait until they are let go."""

    def __init__(self) -> None:
        self.hashed = 0
        self.go_on = threading.Event()

    def hash(self, password: str) -> str:
        self.go_on.wait()
        self.hashed += 1
        return password

    def verify(self, stored: str, password: str) -> bool:
        return stored == password


@pytest.fixture
def slow(monkeypatch) -> SlowHasher:
    hasher = SlowHasher()
    monkeypatch.setattr(hashing, "_hasher", hasher)
    return hasher


async def test_new_passwords_delay_a_log_in_by_one_hash(slow):
    """However many callers create users, of its own tenant or of others."""
    hashes = PasswordHasherPool(threads=1)
    creating = [
        asyncio.ensure_future(hashes.hash(f"t{number % 3}", "x")) for number in range(3 * 64)
    ]
    await asyncio.sleep(0)
    log_in = asyncio.ensure_future(hashes.matches("x", "x"))
    await asyncio.sleep(0)
    slow.go_on.set()

    assert await log_in
    assert slow.hashed <= 2
    assert await asyncio.gather(*creating) == ["x"] * 3 * 64
    hashes.close()


async def test_new_passwords_of_tenants_are_hashed_in_turns(slow):
    """One that comes behind a crowd of another tenant waits for a few hashes, not for all."""
    hashes = PasswordHasherPool(threads=1)
    crowd = [asyncio.ensure_future(hashes.hash("loud", "x")) for _ in range(64)]
    await asyncio.sleep(0)
    other = asyncio.ensure_future(hashes.hash("quiet", "x"))
    await asyncio.sleep(0)
    slow.go_on.set()

    await other
    assert slow.hashed <= 4
    await asyncio.gather(*crowd)
    hashes.close()


async def test_new_passwords_beyond_the_queue_of_a_tenant_are_refused(slow):
    """A bounded number waits; one that gives up makes no room before its thread is free."""
    hashes = PasswordHasherPool(threads=1)
    waiting = [
        asyncio.ensure_future(hashes.hash("loud", "x"))
        for _ in range(1 + MAX_WAITING_HASHES_PER_TENANT)
    ]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)

    with pytest.raises(TooManyRequests):
        await hashes.hash("loud", "x")

    slow.go_on.set()
    assert await asyncio.gather(*waiting[1:], hashes.hash("quiet", "x")) == ["x"] * (
        1 + MAX_WAITING_HASHES_PER_TENANT
    )
    hashes.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority per thread")
def test_a_service_of_low_priority_hashes_passwords():
    """A thread keeps a lower priority, because only root may raise it."""

    def lower_twice() -> int:
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, 15)
        hashing._lower_thread_priority()
        return os.getpriority(os.PRIO_PROCESS, thread)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lower_twice).result() == 15
