"""Weights of other programs: torch's files, several files under an index, and names."""

from __future__ import annotations

import base64
import json
import os
import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from damage import damaged
from runtime.checkpoints.values import same
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from graphc.runtime.checkpoints.torch_files import torch_tensors
from graphc.runtime.checkpoints.weights import read_names, read_weights, write_weights
from graphc.support.errors import GraphcError

# What torch 2 made of: {"fc": {"weight": arange(6.).reshape(2, 3).T, "bias": Parameter(bf16 3s)},
# "steps": 3, "zero": tensor(2.5, f64), "none": zeros(0, 3).half(), "wide": arange(3).expand(2, 3)}
TORCH = (
    "c-o~_O>YxN7#@4=joBm=k`PSV0tH$e2+pp*1C&Htw5qg7F-"
    "DavK(aRW#9p!S=3S2oAR$Gnk{0Npg?rUQ|3f+O6SyFup4w9nZBM=SQi+*af6O{@Qefoqde`%O?CkrzcF~j~2*qM(#~"
    "4G?Xw|+qU$cmnT)*QO`UJYUV{C>W0!oy_6tG%_&_f6($}&CKz;?YsK&legt2UCAHnE+SQt|Lg+jeRdf}1VZtK3Z~5J"
    "@D;BNWl1E3G<)s1H#L$F;}}|DpnNIYif}FjAK2vAW)dm?;xDaNR_vWQMmvF+--"
    "b4Wo~$Ro8KFmDp~xr7U|j?BUu~yGj%on=QdOfrBOZpiFNXt=Luz4h?a*Zh6)kCfHNpaD#embbaaEn3n5Vo8Z<om~6z"
    "%Fo7v%DZB+o%+MB0KWZ@5qXgn5IQA_+nfV4jEWt<Za+KdSUT?w2ro<gRz@7`o19Dg0_KJghVkfv*3Qkh75P?sq*zBw"
    "?a*Dv|5}e^gO}B~R(*V(zmb2QU`Ha(~;Vh*=1QN_MV*58scQdpN=X}cZ1m;R`fm3eSH4MoB<u$ii?@`Wk$_%KKQX-"
    ")7ZD5os`hilWeaZ}hYzcDhWYHXnEvqM=U!=9eW^rgGPNFEU#N?{$ty!dU7ke%GbPYX(ZfcC?mw$fynu)VHoMswb@@Y"
    "DiR<Rtr-dw{?V(9r@O8b9}T!tA~+<?DX1j2h77)M`l11t9lc3EK>`r^Clc86mV;$Y@s>+?U3vE<2ndQgzwOZB{J=vU"
    "s;fX}+QNZ*#|i_T3te_CRWj(-2=4{`cMd>=<@-;rkMb8qEni4LYkBJMR-rICHKB7Lotp?9xGILCjto^CKutjB?N<yh"
    ")-"
    "qz(P@d+p#}UgLe8jG<4V;rs8GKI&8;;{HcsFK>Uhy#M}>qIs^<OV#<exuLYelwSQ<|7!pGpFuf4fc%zP*t2N@A6TqY"
    "SL~Xhr`};FRW+N{7F4Z}O{dg!c0tV-@>(vZ6&4m$HCM>zwL-"
    "d(OR3D|#ovE^k)S>j++~PwRoAE3iN<y~7k>u_kz(_i44@u|(QbWfkU(r6(*c54U4k7QYmh?>|9F6-"
    "B%xr_8H9={RRYjoB_#BUL7bSlAg&P+aM~bFOj!{3TEwNgxZN`-"
    "j(AkSr3dxI6a;abA}%wC6Ki@jfcvY18}dBGGMfoL3mNSZfTAhObDfpPr3*qpgU4r`jQ=Zlqb{@mPw2^kek&-"
    "NQQ60g^7a1OH^oB`!v"
)
WANTED = {
    "fc.weight": np.arange(6, dtype=np.float32).reshape(2, 3).T,
    "fc.bias": np.full(2, 3, ml_dtypes.bfloat16), "zero": np.array(2.5),
    "none": np.zeros((0, 3), np.float16), "wide": np.broadcast_to(np.arange(3), (2, 3)),
}  # fmt: skip


@pytest.fixture
def torch_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt"
    path.write_bytes(zlib.decompress(base64.b85decode(TORCH)))
    return path


def refused(path: Path) -> str:
    with pytest.raises(GraphcError) as error:
        read_weights(path)
    assert error.value.code == "G0509" and path.name in error.value.message
    return error.value.render()


# -- torch -----------------------------------------------------------------------------------------


def test_a_file_of_torch_is_read_to_the_bit(torch_file: Path) -> None:
    found = read_weights(torch_file)
    assert found.keys() == WANTED.keys()
    assert all(same(found[name], a) for name, a in WANTED.items())


