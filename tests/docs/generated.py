"""The generated parts of pages.

A line ``<!-- generated: MODULE.FUNCTION ARGUMENT, … -->`` of a page stands for the Markdown that the function
returns. The site has that text (docs/site_hooks.py), and the tests of pages read it; no file of the checkout has it.
"""

import re
from importlib import import_module

MARK = re.compile(r"^<!-- generated: (\w+)\.(\w+)(?: (.+?))? -->\n", re.MULTILINE)


def escaped(cell):
    """Text in a table of Markdown."""
    return re.sub(
        r"(`[^`]*`)|[<*]", lambda found: found[1] or f"&#{ord(found[0])};", cell.replace("|", "\\|")
    )


def table(heads, rows):
    """A table of Markdown; the headings have ", " between them."""
    columns = heads.split(", ")
    lines = [f"| {' | '.join(map(escaped, line))} |" for line in (columns, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(columns), *lines[1:]])


def expanded(text):
    """A page with its generated parts. Each is the Markdown that a function of a module of this package returns."""

    def part(found):
        module = import_module(f".{found[1]}", __package__)
        return str(getattr(module, found[2])(*(found[3].split(", ") if found[3] else ()))).strip("\n") + "\n"

    return MARK.sub(part, text)
