"""The tables of docs/dev/store-format.md, made from the layouts in the code and the comments above them."""

import re
from struct import calcsize

from stompring.store.record import Kind

from .generated import table
from .source import PACKAGE

#: A layout with its comment: lines ``NAMES: MEANING``. A field that follows the layout has its type after its name.
LAYOUT = re.compile(r'((?:^#: .*\n)+)^(\w+): Final = Struct\("<(\w+)"\)', re.MULTILINE)
LAYOUTS = {
    found[2]: (found[1].replace("\n#:    ", " ").replace("#: ", "").splitlines(), found[3])
    for module in ("record", "segment", "page_file")
    for found in LAYOUT.finditer((PACKAGE / "store" / f"{module}.py").read_text())
}
#: Titles of sections that are not the name of their layout.
TITLES = {"HEADER": "Header", "PREFIX": "Record", "TRAILER": "Trailer", "RUN": "run", "_LENGTH": "part"}
KIND = re.compile(r"^    (\w+) = (\d+)  # ((?:journal|samples)[a-z, ]*): (.+)$", re.MULTILINE)
LINE = re.compile(r"(\w+(?: [^\s,:]+)?(?:, \w+(?: [^\s,:]+)?)*)(?:: (.+))?")
TYPES = {"B": "u8", "H": "u16", "I": "u32", "Q": "u64"}
SIZES = {kind: calcsize(code) for code, kind in TYPES.items()} | {"bytes": 1}


def fields(name):
    """The table of a layout: offset, type, name and meaning of each field."""
    lines, codes = LAYOUTS[name]
    types = []
    for count, code in re.findall(r"(\d*)(\w)", codes):
        types += [f"bytes[{count}]"] if code == "s" else [TYPES[code]] * int(count or 1)
    rows = ["| offset | type | name | meaning |", "|---:|---|---|---|"]
    at = 0
    for line in lines:
        found = LINE.fullmatch(line)
        assert found, line
        for field in found[1].split(", "):
            field, _, kind = field.partition(" ")
            kind = kind or types.pop(0)
            meaning = found[2] or (str(Kind[name].value) if field == "kind" else "")
            rows.append(f"| {'…' if at is None else at} | `{kind}` | {field} | {meaning} |")
            unit, count = re.fullmatch(r"(\w+)(?:\[(.+)\])?", kind).groups("1")
            at = None if at is None or not count.isdigit() else at + SIZES[unit] * int(count)
    assert not types, f"{name}: fields without a name"
    return "\n".join(rows)


def sections(*names):
    """The tables of layouts, each below its heading."""
    return "\n\n".join(f"### {TITLES.get(name, name)}\n\n{fields(name)}" for name in names)


def kinds():
    """The table of the kinds of records."""
    found = KIND.findall((PACKAGE / "store" / "record.py").read_text())
    rows = [(number, f"[{name}](#{name.lower()})", files, text) for name, number, files, text in found]
    return table("kind, title, in, contents", rows)