class Runs:
    """What a pickle can do to whoever loads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_that_would_run_something_runs_nothing(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps({"w": Runs(tmp_path / "made")}, protocol))
    assert "it has a posix.mkdir, which can't be read without running it" in refused(path)
    assert "safetensors.torch.save_file" in refused(path)
    assert os.listdir(tmp_path) == ["model.pt"]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (b"c__builtin__\neval\n(X\x01\x00\x00\x001tR.", "it has a __builtin__.eval"),
        (b"ccollections\nOrderedDict\n(K\x01tR.", "builds no tensor"),
        (b"(K\x01K\x02d.", "does more than build tensors"),
        (b"}q\x00", "exhausted|end"),
        (b"", "exhausted|end"),
        (b"h\x05.", "can't read variables"),
        (b"\x80\x04}X\x01\x00\x00\x00aK\x01b.", "can't read variables"),
    ],
)
def test_other_programs_are_refused(program: bytes, words: str, tmp_path: Path) -> None:
    import re

    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", program)
    assert re.search(words, refused(path))


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."])
def test_what_is_no_archive_is_refused_with_a_way_out(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.pth").write_bytes(content)
    assert "safetensors.torch.save_file" in refused(tmp_path / "model.pth")


@pytest.mark.parametrize("seeds", [300, pytest.param(5_000, marks=pytest.mark.slow)])
def test_a_damaged_file_of_torch_is_refused_or_gives_tensors(seeds: int, torch_file: Path) -> None:
    content, read = torch_file.read_bytes(), 0
    for seed in range(seeds):
        torch_file.write_bytes(damaged(content, seed))
        try:
            for tensor in torch_tensors(torch_file).values():
                if tensor.dtype.itemsize * int(np.prod(tensor.shape, dtype=object)) < 1 << 20:
                    assert tensor.read().shape == tensor.shape
            read += 1
        except GraphcError as error:
            assert error.code == "G0509", seed
    assert 0 < read < seeds


# -- several files under an index ------------------------------------------------------------------


def indexed(folder: Path, where: dict[str, str]) -> Path:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": where}))
    return path


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """Two files under an index; one of them is a link, as in the cache of Hugging Face."""
    (tmp_path / "blobs").mkdir()
    save_file({"a": np.arange(4.0)}, tmp_path / "blobs" / "1234")
    (tmp_path / "model-1-of-2.safetensors").symlink_to("blobs/1234")
    save_file({"b": np.ones(2, np.float32)}, tmp_path / "model-2-of-2.safetensors")
    return indexed(tmp_path, {"a": "model-1-of-2.safetensors", "b": "model-2-of-2.safetensors"})


def test_an_index_is_read_with_its_files_and_so_is_its_folder(sharded: Path) -> None:
    for path in (sharded, sharded.parent):
        found = read_weights(path)
        assert same(found["a"], np.arange(4.0)) and same(found["b"], np.ones(2, np.float32))
    save_file({"c": np.ones(1)}, sharded.parent / "model.safetensors")
    sharded.unlink()
    assert read_weights(sharded.parent).keys() == {"c"}


@pytest.mark.parametrize(
    ("where", "words"),
    [({"a": "../x.safetensors"}, "is not the name of a file"),
     ({"a": "/x.safetensors"}, "is not the name of a file"), ({"a": "x.bin"}, "is not the name"),
     ({"z": "model-2-of-2.safetensors"}, "does not have tensor 'z'"),
     ({"a": "none.safetensors"}, "No such file")],
)  # fmt: skip
def test_an_index_that_names_something_else_is_refused(
    where: dict[str, str], words: str, sharded: Path
) -> None:
    indexed(sharded.parent, where)
    with pytest.raises(GraphcError, match=words) as error:
        read_weights(sharded)
    assert error.value.code == "G0509"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"weight_map": 3}', "[" * 100_000])
def test_what_is_no_index_is_refused(text: str, sharded: Path) -> None:
    sharded.write_text(text)
    assert "it is no index of safetensors files" in refused(sharded)


# -- names -----------------------------------------------------------------------------------------


def test_names_say_which_tensor_is_which_variable(torch_file: Path) -> None:
    found = read_weights(torch_file, {"w": "fc.weight.T", "b": "fc.bias", "c": "none.such"})
    assert found.keys() == {"w", "b"}
    assert same(found["w"], np.arange(6, dtype=np.float32).reshape(2, 3))
    assert same(found["b"], WANTED["fc.bias"])


def test_what_is_written_is_read_back_under_the_same_names(tmp_path: Path) -> None:
    values = {"w": np.arange(6.0).reshape(2, 3), "b": np.ones(3, ml_dtypes.bfloat16), "seen": 1}
    values["seen"] = np.array(3)
    names, path = {"w": "fc.weight.T", "b": "fc.bias"}, tmp_path / "out.safetensors"
    write_weights(path, values, names)
    with safe_open(path, "np") as file:
        assert file.metadata() == {"format": "pt"}
        assert {*file.keys()} == {"fc.weight", "fc.bias"}
        assert same(file.get_tensor("fc.weight"), values["w"].T.copy())
    assert all(same(a, values[name]) for name, a in read_weights(path, names).items())
    write_weights(path, {"w": values["w"]})
    assert same(load_file(path)["w"], values["w"])


@pytest.mark.parametrize(
    ("names", "words"),
    [({"z": "x"}, "no variable 'z'"), ({"w": "x", "b": "x.T"}, "under one name")],
)
def test_names_of_nothing_are_refused(names: dict[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(GraphcError, match=words) as error:
        write_weights(tmp_path / "out", {"w": np.ones(2), "b": np.ones(2)}, names)
    assert (error.value.code, os.listdir(tmp_path)) == ("G0545", [])


@pytest.mark.parametrize("text", ["", "[]", '{"w": 3}', "[" * 100_000])
def test_a_file_without_names_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "names").write_text(text)
    with pytest.raises(GraphcError) as error:
        read_names(tmp_path / "names")
    assert error.value.code == "G0545"
