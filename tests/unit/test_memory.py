"""Control groups: the smallest limit above the process counts, in both versions, and what cannot be read does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusionopt._memory import available_bytes

MACHINE = available_bytes("/nowhere-at-all")


def _tree(root: Path, group: str, files: dict[str, str]) -> str:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(group)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_without_groups_it_is_the_machine() -> None:
    assert 2**20 < MACHINE < 2**60


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "1048576\n"}, 2**20),
        ("0::/a/b\n", {"a/b/memory.max": "4096\n", "a/memory.max": "1048576\n"}, 4096),
        ("0::/host/path\n", {"memory.max": "8192\n"}, 8192),
        ("5:cpu:/a\n4:memory,hugetlb:/a\n", {"memory/a/memory.limit_in_bytes": "65536\n"}, 65536),
        ("4:memory:/a\n", {"memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/a\n", {"a/memory.max": "unreadable\n"}, None),
        ("5:cpu:/a\n", {"cpu/a/memory.max": "17\n"}, None),
    ],
)
def test_the_smallest_limit_counts(
    tmp_path: Path, group: str, files: dict[str, str], expected: int | None
) -> None:
    assert available_bytes(_tree(tmp_path, group, files)) == (MACHINE if expected is None else expected)
