"""The build steps that setup.cfg cannot express: shipped files in a wheel, and compiled modules on request.

A wheel has copies of ``config/``, ``examples/`` and ``plugins/`` in ``stompring/shipped``, and HTML of the pages of
``docs/`` for users. With ``STOMPRING_COMPILE=1`` mypyc and a C compiler make extension modules of what pyproject.toml
lists in ``[tool.stompring]``. Python imports these and not the modules beside them. ``python setup.py compile`` builds
such a copy of a checkout, in ``build/compiled``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from setuptools import Command, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent

#: Shipped directories, and the types of their files. Others, such as a users file of a broker that runs here, stay out.
SHIPPED = {
    "config": {".xml", ".json", ".yml", ".yaml", ".service", ".conf", ".cfg", ".res", ".toml"},
    "examples": {".ipynb", ".py", ".rb"},
    "plugins": {".py"},
}

#: A page of the documentation as HTML, with the style of the console.
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}: stompring</title><link rel="icon" href="{top}console/icon.svg">
<link rel="stylesheet" href="{top}console/style.css"></head>
<body class="document"><nav><a href="{top}">Console</a> <a href="{top}docs/">Documentation</a></nav><main>
{body}</main></body></html>
"""

#: What stands for a generated part, which takes the whole package to make.
GENERATED = "*The site of the documentation has a table here. So have `stompring settings` and `/api/v1/openapi.json`.*"

#: Another minor version may compile the same module to something else. setup.cfg has it as the extra `compile`.
COMPILER = "mypy[mypyc] >=2.4, <2.5"

#: Asked for (1), forbidden (0: `make run` does not compile either), or neither.
COMPILE = os.environ.get("STOMPRING_COMPILE", "")


def compiled_modules() -> list[str]:
    """Paths of the modules that are compiled: those of ``[tool.stompring]`` in pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["stompring"]
    found: list[str] = []
    for name in settings["compiled"]:
        path = ROOT / "stompring" / name.replace(".", "/")
        modules = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        found += [str(module.relative_to(ROOT)) for module in modules if module.name != "__init__.py"]
    return found


def native_modules() -> list[Extension]:
    """Modules in C, which only the compiled build has. Each does what Python code does where it is absent."""
    return [
        Extension(".".join(path.relative_to(ROOT).with_suffix("").parts), [str(path.relative_to(ROOT))])
        for path in sorted((ROOT / "stompring").rglob("*.c"))
    ]


class BuildWithShippedFiles(build_py):
    """Copies the shipped files. An editable installation uses those of the checkout (stompring/settings/machine.py)."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for source, target in self._shipped():
            self.mkpath(str(target.parent))
            if target.suffix == ".html":
                target.write_text(page(source), encoding="utf-8")
            else:
                self.copy_file(str(source), str(target))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *(str(target) for _, target in self._shipped())]

    def _shipped(self) -> list[tuple[Path, Path]]:
        build = Path(self.build_lib) / "stompring" / "shipped"
        copied = [
            (path, build / path.relative_to(ROOT))
            for directory, types in SHIPPED.items()
            for path in sorted((ROOT / directory).rglob("*"))
            if path.is_file() and path.suffix in types and "__pycache__" not in path.parts
        ]
        return copied + [(path, (build / path.relative_to(ROOT)).with_suffix(".html")) for path in pages()]


def pages() -> list[Path]:
    """The pages for users; those in docs/dev are for contributors, who have a checkout."""
    return [path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent.name != "dev"]


