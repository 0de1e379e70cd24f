"""Files that come with stompring: the example configurations, the shipped plugins, the schema, the console.

In a checkout, and in an editable installation of one, ``config/`` and ``plugins/`` are beside the package; a wheel has
copies of them inside the package, in ``stompring/shipped`` (setup.py).
"""

from __future__ import annotations

from pathlib import Path

from stompring.errors import ConfigurationError

PACKAGE = Path(__file__).resolve().parent.parent

#: Directories that are part of the package in a checkout as well.
IN_PACKAGE = {"console": PACKAGE / "console", "schema": PACKAGE / "settings"}

#: Directories of the checkout that a wheel has in ``stompring/shipped``.
COPIED = ("config", "plugins")


def shipped_directory(name: str) -> Path:
    """The absolute path of ``config``, ``plugins``, ``console`` or ``schema`` (of schema.xsd). The files are read-only.

    Raises ConfigurationError if the installation lacks it, and ValueError for another name.
    """
    if name in IN_PACKAGE:
        candidates = [IN_PACKAGE[name]]
    elif name in COPIED:
        candidates = [PACKAGE / "shipped" / name, PACKAGE.parent / name]
    else:
        raise ValueError(f"'{name}' is not a shipped directory: {', '.join((*COPIED, *IN_PACKAGE))}")
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    raise ConfigurationError(f"the installation of stompring lacks {candidates[0]}: install stompring again")


def shipped_file(directory: str, *parts: str) -> Path:
    """The absolute path of one shipped file: ``shipped_file("config", "broker.xml")``.

    Raises ConfigurationError if the installation lacks it.
    """
    path = shipped_directory(directory).joinpath(*parts)
    if not path.is_file():
        raise ConfigurationError(f"the installation of stompring lacks {path}: install stompring again")
    return path
