"""Every page of the documentation: its links, blocks of code and commands are right, and a next step follows."""

import json
import re
from pathlib import Path

import click
import pytest
import yaml
from lxml import etree

from stompring.cli.main import main

from .pages import PAGES, anchors, blocks, commands, links, prose, text_of
from .source import PACKAGE, ROOT

BLOCKS = [block for page in PAGES for block in blocks(page)]
DOCS = [page for page in PAGES if page.startswith("docs/")]


def of(language):
    return [block for block in BLOCKS if block.language == language]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    wrong = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        if not file.exists():
            wrong.append(target)
        elif anchor and file.suffix == ".md":
            name = file.resolve().relative_to(ROOT).as_posix()
            if anchor not in anchors(name):
                wrong.append(target)
    assert wrong == []


@pytest.mark.parametrize("page", sorted({*PAGES} - {"CHANGELOG.md", "docs/plugins.md"}))
def test_modules_named_exist(page):
    """By their path in the checkout or in the package. The two others name what was once there, and a reader's own."""
    paths = re.findall(r"`((?:[\w-]+/)+(?:[\w-]+\.py)?)`", prose(page))
    missing = [
        path
        for path in paths
        if any((top / path.partition("/")[0]).is_dir() for top in (ROOT, PACKAGE))
        and not any((top / path).exists() for top in (ROOT, PACKAGE))
    ]
    assert missing == []


def test_pages_and_blocks_are_found():
    assert len(PAGES) > 25 and len(BLOCKS) > 80
    assert sum(len(links(page)) for page in PAGES) > 200
    assert sum(len(commands(page)) for page in PAGES) > 100


@pytest.mark.parametrize("page", DOCS)
def test_a_page_ends_with_the_next_step(page):
    """A paragraph "Next: …" or a section "Next", with a link, so that no page is the end of the way."""
    text = text_of(page).rstrip()
    found = re.search(r"(?:\n\nNext: |\n## Next\n)((?:(?!\n## ).)*)$", text, re.DOTALL)
    assert found and re.search(r"\]\([^)]+\)", found[1]), text[-200:]


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_python_is_python(block):
    compile(block.text, str(block), "exec", flags=0x2000)  # with await at the top level


@pytest.mark.parametrize("block", of("json"), ids=str)
def test_json_is_json(block):
    """One document, or one for each line; "…" stands for what is left out."""
    text = re.sub(r",?\s*…", "", block.text)
    try:
        json.loads(text)
    except ValueError:
        for line in text.splitlines():
            json.loads(line)


@pytest.mark.parametrize("block", of("xml"), ids=str)
def test_xml_is_well_formed(block):
    """A document, or a part of one."""
    text = re.sub(r"<\?xml.*?\?>", "", block.text)
    etree.fromstring(f"<part xmlns:x='x'>{text}</part>")


def test_yaml_is_yaml():
    for block in [*of("yaml"), *of("yml")]:
        assert yaml.safe_load(block.text) is not None, block


def fault_of(words):
    """Why a command does not exist, with its options; None for a right one. Names in capitals stand for values."""
    command = main
    context = click.Context(main)
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest[0]
        if re.fullmatch(r"[…A-Z]+\W*", name) or name == "…":
            return None
        if "|" in name:
            return None  # several, shown together
        found = command.get_command(context, name)
        if found is None:
            return f"no command {name} in {' '.join(words)}"
        command, rest = found, rest[1:]
    parameters = command.get_params(context)
    known = {option for each in parameters for option in (*each.opts, *each.secondary_opts)}
    known.add("--help")
    for word in rest:
        if word == "--":
            break
        option = word.partition("=")[0]
        if re.match(r"--?[a-z]", option) and option not in known:
            if not option.startswith("--") and {f"-{letter}" for letter in option[1:]} & known:
                continue
            return f"no option {option} in {' '.join(words)}"
    return None


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist_with_their_options(page):
    faults = [fault for words in commands(page) if (fault := fault_of(words)) is not None]
    assert faults == []


@pytest.mark.parametrize("page", [page for page in DOCS if "/dev/" not in page])
def test_a_page_for_users_names_examples_and_no_files_of_the_checkout(page):
    named = re.findall(r"(?:`|\]\()(?:\.\./)*((?:config|examples|plugins)/[\w./-]+\w)", prose(page))
    assert [name for name in named if name != "config/broker.xml" and (ROOT / name).exists()] == []
    names = [words[2] for words in commands(page) if words[:1] == ["example"] and words[1] != "list"]
    shipped = [ROOT / "config", ROOT / "examples"]
    assert [
        name for name in names if name.islower() and not any((top / name).exists() for top in shipped)
    ] == []


@pytest.mark.parametrize(
    "words, fault",
    [
        (["run", "--config", "FILE"], None),
        (["queue", "lsit"], "no command lsit in queue lsit"),
        (["run", "--confg", "x"], "no option --confg in run --confg x"),
        (["frobnicate"], "no command frobnicate in frobnicate"),
    ],
)
def test_wrong_commands_are_found(words, fault):
    assert fault_of(words) == fault


@pytest.mark.parametrize("block", [*of("sh"), *of("console"), *of("bash")], ids=str)
def test_files_of_the_checkout_that_commands_name_exist(block):
    named = re.findall(
        r"(?<![\w/.-])(?:config|plugins|docs|tests|examples|benchmarks)/[\w./-]+\w", block.text
    )
    written = re.findall(r"^wrote (\S+)$", block.text, re.MULTILINE)
    made = {str(Path(path).parent) for path in written} | set(written)
    assert [name for name in named if not (ROOT / name).exists() and name not in made] == []