def page(path: Path) -> str:
    """A page as HTML. Links between pages lead to each other; links to files that a wheel lacks become text."""
    from markdown_it import MarkdownIt

    text = path.read_text(encoding="utf-8")
    text = re.sub("^<!-- generated: .*? -->$", GENERATED, text, flags=re.MULTILINE)
    text = re.sub("^(<!-- .*? -->|!\\[.*)\n", "", text, flags=re.MULTILINE)  # a wheel has no pictures
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    tokens = markdown.parse(text)
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            plain = "".join(each.content for each in tokens[at + 1].children or ())
            token.attrSet("id", re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-"))
        for child in token.children or ():
            found = re.fullmatch(r"([^:#]+\.\w+)(#.*)?", str(child.attrGet("href") or ""))
            if found is None:
                continue
            if (path.parent / found[1]).resolve() in pages():
                child.attrSet("href", found[1].removesuffix(".md") + (found[2] or ""))
            else:
                del child.attrs["href"]
    top = "../" * len(path.relative_to(ROOT / "docs").parts)
    # wide blocks scroll, also by keyboard
    body = re.sub(
        "<(pre|table)>", r'<\1 tabindex="0">', markdown.renderer.render(tokens, markdown.options, {})
    )
    return PAGE.format(title=text.partition("\n")[0].lstrip("# "), top=top, body=body)


class BuildCompiledModules(build_ext):
    """Replaces the placeholder in ``ext_modules`` by what mypyc makes. Metadata and sdist need only the placeholder."""

    def run(self) -> None:
        if self.inplace or self.editable_mode:
            # Extension modules in a checkout would hide every later change of their sources.
            print("an editable installation is not compiled", file=sys.stderr)
            return
        from mypyc.build import mypycify

        # The settings in pyproject.toml need a plugin of mypy, and the libraries of all packages.
        options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
        options.append(f"--cache-dir={Path(self.build_temp, 'mypy')}")
        modules = mypycify(
            [*options, *compiled_modules()],
            opt_level="2",
            debug_level="0",
            multi_file=True,  # the C compiler would need minutes, and much memory, for a single file
            target_dir=str(Path(self.build_temp, "c")),
        )
        self.distribution.ext_modules = [*modules, *native_modules()]
        self.reinitialize_command(self).ensure_finalized()
        self.parallel = os.cpu_count()
        super().run()

    def build_extensions(self) -> None:
        compiler: Any = self.compiler
        compiler.compile = in_parallel(compiler.compile)
        super().build_extensions()

    def get_source_files(self) -> list[str]:
        return []  # an sdist has no generated files


def in_parallel(compile_all: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """A compiler's method ``compile`` with one process per processor."""

    def compile_each(sources: list[str], *arguments: Any, **options: Any) -> list[str]:
        def compile_one(source: str) -> list[str]:
            return compile_all([source], *arguments, **options)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return [made for each in pool.map(compile_one, sources) for made in each]

    return compile_each


class Compile(Command):
    """Build the compiled copy of this checkout, unless it is up to date."""

    description = "build a compiled copy of this checkout in build/compiled"
    user_options = [
        (
            "background",
            None,
            "if it is not up to date, build it in the background, report that, and exit with 1",
        ),
    ]
    boolean_options = ["background"]
    background: bool

    target = ROOT / "build" / "compiled"
    log = ROOT / "build" / "compile.log"
    failed = ROOT / "build" / "compile.failed"

    def initialize_options(self) -> None:
        self.background = False

    def finalize_options(self) -> None:
        pass

    def run(self) -> None:
        self.target.parent.mkdir(exist_ok=True)
        if self.background:
            self._report_or_begin()
            return
        with open(self.target.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._build(fingerprint())

    def _build(self, wanted: str) -> None:
        if read(self.target / "FINGERPRINT") == wanted:
            return
        made = self.target.with_suffix(".new")
        shutil.rmtree(made, ignore_errors=True)
        self.failed.write_text(wanted)
        words = [
            sys.executable,
            "setup.py",
            "--quiet",
            "build",
            "--build-lib",
            made,
            "--build-temp",
            ROOT / "build" / "temp",
        ]
        subprocess.run(words, cwd=ROOT, check=True, env={**os.environ, "STOMPRING_COMPILE": "1"})
        (made / "FINGERPRINT").write_text(wanted)
        shutil.rmtree(self.target, ignore_errors=True)
        made.rename(self.target)
        self.failed.unlink()

    def _report_or_begin(self) -> None:
        wanted = fingerprint()
        if read(self.target / "FINGERPRINT") == wanted:
            print("running the compiled modules in build/compiled")
            return
        if COMPILE == "0":
            reason = "STOMPRING_COMPILE=0"
        elif not any(map(shutil.which, ("cc", "gcc", "clang"))):
            reason = "there is no C compiler (cc)"
        elif self._is_running():
            reason = f"a compiled copy is being built (log: {self.log.relative_to(ROOT)})"
        elif read(self.failed) == wanted:
            reason = f"compiling them has failed: see {self.log.relative_to(ROOT)}"
        else:
            with open(self.log, "w") as log:
                words = ["nice", "-n", "15", sys.executable, "setup.py", "--quiet", "compile"]
                subprocess.Popen(
                    words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            reason = f"a compiled copy is being built for the next start (log: {self.log.relative_to(ROOT)})"
        print(f"running the modules as pure Python: {reason}")
        raise SystemExit(1)

    def _is_running(self) -> bool:
        with open(self.target.with_suffix(".lock"), "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


def read(path: Path) -> str | None:
    """The text of a file; None if it is absent."""
    return path.read_text(encoding="utf-8") if path.exists() else None


def fingerprint() -> str:
    """A digest of everything that a compiled copy is made of."""
    digest = hashlib.sha256(sys.version.encode())
    files = [ROOT / name for name in ("setup.py", "setup.cfg", "pyproject.toml")]
    for directory in ("stompring", *SHIPPED):
        files += sorted(path for path in (ROOT / directory).rglob("*") if "__pycache__" not in path.parts)
    for path in files:
        if path.is_file():
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


setup(
    cmdclass={"build_py": BuildWithShippedFiles, "build_ext": BuildCompiledModules, "compile": Compile},
    ext_modules=[Extension("stompring._compiled", [])] if COMPILE == "1" else [],
    setup_requires=[COMPILER] if COMPILE == "1" and find_spec("mypyc") is None else [],
)
