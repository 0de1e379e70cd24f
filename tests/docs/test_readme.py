"""README.md: its first session is run against a broker, and what it names is there."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from benchmarks.document import BENCH
from benchmarks.results import Results
from stompring import ADVICE
from stompring.settings.broker_xml import read_broker_xml

from ..broker_process import PATIENCE, BrokerProcess
from ..waiting import LONGEST
from .pages import blocks, text_of
from .source import ROOT

TEXT, ARTEMIS = text_of("README.md"), text_of("docs/artemis.md")
SHIPPED = ROOT / "config" / "broker.xml"
#: Where it listens.
STOMP, HTTP = (
    f"{acceptors[0].host}:{acceptors[0].port}"
    for shipped in [read_broker_xml(SHIPPED)]
    for acceptors in (shipped.stomp_acceptors, shipped.http_acceptors)
)
BLOCKS = list(blocks("README.md"))


def session():
    """The blocks that are run, in order, each with the output that follows it where one is shown."""
    followed = zip(BLOCKS, [*BLOCKS[1:], BLOCKS[0]], strict=True)
    return [
        (block, after if after.language == "text" else None)
        for block, after in followed
        if block.language in ("sh", "python")
    ]


@pytest.fixture
def broker(tmp_path):
    """The shipped configuration, but on free ports."""
    document = SHIPPED.read_text()
    for port in (STOMP, HTTP):
        assert document.count(port) == 1
        document = document.replace(port, "127.0.0.1:0")
    config = tmp_path / "broker.xml"
    config.write_text(document)
    with BrokerProcess(config, forked=False) as process:
        yield process


def at(broker, text):
    """The text of a block, with the ports of a running broker."""
    return text.replace("61613", str(broker.port)).replace("127.0.0.1:8161", f"127.0.0.1:{broker.http_port}")


def test_the_first_session(broker):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    outputs = []
    for block, shown in session():
        command = [sys.executable, "-c"] if block.language == "python" else ["sh", "-ec"]
        ran = subprocess.run(
            [*command, at(broker, block.text)],
            capture_output=True,
            text=True,
            timeout=LONGEST * PATIENCE,
            check=False,
        )
        assert ran.returncode == 0, f"{block.text}\n{ran.stdout}\n{ran.stderr}"
        assert shown is None or ran.stdout == shown.text
        outputs.append(ran.stdout)
    made, *_, final = [json.loads(output) for output in outputs if output.startswith("{")]
    assert made["ringSize"] == 3 and made["messageCount"] == 0
    assert (final["messagesAdded"], final["messagesAcknowledged"], final["messagesReplaced"]) == (6, 3, 3)


def test_commands_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(
        re.findall(
            r"\bmake (\w[\w-]*)", "\n".join(re.findall(r"`([^`\n]+)`", TEXT) + [b.text for b in BLOCKS])
        )
    )
    assert {"run", "test"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:|^\w[\w ]*\b{target}\b[\w ]*:", makefile, re.MULTILINE), (
            f"make {target}"
        )


@pytest.mark.parametrize("text", [TEXT, ARTEMIS], ids=["README.md", "docs/artemis.md"])
def test_rows_of_the_differences_are_whole(text):
    rows = [
        line.strip("|").split("|")
        for line in text.splitlines()
        if line.startswith("| ") and "---" not in line
    ]
    compared = [row for row in rows if len(row) > 2]
    assert len(compared) > (15 if text is ARTEMIS else 5)
    assert [
        row for row in compared if "stompring" not in row[-1] and not all(cell.strip() for cell in row)
    ] == []


def test_the_index_links_every_page():
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")} - {"index.md"}
    assert pages - set(re.findall(r"\]\(([^)#]+)\)", text_of("docs/index.md"))) == set()


def test_the_rates_are_those_of_the_published_results():
    sentence = (
        r"has (\d+) times the rate of RabbitMQ and (\d+) times that of Artemis; .* has ([\d.]+) of the rate"
    )
    shown = re.search(sentence, " ".join(TEXT.split()))
    results = Results.load(BENCH)
    own, *others = (
        results.median("auto", broker, "msgs_per_s")
        for broker in ("stompring", "rabbitmq", "artemis", "pure Python")
    )
    assert shown is not None and own is not None
    rabbitmq, artemis, pure = (own / other for other in others if other is not None)
    assert shown.groups() == (f"{rabbitmq:.0f}", f"{artemis:.0f}", f"{1 / pure:.2f}")
    assert f"has {1 / pure:.2f} of the rate" in ADVICE
