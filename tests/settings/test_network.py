"""Web origins as broker.xml names them and as browsers send them."""

import pytest

from stompring.settings.urls import PARAMETER_TYPES

origins = PARAMETER_TYPES["origins"].read


@pytest.mark.parametrize(
    "text, expected",
    [
        ("https://App.Example.com", "https://app.example.com"),
        ("https://app.example.com:443/", "https://app.example.com"),
        ("http://app.example.com:443", "http://app.example.com:443"),
        ("http://[::1]:80", "http://[::1]"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("chrome-extension://abcdef", "chrome-extension://abcdef"),
        ("NULL", "null"),
    ],
)
def test_one_spelling_of_an_origin(text, expected):
    assert origins(text) == (expected,)


@pytest.mark.parametrize(
    "text",
    ["", "app.example.com", "https://", "//a", "https://a/path", "https://a?x", "https://u@a", "http://a:b"],
)
def test_invalid_origins_are_rejected(text):
    with pytest.raises(ValueError):
        origins(text)


def test_lists():
    assert origins("*") == ("*",)
    assert origins("https://b, null ,http://a:8080") == ("https://b", "null", "http://a:8080")
    with pytest.raises(ValueError, match="a comma-separated list of"):
        origins("https://a,,https://b")
