"""The pages of the documentation: their links, their blocks of code, and the commands in them."""

import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .generated import expanded
from .source import ROOT

#: Every page for readers, by its path in the checkout.
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "stompring/**/README.md")
    for path in ROOT.glob(pattern)
    if "node_modules" not in path.parts
)

FENCE = re.compile(
    r"(?:^<!-- test: ([^\n]*?) -->\n)?^( *)```(\w*)[^\n]*\n(.*?)^ *```\s*?$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    """A block of code, its page, the number of its first line, and the comment ``<!-- test: … -->`` before it."""

    page: str
    line: int
    language: str
    text: str
    test: str

    def __str__(self):
        return f"{self.page}:{self.line}"

    @property
    def key(self):
        """``file`` of ``file=NAME``."""
        return self.test.partition("=")[0]

    @property
    def value(self):
        """``NAME`` of ``file=NAME``."""
        return self.test.partition("=")[2]


@cache
def text_of(page):
    """A page of the checkout as the site has it, with its generated parts."""
    return expanded((ROOT / page).read_text())


def blocks(page):
    """The blocks of a page of the checkout."""
    return blocks_of(text_of(page), page)


def blocks_of(text, page=""):
    for found in FENCE.finditer(text):
        indent = len(found[2])
        body = "".join(line[indent:] if line.strip() else line for line in found[4].splitlines(True))
        yield Block(page, text.count("\n", 0, found.start(3)) + 2, found[3], body, found[1] or "")


def prose(page):
    """The page without its blocks of code; spans of code stay."""
    return FENCE.sub("", text_of(page))


def slug(heading):
    """The anchor of a heading, as GitHub and the site have it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


@cache
def anchors(page):
    found = {}
    names = set(re.findall(r'<a (?:id|name)="([^"]+)"', text_of(page)))
    for heading in re.findall(r"^#{1,6} (.*)$", prose(page), re.MULTILINE):
        name = slug(heading)
        count = found.get(name, 0)
        found[name] = count + 1
        names.add(f"{name}-{count}" if count else name)
    return frozenset(names)


def links(page):
    """Targets of all links and images that are no addresses of the web."""
    without_code = re.sub(r"`[^`\n]*`", "", prose(page))
    found = re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)", without_code)
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def shell_commands(text):
    """The words of each ``stompring`` command in a text of the shell, up to a pipe or redirection."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        line = line.strip().removeprefix("$ ")
        for part in re.split(r"\s*(?:\|\||&&|[|;]|\$\()\s*", line):
            try:
                words = shlex.split(part, comments=True)
            except ValueError:  # the split went through a quotation
                continue
            while words and re.match(r"(\w+=.*|sudo|exec|time|nohup|-u|stompring)$", words[0]):
                if words[0] == "stompring" and (len(words) == 1 or words[1] != "stompring"):
                    break
                words = words[1:]
            if words and Path(words[0]).name == "stompring":
                end = next(
                    (at for at, word in enumerate(words) if re.match(r"[0-9]?[<>]|&$", word)), len(words)
                )
                yield words[1:end]


def commands(page):
    """The ``stompring`` commands of a page, in blocks of the shell and in spans of code."""
    found = [
        words
        for block in blocks(page)
        if block.language in ("sh", "console", "bash")
        for words in shell_commands(
            block.text
            if block.language != "console"
            else "\n".join(
                line[2:] for line in re.sub(r"\\\n\s*", " ", block.text).splitlines() if line.startswith("$ ")
            )
        )
    ]
    for span in re.findall(r"`(stompring [^`]+)`", prose(page).replace("\n", " ")):
        found += shell_commands(re.sub(r"\s+", " ", span))
    return found
