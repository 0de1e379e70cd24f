"""Password hashes and what a password may be."""

import argon2
import pytest
from argon2.exceptions import VerifyMismatchError

from stompring.security.accounts import HASHER, check_password, dummy_hash, is_argon2

from .hashers import QUICK, QUICK_BUT_OTHER


def test_new_hashes_are_as_strong_as_rfc_9106_asks():
    assert argon2.extract_parameters(HASHER.hash("x")) == argon2.profiles.RFC_9106_LOW_MEMORY


@pytest.mark.parametrize("password", ["x", "pass word", " blanks ", "schlüssel", "a=b#c:d", "x" * 10_000])
def test_passwords_that_may_be(password):
    check_password(password)


@pytest.mark.parametrize(
    "password, reason",
    [
        ("", "cannot be empty"),
        ("two\nlines", "a line end or a NUL"),
        ("two\rlines", "a line end or a NUL"),
        ("nul\0", "a line end or a NUL"),
        ("half a \ud800 pair", "valid UTF-8"),
    ],
)
def test_passwords_that_may_not(password, reason):
    with pytest.raises(ValueError, match=reason):
        check_password(password)


@pytest.mark.parametrize("type_", list(argon2.Type))
def test_all_kinds_of_argon2_are_recognised(type_):
    assert is_argon2(argon2.PasswordHasher(1, 8, 1, type=type_).hash("x"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret",
        "$2b$12$GhvMmNVjRW29ulnudl.LbuAnUtN/LRfe1JsBm1Xu6LE3059z5Tr8m",
        "$argon2id$",
        "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ",
        "$argon2id$v=19$m=many,t=3,p=4$c29tZXNhbHQ$c29tZXNhbHQ",
        "$argon2id$v=19$m=65536,t=3,p=4$!!!!$c29tZXNhbHQ",
        "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$ä",
    ],
)
def test_invalid_argon2_hashes(text):
    assert not is_argon2(text)


@pytest.mark.parametrize("hasher", [QUICK, QUICK_BUT_OTHER, HASHER])
def test_an_unmatchable_hash_costs_the_same_and_matches_nothing(hasher):
    fake = dummy_hash(hasher)
    assert argon2.extract_parameters(fake) == argon2.extract_parameters(hasher.hash("x"))
    with pytest.raises(VerifyMismatchError):  # and not InvalidHashError, which would come too soon
        hasher.verify(fake, "")
