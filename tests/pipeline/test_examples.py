"""The programs and the notebook in ``examples`` do what they say, beside a real broker."""

import importlib.util
import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from ..broker_document import anycast
from ..end_to_end.lasting import DURABLE
from ..end_to_end.test_retention import retention
from .conftest import QUICK
from .stomp.queue_contents import drained_bodies, url

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
NOTEBOOK = EXAMPLES / "first_look.ipynb"

#: Pages at once, so that the input is in the journal and in pages.
PAGED = {"plant.b": {"max-size-messages": 2, "page-size-bytes": 4096}}


def program(name):
    found = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def readings(lasting, seconds):
    """Messages to two queues: the last ones this time after the first."""
    client, sent = lasting.connect(), Counter[str]()
    until = time.monotonic() + seconds
    over = False
    while not over:
        over = time.monotonic() > until
        for queue in ("plant.a", "plant.b"):
            bodies = [f"{number}" for number in range(7)]
            client.put(queue, *bodies, **DURABLE)
            sent[queue] += len(bodies)
        time.sleep(0.1)
    client.disconnect()
    return sent


def started(lasting):
    queues = "".join(anycast(name) for name in ("plant.a", "plant.b", "counts"))
    lasting.start(core=retention(sample_period=100), addresses=queues, settings=PAGED)


def test_windowed_counts_go_back_to_the_broker(spark, lasting, tmp_path):
    started(lasting)
    sent = readings(lasting, 2)
    time.sleep(1.5)
    client = lasting.connect()
    client.put("plant.a", "late", **DURABLE)  # later than the delay: what was sent before is complete
    client.disconnect()
    example = program("windowed_counts")
    for number in range(2):  # a second one sends everything once more
        rows = example.counts(spark, str(lasting.data), "plant.#", "1 second", "200 milliseconds")
        checkpoint = str(tmp_path / f"checkpoint {number}")
        example.start(rows, url(lasting), "counts", checkpoint, once=True).awaitTermination()
    found = [json.loads(body) for body in drained_bodies(lasting, "counts")]
    counted = Counter()
    for row in found:
        counted[row["queue"]] += row["count"]
    assert len({(row["queue"], row["begin"]) for row in found}) == len(found) >= 4
    assert counted == sent


@pytest.mark.long
@pytest.mark.xdist_group("processes of Spark")
def test_the_first_look(lasting, tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="not installed: pip install 'stompring[test]'")
    nbclient = pytest.importorskip("nbclient", reason="not installed: pip install 'stompring[test]'")
    started(lasting)
    sent = readings(lasting, 0.5)
    lasting.stop()
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("STOMPRING_DATA", str(lasting.data))
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=400, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = "\n".join(output.get("text", "") for output in outputs if output["output_type"] == "stream")
    for queue, count in sent.items():
        assert f"{queue} added {count}" in " ".join(text.replace("|", " ").split())
    assert f"the stream has read {sum(sent.values())} messages" in text
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 1


def test_the_notebook_is_kept_without_outputs():
    document = json.loads(NOTEBOOK.read_text())
    cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 4 and all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)
