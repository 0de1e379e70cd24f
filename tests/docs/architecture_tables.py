"""The table of packages of docs/dev/architecture.md, from their docstrings and imports."""

import ast

from benchmarks.results import markdown

from .source import PACKAGE, imports_of, parsed

PACKAGES = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def packages():
    """Each package with the first line of its docstring, and the packages that it imports."""
    rows = []
    for name in PACKAGES:
        subject = (ast.get_docstring(parsed(PACKAGE / name / "__init__.py")) or "").partition("\n")[0]
        imported = sorted(imports_of(name) & {*PACKAGES, "errors"} - {name})
        rows.append([f"`{name}`", subject, " ".join(f"`{each}`" for each in imported)])
    return markdown(["package", "subject", "imports"], rows)
