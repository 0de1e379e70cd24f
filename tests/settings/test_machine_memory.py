"""How much memory there is, read from trees of files like those of Linux."""

from pathlib import Path

import pytest

from stompring.settings.machine import default_dispatch_memory, default_global_max_size, machine_memory

GIB, MIB = 1024**3, 1024**2
UNLIMITED = "9223372036854771712"  # what the first version says

TREES = [
    ("no control groups at all", {}, 8 * GIB),
    (
        "second version, unlimited",
        {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"},
        8 * GIB,
    ),
    (
        "second version, its own limit",
        {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": str(GIB)},
        GIB,
    ),
    (
        "second version, a limit above",
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/memory.max": str(2 * GIB),
            "sys/fs/cgroup/a/b/memory.max": str(3 * GIB),
        },
        2 * GIB,
    ),
    (
        "second version in a container: its path is the host's, its files are at the mount",
        {"proc/self/cgroup": "0::/../../docker/77\n", "sys/fs/cgroup/memory.max": f"{512 * MIB}\n"},
        512 * MIB,
    ),
    (
        "first version",
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:hugetlb,memory:/x/y\n1:name=systemd:/\n",
            "sys/fs/cgroup/memory/x/y/memory.limit_in_bytes": f"{GIB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": UNLIMITED,
        },
        GIB,
    ),
    (
        "first version in a container",
        {
            "proc/self/cgroup": "4:memory:/docker/77\n0::/docker/77\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(GIB),
        },
        GIB,
    ),
    (
        "first version, unlimited",
        {"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": UNLIMITED},
        8 * GIB,
    ),
    (
        "both: memory with the second, beside the first",
        {"proc/self/cgroup": "1:cpu:/\n0::/u\n", "sys/fs/cgroup/unified/u/memory.max": str(GIB)},
        GIB,
    ),
    (
        "a limit above what there is",
        {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": str(99 * GIB)},
        8 * GIB,
    ),
]


@pytest.mark.parametrize("what, files, expected", TREES, ids=[row[0] for row in TREES])
def test_smallest_limit_counts(tmp_path, what, files, expected):
    meminfo = f"MemFree:  1 kB\nMemTotal:  {8 * GIB // 1024} kB\nMemAvailable: 2 kB\n"
    for name, text in {"proc/meminfo": meminfo, **files}.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert machine_memory(tmp_path) == expected


def test_a_system_that_is_not_linux_has_memory_too(tmp_path):
    assert machine_memory(tmp_path) >= 64 * MIB


def test_this_machine():
    assert 64 * MIB <= machine_memory() <= machine_memory(Path("/nowhere"))


@pytest.mark.parametrize(
    "configured, memory, dispatch",
    [
        (64 * MIB, 8 * GIB, 16 * MIB),
        (1, 8 * GIB, 16 * MIB),
        (GIB, 8 * GIB, 256 * MIB),
        (-1, 8 * GIB, 512 * MIB),
        (-1, 100 * MIB, 16 * MIB),
    ],
)
def test_default_dispatch_memory(configured, memory, dispatch):
    assert default_dispatch_memory(configured, memory) == dispatch


def test_the_global_limit():
    assert default_global_max_size(8 * GIB) == 2 * GIB
