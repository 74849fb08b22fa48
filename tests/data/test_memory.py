"""Files larger than what a process may use are read with little memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROWS, COLUMNS = 300_000, 256  # float32: 307 MB
READING = """
import resource, sys
import numpy as np
import graphc
from graphc.data import npy, npz, csv, parquet

def resident():
    with open("/proc/self/status") as status:
        (line,) = [line for line in status if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024

{warm}
before = resident()
batches = {source}.batches(256, shuffle={shuffle}, blocks={blocks}).prefetch(2)
seen = total = 0
for batch in batches:
    seen += len(batch["y"])
    total += float(batch["x"].sum(dtype=np.float64))
print(seen, total, resident() - before)
"""


def grown(source: str, shuffle: object = None, blocks: object = None, warm: str = "") -> float:
    """The megabytes that a process needs in addition to read every example once."""
    script = READING.format(source=source, shuffle=shuffle, blocks=blocks, warm=warm)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    seen, total, grown = map(float, done.stdout.split())
    assert seen == ROWS
    assert total == ROWS * COLUMNS
    return grown


@pytest.mark.ci
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_file_of_300_megabytes_needs_little_memory(tmp_path: Path) -> None:
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (ROWS, COLUMNS))
    for start in range(0, ROWS, 10_000):
        x[start : start + 10_000] = 1
    x.flush()
    np.save(tmp_path / "y.npy", np.arange(ROWS))
    files = f"npy({{n: f'{tmp_path}/{{n}}.npy' for n in 'xy'}})"
    assert grown(files) < 60
    assert grown(files, shuffle=0) < 60

    (tmp_path / "parts").mkdir()
    for part in range(30):
        rows = slice(part * 10_000, part * 10_000 + 10_000)
        np.savez_compressed(
            tmp_path / "parts" / f"{part:02}.npz", x=x[rows], y=np.arange(ROWS)[rows]
        )
    assert grown(f"npz('{tmp_path}/parts', keep=1)") < 60
    assert grown(f"npz('{tmp_path}/parts', keep=1)", shuffle=0, blocks=1) < 60

    line = ",".join(["1"] * COLUMNS)
    with open(tmp_path / "t.csv", "w") as table:
        table.writelines(f"{line},{i:0500}\n" for i in range(ROWS))
    assert (tmp_path / "t.csv").stat().st_size > 300_000_000
    columns = (
        f"csv('{tmp_path}/t.csv', {{'x': list(range({COLUMNS})), 'y': {COLUMNS}}}, header=False)"
    )
    assert grown(columns) < 60
    assert grown(columns, shuffle=0) < 60

    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    schema = pa.schema([("x", pa.list_(pa.float32(), COLUMNS)), ("y", pa.int64())])
    with parquet.ParquetWriter(tmp_path / "t.parquet", schema, use_dictionary=False) as writer:
        for start in range(0, ROWS, 5000):
            flat = pa.array(x[start : start + 5000].reshape(-1))
            lists = pa.FixedSizeListArray.from_arrays(flat, COLUMNS)
            writer.write_table(pa.table([lists, pa.array(np.arange(start, start + 5000))], schema))
    rows = f"parquet('{tmp_path}/t.parquet', keep=1)"
    warm = f"{rows}[0]"  # the library itself
    assert grown(rows, warm=warm) < 60
    assert grown(rows, shuffle=0, blocks=1, warm=warm) < 60
