"""The libraries of the console: copied from npm's packages to ``stompring/console/vendor``, with their hashes.

``python -m tests.console.vendor`` copies them after ``npm ci`` in this directory; a test compares the hashes.
package-lock.json pins the packages. Modules import each other by relative path there, because the page has no import
map: it would have to be inline, which the Content-Security-Policy forbids.
"""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PACKAGES = HERE / "node_modules"
VENDOR = HERE.parent.parent / "stompring" / "console" / "vendor"
LIST = VENDOR / "vendor.json"


class Library(NamedTuple):
    """One file of a package."""

    package: str
    source: str  # in the package
    file: str  # in stompring/console/vendor
    replaced: tuple[tuple[str, str], ...] = ()  # texts of the file that are replaced
    added: str = ""  # at the end of the file


LIBRARIES = (
    Library("preact", "dist/preact.mjs", "preact.js"),
    Library("preact", "hooks/dist/hooks.mjs", "hooks.js", (('from"preact"', 'from"./preact.js"'),)),
    Library("htm", "dist/htm.module.js", "htm.js"),
    Library("uplot", "dist/uPlot.esm.js", "uplot.js"),
    Library("uplot", "dist/uPlot.min.css", "uplot.css"),
    Library(
        "@stomp/stompjs",
        "bundles/stomp.umd.min.js",
        "stomp.js",
        added="export const { Client, Versions } = globalThis.StompJs;\n",
    ),
    *(
        Library(package, "LICENSE", f"{name}.LICENSE.txt")
        for package, name in (
            ("preact", "preact"),
            ("htm", "htm"),
            ("uplot", "uplot"),
            ("@stomp/stompjs", "stomp"),
        )
    ),
)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def vendored(library):
    """The file as it is vendored. Raises `ValueError` if a text to replace is missing."""
    text = (PACKAGES / library.package / library.source).read_text()
    for old, new in library.replaced:
        if old not in text:
            raise ValueError(f"{library.package} {library.source} does not contain {old!r}")
        text = text.replace(old, new)
    kept = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL=")]
    return ("\n".join(kept).rstrip("\n") + "\n" + library.added).encode()


def record(library, data):
    """The entry of a file in vendor.json."""
    package = json.loads((PACKAGES / library.package / "package.json").read_text())
    return {
        "name": library.package,
        "version": package["version"],
        "licence": package["license"],
        "source": library.source,
        "sourceSha256": sha256((PACKAGES / library.package / library.source).read_bytes()),
        "file": library.file,
        "sha256": sha256(data),
    }


def main():
    VENDOR.mkdir(exist_ok=True)
    records = []
    for library in LIBRARIES:
        data = vendored(library)
        (VENDOR / library.file).write_bytes(data)
        records.append(record(library, data))
    LIST.write_text(json.dumps(records, indent=2) + "\n")


if __name__ == "__main__":
    main()
