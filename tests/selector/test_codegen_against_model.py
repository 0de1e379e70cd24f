"""Compiled predicates give what a slow and plain interpreter gives, on whatever selector and message."""

from hypothesis import example, given
from hypothesis import strategies as st

from stompring.selector import compile_selector
from tests.property.profile import examples
from tests.selector.message import LinesMessage, Message
from tests.selector.model import Model, written

NAMES = st.sampled_from(["a", "b", "c", "d"])
TEXTS = [
    "",
    "5",
    "-3",
    "+5",
    "05",
    "2.5",
    ".5",
    "5.",
    "1e3",
    "1E-2",
    "x",
    "xy",
    "X",
    "5x",
    "true",
    "False",
    " 5",
    "1_0",
]
TEXTS += [
    "9223372036854775807",
    "99999999999999999999",
    "1e999",
    "٥",
    "-",
    ".",
    "e5",
    "nan",
    "inf",
    "0x1F",
    "a%_",
    "'",
    "\n",
]
STRINGS = st.sampled_from(TEXTS) | st.text("ab5.%_'!\n", max_size=4)
NUMBERS = st.sampled_from([0, 1, 2, 5, 3, 10, 2.5, 0.5, 1000.0, 0.0, 2**63 - 1, 2**64])
PROPERTIES = st.dictionaries(
    NAMES,
    STRINGS | st.sampled_from([0, 1, 5, -3, 2.5, -0.0, True, False, 2**63 - 1, float("inf")]),
)

PROPERTY = st.tuples(st.just("property"), NAMES)
NUMBER = st.tuples(st.just("number"), NUMBERS)
STRING = st.tuples(st.just("string"), STRINGS)


def _arithmetic(values):
    return st.tuples(st.just("negative"), values) | st.tuples(
        st.just("arithmetic"), st.sampled_from("++-*/%"), values, values
    )


# A minus before a numeric constant makes one constant of both, so the model's trees have none.
VALUES = st.recursive(PROPERTY | NUMBER | STRING, _arithmetic, max_leaves=4)
ORDERED = VALUES.filter(lambda tree: tree[0] != "string")


def _compound(conditions):
    parts = st.lists(conditions, min_size=2, max_size=3)
    # A bare property beside "=" is a value; and a constant there is refused beside constants of another kind.
    operands = conditions.filter(lambda tree: tree[0] not in ("flag", "truth"))
    return (
        st.builds(lambda parts: ("and", *parts), parts)
        | st.builds(lambda parts: ("or", *parts), parts)
        | st.tuples(st.just("not"), conditions)
        | st.tuples(st.just("compare"), st.sampled_from(["=", "<>"]), operands, operands | VALUES)
        | st.tuples(st.just("null"), operands)
    )


CONDITIONS = st.recursive(
    st.tuples(st.just("compare"), st.sampled_from(["=", "<>"]), VALUES, VALUES)
    | st.tuples(
        st.just("compare"), st.sampled_from(["=", "<>"]), PROPERTY, st.tuples(st.just("truth"), st.booleans())
    )
    | st.tuples(st.just("compare"), st.sampled_from(["<", "<=", ">", ">="]), ORDERED, ORDERED)
    | st.tuples(st.just("flag"), NAMES)
    | st.tuples(st.just("truth"), st.booleans())
    | st.tuples(st.just("null"), VALUES)
    | st.tuples(st.just("in"), NAMES, st.lists(STRINGS, min_size=1, max_size=3))
    | st.tuples(st.just("like"), VALUES, STRINGS, st.none() | st.sampled_from("!%_"))
    | st.tuples(st.just("between"), ORDERED, ORDERED, ORDERED),
    _compound,
    max_leaves=6,
)


@examples(600, quick=150)
@given(tree=CONDITIONS, properties=PROPERTIES, convert=st.booleans())
def test_compiled_predicate_agrees_with_the_model(tree, properties, convert):
    prefix = "" if convert else "no_convert_string_expressions:"
    expected = Model(properties, convert).condition(tree)
    holds = compile_selector(prefix + written(tree))
    fails = compile_selector(f"{prefix}NOT ({written(tree)})")
    message = Message(properties)
    assert (holds.matches(message), fails.matches(message)) == (expected is True, expected is False)


@examples(300, quick=75)
@given(tree=CONDITIONS, properties=st.dictionaries(NAMES, STRINGS | st.just("a:b")), convert=st.booleans())
@example(
    ("compare", "<", ("number", 0), ("arithmetic", "/", ("number", 1), ("negative", ("number", 0.0)))),
    {},
    False,
)
def test_lines_of_headers_give_the_same(tree, properties, convert):
    prefix = "" if convert else "no_convert_string_expressions:"
    expected = Model(properties, convert).condition(tree)
    holds = compile_selector(prefix + written(tree))
    fails = compile_selector(f"{prefix}NOT ({written(tree)})")
    message = LinesMessage(properties)
    found = holds.matches_lines(message), fails.matches_lines(message)
    assert found == (expected is True, expected is False)
    assert message.asked == []


@examples(200, quick=50)
@given(tree=CONDITIONS, properties=PROPERTIES)
def test_only_the_named_properties_are_read(tree, properties):
    selector = compile_selector(written(tree))
    message = Message(properties)
    selector.matches(message)
    assert set(message.asked) <= selector.names
