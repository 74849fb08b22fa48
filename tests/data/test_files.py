"""Files that are damaged, cut off, or not what they should be: an error with the name of the file,
and none of its contents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from damage import damaged

from graphc import data
from graphc.support.errors import GraphcError

SECRET = "hunter2"
X = np.arange(12, dtype=np.float32).reshape(6, 2)


def read(source: data.DataSource) -> None:
    for _ in source.batches(4):
        pass


def refused(code: str, words: str, make: Callable[[], Any], path: str = "") -> GraphcError:
    with pytest.raises(GraphcError) as caught:
        read(make())
    error = caught.value
    assert (error.code, words in error.message) == (code, True), error.render()
    assert path in error.message
    assert SECRET not in error.render()
    return error


# -- npy -------------------------------------------------------------------------------------------


def test_npy_files_that_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, X)
    good = path.read_bytes()
    for content, words in [
        (good[:-1], "declares 48 bytes, but has 47"),
        (good + b"1", "but has 49"),
        (good[:20], "has no array header"),
        (SECRET.encode(), "has no array header"),
        (b"", "has no array header"),
        (good.replace(b"(6, 2)", b"(6,-2)"), ""),
    ]:
        path.write_bytes(content)
        refused("G0602", words, lambda: data.npy({"x": path}), "x.npy")
    refused("G0602", "there is no file", lambda: data.npy({"x": tmp_path / "z.npy"}), "z.npy")


@pytest.mark.parametrize(
    ("array", "code", "words"),
    [
        (np.array([{}, SECRET], object), "G0602", "holds Python objects, which are never read"),
        (np.array([SECRET]), "G0605", "dtype <U7, which is no number"),
        (np.zeros(3, complex), "G0605", "dtype complex128"),
        (np.zeros(3, [("a", "f4")]), "G0605", "no number"),
        (np.float32(3), "G0603", "is one number"),
        (np.zeros((0, 3)), "G0603", "no examples"),
    ],
)
def test_npy_files_of_other_things(tmp_path: Path, array: Any, code: str, words: str) -> None:
    np.save(tmp_path / "x.npy", array)
    refused(code, words, lambda: data.npy({"x": tmp_path / "x.npy"}))


def test_npy_files_of_different_lengths_or_no_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", X[:5])
    files = {name: tmp_path / f"{name}.npy" for name in "xy"}
    refused("G0603", "{'x': 6, 'y': 5}", lambda: data.npy(files))
    refused("G0603", "takes a dict of files", lambda: data.npy("x.npy"))  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_large_file_is_read_by_rows_and_noticed_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: Literal["C", "F"]
) -> None:
    from graphc.data import npy_files

    monkeypatch.setattr(npy_files, "SMALL", 20)
    np.save(tmp_path / "x.npy", np.asarray(X, order=order))
    source = data.npy({"x": tmp_path / "x.npy"})
    batches = source.batches(2, shuffle=0)
    assert sorted(np.concatenate([b["x"] for b in batches]).tolist()) == X.tolist()
    np.save(tmp_path / "x.npy", X[:4])
    refused("G0602", "has changed since it was opened", lambda: source, "x.npy")


# -- npz -------------------------------------------------------------------------------------------


def save(path: Path, **arrays: Any) -> None:
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("second", "code", "words"),
    [
        ({"x": X, "z": X}, "G0604", "has no entry 'y'"),
        ({"x": X[:, :1], "y": X}, "G0603", "an example of 'x' has shape (1,), in 1.npz (2,)"),
        ({"x": X[:4], "y": X}, "G0603", "differ in their number of examples: {'x': 4, 'y': 6}"),
        ({"x": X.astype(float), "y": X}, "G0605", "'x' has dtype float64, in 1.npz float32"),
        ({"x": np.float32(1), "y": X}, "G0603", "one number"),
        ({"x": np.array([SECRET]), "y": X}, "G0605", "no number"),
        ({"x": np.array([SECRET], object), "y": X}, "G0605", "no number"),
        ({}, "G0603", "has no array"),
    ],
)
def test_npz_files_that_do_not_fit_together(
    tmp_path: Path, second: dict[str, Any], code: str, words: str
) -> None:
    save(tmp_path / "1.npz", x=X, y=X)
    save(tmp_path / "2.npz", **second)
    refused(code, words, lambda: data.npz(tmp_path), "2.npz")


def test_npz_files_that_are_damaged(tmp_path: Path) -> None:
    for i in range(3):
        save(tmp_path / f"{i}.npz", x=X)
    source = data.npz(tmp_path)
    good = (tmp_path / "1.npz").read_bytes()
    middle = good.index(X.tobytes())
    for content in (good[:-30], b"", SECRET.encode()):
        (tmp_path / "1.npz").write_bytes(content)
        refused("G0602", "can't be read", lambda: data.npz(tmp_path / "*.npz"), "1.npz")
    (tmp_path / "1.npz").write_bytes(good[:middle] + b"!" + good[middle + 1 :])
    refused("G0602", "can't be read", lambda: source, "1.npz")  # its checksum is wrong
    save(tmp_path / "1.npz", x=X[:3])
    refused("G0602", "has changed", lambda: source, "1.npz")
    (tmp_path / "empty").mkdir()
    refused("G0602", "there is no .npz file in", lambda: data.npz(tmp_path / "empty"), "empty")
    refused("G0602", "there is no file", lambda: data.npz(tmp_path / "z*.npz"), "z*.npz")
    refused("G0602", "a path is wanted, not a dict", lambda: data.npz({"x": "0.npz"}))  # type: ignore[arg-type]
    refused("G0617", "keep=0", lambda: data.npz(tmp_path / "0.npz", keep=0))


# -- csv -------------------------------------------------------------------------------------------

GOOD = "a,b,label\n" + "".join(f"{i},{i / 4},{i % 3}\n" for i in range(100))


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("", "G0602", "can't be read: it is empty"),
        ("a,b,label\n", "G0603", "no examples"),
        (GOOD + "1,2\n", "G0602", "row 101 has 2 columns, the first has 3"),
        (GOOD + "1,2,3,4\n", "G0602", "row 101 has 4 columns"),
        (GOOD + f"1,{SECRET},0\n", "G0602", "row 101 has no number in column 2"),
        (GOOD + '1,"2,0\n', "G0602", ""),
        (GOOD + "1,2,0.5\n", "G0605", "'y' has numbers that int32 does not have"),
        (GOOD + "1,2,3e9\n", "G0605", "'y' has numbers that int32 does not have"),
        (GOOD + "1e40,2,0\n", "G0605", "'x' has numbers that float32 does not have"),
        (GOOD + "1,2,nan\n", "G0605", "'y' has numbers that int32 does not have"),
        ("a,b,kind\n1,2,3\n", "G0604", "has no entry 'label'"),
        ("a,b,label,label\n1,2,3,4\n", "G0602", "it has two columns 'label'"),
        (f"{SECRET} 1;2\n3\n", "G0604", "has no entry 'a'"),
        ("a,b,label\n1,2,3\n\xff\n", "G0602", "it is not UTF-8 text"),
        ("a,b,label\n1,\0,3\n", "G0602", ""),
    ],
)
def test_csv_files_that_are_damaged(tmp_path: Path, text: str, code: str, words: str) -> None:
    (tmp_path / "t.csv").write_bytes(text.encode("latin-1"))
    columns = {"x": ["a", "b"], "y": "label"}
    make = lambda: data.csv(tmp_path / "t.csv", columns, dtype={"y": "int32"})  # noqa: E731
    refused(code, words, make, "t.csv")


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"columns": {"x": "c"}}, "G0604", "has no entry 'c'"),
        ({"columns": {"x": [0, 3]}}, "G0604", "no column 3"),
        ({"columns": {"x": []}}, "G0603", "'x' has no column"),
        ({"columns": {"x": "a"}, "header": False}, "G0604", "has no entry 'a'"),
        ({"header": False}, "G0604", "no header"),
        ({"dtype": "complex64"}, "G0605", "no dtype of numbers"),
        ({"dtype": {"a": "floaty"}}, "G0605", "no dtype of numbers"),
        ({"columns": ["a", "c"]}, "G0604", "has no entry 'c'"),
        ({"columns": "a"}, "G0603", "a dict of columns by entry is wanted"),
        ({"delimiter": ";"}, "G0602", "no number"),
    ],
)
def test_csv_options_that_can_not_be(
    tmp_path: Path, options: dict[str, Any], code: str, words: str
) -> None:
    (tmp_path / "t.csv").write_text(GOOD)
    refused(code, words, lambda: data.csv(tmp_path / "t.csv", **options))


def test_csv_of_other_forms(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbf"a";"b c"\r\n"1";2\r\n\r\n3;"4.5"')
    source = data.csv(path, delimiter=";", dtype="float64")
    assert {name: a.tolist() for name, a in source[:].items()} == {"a": [1, 3], "b c": [2, 4.5]}
    path.write_bytes(b"\xef\xbb\xbf1,2\n3,4\n")
    source = data.csv(path, {"x": [1, 0], "y": 1}, header=False, dtype={"y": "int64"})
    assert source[:]["x"].tolist() == [[2, 1], [4, 3]]
    assert source[:]["y"].dtype == np.int64


def test_a_csv_file_that_changed_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(GOOD)
    source = data.csv(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text(GOOD + "1,2,3\n")
    refused("G0602", "has changed since it was opened", lambda: source, "t.csv")


def test_the_index_of_rows_holds_across_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from graphc.data import csv_file

    rng = np.random.default_rng(0)
    lines = [
        line for i in range(1000)
        for line in (["#", " ", "\t# x"][: rng.integers(4)] * (i % 7 == 0) + [f"{i}{' ' * rng.integers(9)}"])
    ]  # fmt: skip
    lines = [line for line in lines if line != "\t# x"]
    (tmp_path / "t.csv").write_text("i\n" + "\n".join(lines))
    for chunk in (5, 64, 1000):
        monkeypatch.setattr(csv_file, "CHUNK", chunk)
        source = data.csv(tmp_path / "t.csv", dtype="int32")
        assert source[:]["i"].tolist() == list(range(1000))
        assert source[[999, 64, 63]]["i"].tolist() == [999, 64, 63]


# -- parquet ---------------------------------------------------------------------------------------


def test_parquet_is_what_pyarrow_reads(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    rng = np.random.default_rng(0)
    lists = [rng.integers(0, 9, n).astype(np.int16) for n in rng.integers(0, 5, 50)]
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(100.0)), 2)
    columns = {
        "f": pa.array(rng.standard_normal(50), pa.float32()), "b": pa.array(rng.random(50) < 0.5),
        "lists": pa.array([row.tolist() for row in lists], pa.list_(pa.int16())), "fixed": fixed,
        "text": pa.array([SECRET] * 50), "i": pa.array(np.arange(50, dtype=np.uint8)),
    }  # fmt: skip
    table = pa.table(columns)
    for part in range(2):
        parquet.write_table(
            table[part * 25 : part * 25 + 25], tmp_path / f"{part}.parquet", row_group_size=10
        )
    refused("G0605", "column 'text' has type string", lambda: data.parquet(tmp_path), "0.parquet")
    refused("G0604", "no entry 'g'", lambda: data.parquet(tmp_path, {"x": "g"}), "0.parquet")
    names = [name for name in columns if name != "text"]
    source = data.parquet(tmp_path, names)
    assert source.parts == (10, 10, 5, 10, 10, 5)
    read = source[:]
    again = parquet.read_table(tmp_path)
    for name in ("f", "b", "i"):
        assert read[name].tobytes() == again[name].to_numpy().tobytes()
    assert read["fixed"].tolist() == again["fixed"].to_pylist()
    assert [row.tolist() for row in read["lists"]] == again["lists"].to_pylist()
    assert {row.dtype for row in read["lists"]} == {np.dtype(np.int16)}
    padded = source.batches(8).bucket_by_length("lists", [4])
    assert sum(b["lists_length"].sum() for b in padded) == sum(map(len, lists))


def test_parquet_files_that_are_damaged(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"x": np.arange(1000.0)}), path, compression="zstd")
    good = path.read_bytes()
    for content in (b"", SECRET.encode(), good[:-10], good[: len(good) // 2]):
        path.write_bytes(content)
        refused(
            "G0602", "not a Parquet file, or it is damaged", lambda: data.parquet(path), "t.parquet"
        )
    path.write_bytes(good[:200] + b"!" * 400 + good[600:])
    refused(
        "G0602", "not a Parquet file, or it is damaged", lambda: data.parquet(path), "t.parquet"
    )
    parquet.write_table(pa.table({"x": [1.0, None]}), path)
    refused("G0605", "column 'x' has 1 missing values", lambda: data.parquet(path), "t.parquet")
    parquet.write_table(pa.table({"x": np.zeros(0)}), path)
    refused("G0603", "no examples", lambda: data.parquet(path))
    parquet.write_table(pa.table({"x": [[1.0], [2.0]], "y": [1, 2]}), path)
    refused("G0603", "'x' has lists", lambda: data.parquet(path, {"z": ["x", "y"]}), "t.parquet")
    parquet.write_table(pa.table({"x": [1]}), tmp_path / "u.parquet")
    refused(
        "G0605",
        "in the first file",
        lambda: data.parquet([path, tmp_path / "u.parquet"], {"x": "x"}),
    )


def test_parquet_without_pyarrow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    error = refused("G0636", "pyarrow, which is not installed", lambda: data.parquet("x.parquet"))
    assert "graphc[parquet]" in (error.help or "")


# -- damage at random ------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 2000), marks=pytest.mark.ci)])
@pytest.mark.parametrize("kind", ["npy", "npz", "csv", "parquet"])
def test_a_damaged_file_is_an_error_of_ours_or_no_error(
    tmp_path: Path, kind: str, seeds: range
) -> None:
    path = tmp_path / f"t.{kind}"
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((50, 3)), rng.integers(0, 9, 50)
    if kind == "parquet":
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as parquet

        parquet.write_table(pa.table({"x": x[:, 0], "y": y}), path, row_group_size=20)
    elif kind == "csv":
        np.savetxt(path, np.column_stack([x, y]), delimiter=",", header="a,b,c,y", comments="")
    elif kind == "npy":
        np.save(path, x)
    else:
        np.savez_compressed(path, x=x, y=y)
    good, errors = path.read_bytes(), 0
    for seed in seeds:
        path.write_bytes(damaged(good, seed))
        try:
            made = data.npy({"x": path}) if kind == "npy" else getattr(data, kind)(path)
            read(made)
        except GraphcError as error:
            errors += 1
            assert error.code in ("G0602", "G0603", "G0604", "G0605"), error.render()
            assert str(path) in error.message, error.render()
    assert errors > len(seeds) / 4


# -- rows and arrays -------------------------------------------------------------------------------


def test_rows_are_dicts_tuples_or_arrays() -> None:
    pairs = [(np.full(2, i), i) for i in range(9)]
    x, i = next(iter(data.of(pairs).batches(4, shuffle=0)))
    assert (x[:, 0] == i).all() and isinstance(data.of(pairs)[0], tuple)
    assert data.of([np.zeros(3)] * 5).batches(4).first().shape == (4, 3)
    x, y = data.arrays((X, X[:, 0])).batches(4).first()
    assert x.shape == (4, 2) and y.shape == (4,)
    assert data.arrays(X).batches(4).first().tobytes() == X[:4].tobytes()
    texts = data.of([{"text": "a" * n, "y": n} for n in range(1, 6)])
    lengths = texts.batches(5).map(lambda b: {"n": np.char.str_len(b["text"]), "y": b["y"]}).first()
    assert lengths["n"].tolist() == lengths["y"].tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("code", "words", "dataset"),
    [
        ("G0603", "generator has no `__len__`", (i for i in range(3))),
        ("G0603", "dict is a dict, not a dataset of rows", {"x": X}),
        ("G0603", "no examples", []),
        ("G0603", "example 1 of the dataset has other entries", [{"x": 1}, {"y": 1}]),
        ("G0603", "example 1 of the dataset has other entries", [(1, 2), (1,)]),
        ("G0603", "example 1 of the dataset has other entries", [(1, 2), X]),
        ("G0605", "entry 'x' is object, which is no array", [{"x": object()}]),
        ("G0605", "entry 'x' is list, which can't be made an array", [{"x": [[1], [1, 2]]}]),
        ("G0603", "differ in the shape of 'x'", [{"x": [1]}, {"x": [1, 2]}]),
    ],
)
def test_rows_that_make_no_batch(code: str, words: str, dataset: Any) -> None:
    refused(code, words, lambda: data.of(dataset))


@pytest.mark.parametrize(
    ("words", "entries"),
    [
        ("differ in their number of examples: {'x': 6, 'y': 5}", {"x": X, "y": X[:5]}),
        ("one number", {"x": 3}),
        ("no examples", {"x": np.zeros((0, 2))}),
        ("no examples", {}),
    ],
)
def test_arrays_that_make_no_batch(words: str, entries: Any) -> None:
    refused("G0603", words, lambda: data.arrays(entries))
