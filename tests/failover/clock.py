"""A wall clock of its own for one process, which the test lets jump: `clock.c`, loaded before the C library."""

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")


def why_not():
    """Why clocks cannot be made here, None where they can."""
    return None if shutil.which("cc") else "a C compiler is not installed"


def build(directory):
    """The shared library."""
    library = directory / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
    return library


class Clock:
    """The wall clock of one process: that of the machine plus an offset in whole seconds."""

    def __init__(self, library, file):
        self._library = library
        self._file = file
        self.offset = 0
        file.write_bytes(bytes(8))

    @property
    def environment(self):
        """What the process is started with."""
        return {"LD_PRELOAD": str(self._library), "STOMPRING_CLOCK": str(self._file)}

    def jump(self, seconds):
        """At once, forwards or backwards."""
        self.offset += seconds
        with self._file.open("r+b") as file:
            file.write(struct.pack("d", float(self.offset)))
