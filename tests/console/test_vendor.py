"""The vendored libraries are those of vendor.json, and those of npm's packages where these are installed."""

import json
import re

import pytest

from .vendor import LIBRARIES, LIST, PACKAGES, VENDOR, record, sha256, vendored

RECORDS = {entry["file"]: entry for entry in json.loads(LIST.read_text())}
LOCKED = json.loads(PACKAGES.with_name("package-lock.json").read_text())["packages"]


def test_every_file_is_recorded():
    files = {path.name for path in VENDOR.iterdir() if path.suffix in (".js", ".css", ".txt")}
    assert files == set(RECORDS) == {library.file for library in LIBRARIES}


@pytest.mark.parametrize("name", RECORDS)
def test_file_has_the_recorded_hash_and_version(name):
    entry = RECORDS[name]
    assert sha256((VENDOR / name).read_bytes()) == entry["sha256"]
    assert entry["version"] == LOCKED[f"node_modules/{entry['name']}"]["version"]
    assert entry["licence"] in ("MIT", "Apache-2.0")


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.file)
def test_file_is_that_of_the_package(library):
    if not (PACKAGES / library.package).is_dir():
        pytest.skip("axe-core is not installed: npm ci in tests/console")
    data = vendored(library)
    assert data == (VENDOR / library.file).read_bytes()
    assert record(library, data) == RECORDS[library.file]


@pytest.mark.parametrize("name", [name for name in RECORDS if name.endswith(".js")])
def test_modules_import_by_relative_path(name):
    """A bare name would need an import map, which would be inline."""
    text = (VENDOR / name).read_text()
    imported = re.findall(r"""(?:^|[;}])\s*(?:import|export)\b[^;'"]*?from\s*["']([^"']+)""", text)
    assert all(path.startswith("./") for path in imported)
