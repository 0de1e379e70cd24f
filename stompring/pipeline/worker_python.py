"""The Python that Spark starts its workers with: they import PySpark from where it is installed, and so start sooner.

Spark puts ``pyspark.zip`` of its own directory first into the search path of each worker. What is imported from there
is compiled anew by each process that Spark starts, which takes three times as long as all the rest of its start. There
is no setting against it, and a worker of a stream that has not connected in ten seconds fails the query.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shlex import quote

#: Takes the two archives out of the search path, which then is that of the driver.
_LAUNCHER = """#!/bin/sh
PYTHONPATH=${{PYTHONPATH#*/pyspark.zip:}}
PYTHONPATH=${{PYTHONPATH#*/py4j-*-src.zip:}}
export PYTHONPATH
exec {python} "$@"
"""


def worker_python(directory: Path) -> str:
    """The path of a launcher, written to ``directory``, that starts the Python of this process.

    It is this Python itself where that has no PySpark without the archives, or where nothing in the directory can be
    executed.
    """
    import pyspark

    if not Path(pyspark.__file__).is_file():  # it is in an archive
        return sys.executable
    launcher = directory / "python"
    launcher.write_text(_LAUNCHER.format(python=quote(sys.executable)), encoding="utf-8")
    launcher.chmod(0o755)
    return str(launcher) if os.access(launcher, os.X_OK) else sys.executable
