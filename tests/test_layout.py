"""The habits of the house that a linter cannot hold: docstrings of modules, names, nothing unfinished."""

import ast
import builtins
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "stompring"
MODULES = sorted(PACKAGE.rglob("*.py"))
#: Terms of the field that have such a word in them: systemd is a service manager, HTTP servers have request handlers.
TERMS = {"ServiceManager", "RequestHandler"}
SAYS_NOTHING = {"manager", "handler", "helper", "helpers", "util", "utils", "engine"}
TEXTS = sorted(
    path
    for folder in ("stompring", "benchmarks", "config", "docs", "plugins")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".c", ".xml", ".xsd", ".yml", ".md", ".lark", ".json"}
)
#: Modules whose docstrings and comments name things of the code.
NAMING = sorted(
    path for folder in ("stompring", "benchmarks", "plugins") for path in (ROOT / folder).rglob("*.py")
)
#: Names in backticks that others have: Artemis, Java, the libraries, the system; and examples.
FOREIGN = set(
    """AWS_ ByteUtil.convertTextBytes DATA_DIR DataOutputStream DeltaTable.to_pyarrow_dataset FileStoreMonitor K
    KeyStore MessageCount TZ TransportConstants df.write df.writeStream gc.get_objects getName isName pay startTLS
    webSocketEncoderType writeStream""".split()
)
NAME = re.compile(r"`([A-Za-z_][\w.]*)(?:\(\))?`")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")


def label(path):
    return path.relative_to(ROOT).as_posix()


def words(name):
    """The words of a snake_case or CamelCase name, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def definitions(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_the_package_is_found():
    assert {"errors.py", "settings/model.py", "cli/main.py"} <= {
        path.relative_to(PACKAGE).as_posix() for path in MODULES
    }


def test_every_room_is_a_package():
    folders = {path.parent for path in MODULES}
    assert [label(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_every_module_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text())), "the module has no docstring"


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_names_say_something(path):
    names = [*path.relative_to(PACKAGE).with_suffix("").parts]
    names += [node.name for node in definitions(ast.parse(path.read_text()))]
    assert [name for name in names if words(name) & SAYS_NOTHING and name not in TERMS] == []


def test_names_in_backticks_exist():
    known = {*dir(builtins), *(part for path in NAMING for part in path.with_suffix("").parts)}
    named: list[tuple[str, str]] = []
    for path in NAMING:
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type == tokenize.NAME:
                known.add(token.string)
            elif token.type == tokenize.COMMENT or token.string.endswith('"""'):
                named += ((f"{label(path)}:{token.start[0]}", name) for name in NAME.findall(token.string))
            elif token.type == tokenize.STRING:
                known.update(re.findall(r"\w+", token.string))
    assert len(named) > 1000
    wrong = [(place, name) for place, name in named if name not in FOREIGN and set(name.split(".")) - known]
    assert [
        (place, name) for place, name in wrong if not re.search(r"\.(c|js|json|md|properties|py|xml)$", name)
    ] == []


@pytest.mark.parametrize("path", TEXTS, ids=label)
def test_nothing_is_left_for_later(path):
    lines = path.read_text().splitlines()
    assert [f"{number}: {line}" for number, line in enumerate(lines, 1) if UNFINISHED.search(line)] == []


@pytest.mark.parametrize(
    "name, expected",
    [
        ("error_handler", {"error", "handler"}),
        ("HTTPManager", {"http", "manager"}),
        ("QueueManager", {"queue", "manager"}),
        ("on_SEND", {"on", "send"}),
        ("managed", {"managed"}),
    ],
)
def test_words_of_a_name(name, expected):
    assert words(name) == expected
