"""What a process of Spark's executors needs for a task of an ingest."""

import subprocess
import sys

#: Each of them takes a new process between a tenth and half a second.
DEAR = ("pandas", "pyarrow.dataset", "deltalake", "pyspark.sql")

PROGRAM = """
import sys
from pathlib import Path
from pyarrow import parquet
from stompring.pipeline.files import Range
from stompring.pipeline.lake.data_files import BatchJob, ingest_ranges
from benchmarks.segments import make

root, lake = (Path(sys.argv[1]) / name for name in ("data", "lake"))
lake.mkdir()
make(root, 1000)
job = BatchJob(str(root), None, str(lake), 8, 0, ("messages", "events", "samples"), str(lake / "copies"), "main")
done = ingest_ranges(job, None, [Range("journal/000000001.journal")])
assert done.rows == {"messages": 1000, "events": 1500}, done
print(*sys.modules)
"""


def test_a_task_imports_neither_pandas_nor_delta(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True, check=True
    )
    modules = done.stdout.split()
    assert "stompring.pipeline.lake.data_files" in modules
    assert not set(DEAR).intersection(modules)
