"""Hooks of mkdocs.yml: pages from files outside of docs/, links to them, and the generated parts of pages."""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.docs.generated import expanded  # noqa: E402

#: Pages by the file of the checkout that they are made of.
PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "CHANGELOG.md": "changes.md",
}

#: A link with its target, of a page; and one to a file of the checkout.
LINK = re.compile(r"(?<!\!)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of files outside of docs/."""
    for source, page in PAGES.items():
        text = linked(source, (ROOT / source).read_text(encoding="utf-8"))
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Generated parts are inserted; links to files of the checkout become their pages, or plain text."""
    source: str = page.file.src_uri
    if source in PAGES.values():
        return markdown
    return linked(f"docs/{source}", expanded(markdown))


def linked(source: str, markdown: str) -> str:
    """The text of a file of the checkout, with its links for the site."""

    def replaced(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if ":" in target:
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        page = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if page is None:  # a file that the site does not have
            return text
        start = posixpath.dirname(source).removeprefix("docs").lstrip("/")
        return f"[{text}]({posixpath.relpath(page, start or '.')}{anchor})"

    parts = re.split(r"(^```.*?^```[^\n]*$)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else LINK.sub(replaced, part) for part in parts)
