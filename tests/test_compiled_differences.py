"""The lint of compiled modules finds each construct that mypyc compiles to something else, and nothing else."""

import pytest

from .compiled_differences import ROOT, compiled_modules, differences, interpreted_subclasses

DIFFERENT = {
    "ordering without hash": ("class A:\n    def __lt__(self, other): ...", "no __hash__"),
    "two types of one name": (
        "def f():\n    try: ...\n    except A as e: ...\n    except B as e: ...",
        "'e' is of type A",
    ),
    "two types in two statements": (
        "def f():\n    try: ...\n    except A as e: ...\n    try: ...\n    except B as e: ...",
        "'e' is of type A",
    ),
    "built-in base": ("class A(int): ...", "built-in base"),
    "another class attribute of mypyc": (
        "@mypyc_attr(supports_weakref=True)\nclass A(int): ...",
        "built-in base",
    ),
    "weak references": ("class A:\n    __slots__ = ('a', '__weakref__')", "supports_weakref"),
    "default of an exception": ("class A(Exception):\n    limit: str | None = None", "lack the defaults"),
    "default of a refusal": ("class A(Refused):\n    status = 404", "lack the defaults"),
    "__new__ of cls": ("def f(cls): return cls.__new__(cls)", "__new__"),
    "__new__ of object": ("new = object.__new__", "__new__"),
    "copy": ("from copy import copy", "copied"),
    "pickle": ("import pickle", "pickled"),
    "cached property": ("class A:\n    @cached_property\n    def a(self): ...", "cached_property"),
    "protocol at run time": ("@runtime_checkable\nclass A(Protocol): ...", "runtime_checkable"),
    "dataclass of an exception": (
        "@dataclass\nclass A(Exception):\n    reason: str",
        "cannot be a dataclass",
    ),
    "type of a field": (
        "if TYPE_CHECKING:\n    from b import B\nclass A(NamedTuple):\n    b: B",
        "'B' is looked up",
    ),
    "lazy expression": ("def f(): return (g(a) for a in b)", "becomes a list"),
    "expression that is iterated": ("for a in (g(b) for b in c): ...", "becomes a list"),
    "expression in a variable": ("found = (a for a in b)\nnext(found)", "becomes a list"),
    "vars": ("vars(x)", "vars()"),
    "signature": ("inspect.signature(x)", "signature()"),
    "__dict__": ("x.__dict__", "__dict__"),
    "groups of a match": ("key = found.group(*places)", "returns no tuple"),
    "__func__": ("x.method.__func__", "__func__"),
}

SAME = {
    "groups of a match as Any": "group: Any = found.group\nkey = group(*places)",
    "groups by number": "found.group(1, 2)",
    "ordering with hash": "class A:\n    def __lt__(self, other): ...\n    def __hash__(self): ...",
    "ordering with the hash of object": "class A:\n    __hash__ = object.__hash__\n    def __lt__(self, other): ...",
    "one type twice": "def f():\n    try: ...\n    except A as e: ...\n    try: ...\n    except A as e: ...",
    "two names": "def f():\n    try: ...\n    except A as a: ...\n    except B as b: ...",
    "one name in two functions": "def f():\n    try: ...\n    except A as e: ...\n\n"
    "    def g():\n        try: ...\n        except B as e: ...",
    "interpreted class": "@mypyc_attr(native_class=False)\nclass A(int):\n    def __lt__(self, other): ...",
    "weak references": "@mypyc_attr(supports_weakref=True)\nclass A:\n    __slots__ = ('__weakref__',)",
    "attribute of an exception": "class A(Exception):\n    limit: str\n    def __init__(self): self.limit = 'a'",
    "type of a field in quotes": "if TYPE_CHECKING:\n    from b import B\nclass A(NamedTuple):\n    b: 'B'",
    "imported type of a field": "from b import B\nclass A(NamedTuple):\n    b: B",
    "__new__ of an interpreted class": "@mypyc_attr(native_class=False)\nclass A(int):\n"
    "    def __new__(cls): return int.__new__(cls, 1)",
    "expression in a call": "any(a for a in b)\nsum(a for a in b)\nb','.join(a for a in b)\nnext((a for a in b), 0)",
    "expression in a display": "c = [0, *(a for a in b)]\nd, e = (a for a in b)",
    "exempt": "from copy import copy  # of an object without arguments. # compiled: same",
}


@pytest.mark.parametrize("source, text", DIFFERENT.values(), ids=DIFFERENT)
def test_a_difference_is_found(source, text):
    ((_, found),) = differences(source)
    assert text in found


@pytest.mark.parametrize("source", SAME.values(), ids=SAME)
def test_what_is_compiled_to_the_same_is_no_difference(source):
    assert differences(source) == []


@pytest.mark.parametrize("path", compiled_modules(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_compiled_modules_have_no_difference(path):
    assert differences(path.read_text()) == []


def test_no_class_of_python_has_a_base_that_is_closed_to_it():
    assert list(interpreted_subclasses()) == []


@pytest.mark.parametrize(
    "base, found",
    [
        ("class BaseError(Exception):\n    pass\n", 0),
        ("class Base:\n    pass\n", 1),
        ("@mypyc_attr(allow_interpreted_subclasses=True)\nclass Base:\n    pass\n", 0),
        ("class BaseError(Exception):\n    def __init__(self): ...\n", 1),
        ("class BaseError(Exception):\n    def __init__(self): ...\nclass More(BaseError): ...\n", 0),
        ("@mypyc_attr(native_class=False)\nclass BaseError(Exception):\n    def __init__(self): ...\n", 1),
        (
            "@mypyc_attr(allow_interpreted_subclasses=True)\n"
            "class BaseError(Exception):\n    def __init__(self): ...\n",
            0,
        ),
    ],
)
def test_a_class_of_python_with_a_compiled_base_is_found(tmp_path, base, found):
    """The methods of a compiled exception without compiled subclasses take objects of that class alone."""
    for directory in ("stompring/broker", "stompring/admin", "plugins"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.stompring]\ncompiled = ["broker"]\n')
    (tmp_path / "stompring/broker/base.py").write_text(base)
    (tmp_path / "stompring/admin/sub.py").write_text("class Sub(Base): ...\nclass More(BaseError): ...\n")
    assert len(list(interpreted_subclasses(tmp_path))) == found
