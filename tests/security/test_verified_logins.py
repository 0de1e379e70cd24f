"""Logins that are not checked again for a moment."""

import pytest

from stompring.security import access
from stompring.security.access import Identity, VerifiedLogins

from .test_login_throttle import Time

ADA = Identity("ada")


def test_verified_login_is_cached_for_a_while():
    time = Time()
    one = VerifiedLogins(10, time)
    digest = one.digest(1, "ada", "lovelace")
    assert not one.get(digest)
    one.add(digest, ADA)
    assert one.get(one.digest(1, "ada", "lovelace"))
    time.now += 9.9
    assert one.get(digest)
    time.now += 9.9
    assert one.get(digest), "each use prolongs it"
    time.now += 10
    assert not one.get(digest)
    fixed = VerifiedLogins(10, time, prolong=False)
    fixed.add(digest, ADA)
    time.now += 9
    assert fixed.get(digest) == ADA
    time.now += 1
    assert not fixed.get(digest), "a use does not prolong it"


@pytest.mark.parametrize(
    "generation, name, password",
    [
        (2, "ada", "lovelace"),
        (1, "ada", "Lovelace"),
        (1, "adal", "ovelace"),
        (1, "a", "dalovelace"),
        (1, "", ""),
    ],
)
def test_nothing_else_is(generation, name, password):
    one = VerifiedLogins(10, Time())
    one.add(one.digest(1, "ada", "lovelace"), ADA)
    assert not one.get(one.digest(generation, name, password))


def test_no_password_is_kept_and_digests_differ_by_process():
    one, other = VerifiedLogins(10, Time()), VerifiedLogins(10, Time())
    one.add(one.digest(1, "ada", "lovelace"), ADA)
    assert b"lovelace" not in b"".join(one._expiry)
    assert one.digest(1, "ada", "lovelace") != other.digest(1, "ada", "lovelace")


def test_cache_is_disabled_by_zero_and_limited(monkeypatch):
    none = VerifiedLogins(0, Time())
    none.add(b"x", ADA)
    assert not none.get(b"x") and not none._expiry
    monkeypatch.setattr(access, "MAX_VERIFIED_LOGINS", 3)
    one = VerifiedLogins(10, Time())
    for digest in (b"a", b"b", b"a", b"c", b"d"):
        one.add(digest, ADA)
    assert [one.get(digest) is not None for digest in (b"a", b"b", b"c", b"d")] == [True, False, True, True]
    one.clear()
    assert not one.get(b"a")


def test_half_characters():
    one = VerifiedLogins(10, Time())
    one.add(one.digest(1, "a\ud800", "\udfff"), ADA)
    assert one.get(one.digest(1, "a\ud800", "\udfff"))
