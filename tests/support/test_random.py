"""Counter-based random numbers: the published vectors, independence of sharding, moments."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphc.ir.placement import capacity, shard_bounds
from graphc.support import random

F64, F32, F16 = (np.dtype(t) for t in (np.float64, np.float32, np.float16))
BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = (F64, F32, F16, BF16)
DRAWS = {
    "bits": lambda indices, dtype: random.bits(indices, 3, 4),
    "uniform": lambda indices, dtype: random.uniform(indices, dtype, 3, 4),
    "normal": lambda indices, dtype: random.normal(indices, dtype, 3, 4),
}


def line(n, start=0):
    return np.arange(start, start + n, dtype=np.uint64)


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# counter (4 words), key (2 words), result: the known answers that the authors publish
VECTORS = [
    ([0] * 4, [0] * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


@pytest.mark.parametrize(("counter", "stream", "words"), VECTORS)
def test_philox_gives_the_published_words(counter, stream, words):
    low, high = counter[0] | counter[1] << 32, counter[2] | counter[3] << 32
    got = random.philox(np.array([low], np.uint64), stream[0] | stream[1] << 32, high)
    assert " ".join(f"{word:08x}" for word in got[0]) == words


def test_philox_agrees_with_an_integer_model_at_random_counters():
    rng = np.random.default_rng(0)
    for _ in range(20):
        c, k, s = (int(x) for x in rng.integers(0, 2**64, 3, dtype=np.uint64))
        words = [c & 0xFFFFFFFF, c >> 32, s & 0xFFFFFFFF, s >> 32]
        keys = [k & 0xFFFFFFFF, k >> 32]
        for _ in range(10):
            p, q = words[0] * 0xD2511F53, words[2] * 0xCD9E8D57
            words = [q >> 32 ^ words[1] ^ keys[0], q, p >> 32 ^ words[3] ^ keys[1], p]
            words = [w & 0xFFFFFFFF for w in words]
            keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
        assert random.philox(np.array([c], np.uint64), k, s)[0].tolist() == words


def test_the_numbers_are_fixed_for_ever():
    """A change of these breaks every run that is resumed from a checkpoint."""
    assert random.key(0, "w1") == 0x558B6E9B180EDAF6
    key = random.key(0, "w1")
    assert random.bits(line(3, 6), key, 2).tolist() == [751163869, 12345281, 3318320283]
    assert random.uniform(line(2), F64, key, 2).tolist() == [
        0.11651226369696921,
        0.7236482234655206,
    ]
    assert random.normal(line(3), F64, key, 2).tolist() == [
        -0.3417539074322054,
        -2.0451703476400835,
        -0.7752365340613203,
    ]


def test_key_depends_on_seed_and_name_and_keeps_them_apart():
    keys = {random.key(s, n) for s in (0, 1, 11, -1, 2**80) for n in ("", "w", "1:w", "w1", "ü")}
    assert len(keys) == 25
    assert all(0 <= k < 2**64 for k in keys)


def test_key_is_the_same_in_another_process():
    code = "from graphc.support import random; print(random.key(7, 'dropout'))"
    out = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONHASHSEED": "5"}, capture_output=True, check=True
    )
    assert int(out.stdout) == random.key(7, "dropout")


# -- independence of sharding ----------------------------------------------------------------------


@given(
    shape=st.lists(st.integers(0, 9), max_size=3),
    cut=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=3, max_size=3),
    draw=st.sampled_from(sorted(DRAWS)),
    dtype=st.sampled_from(FLOATS),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_a_shard_has_the_bits_of_its_part_of_the_whole(shape, cut, draw, dtype, data):
    whole = DRAWS[draw](random.global_indices(shape, [0] * len(shape), shape), dtype)
    local, offsets, window = [], [], []
    for size, (major, minor) in zip(shape, cut, strict=False):
        at = data.draw(st.integers(0, major - 1)), data.draw(st.integers(0, minor - 1))
        offset, length = shard_bounds(size, [(major, at[0]), (minor, at[1])])
        local.append(capacity(size, (major, minor)))
        offsets.append(offset)
        window.append((offset, length))
    part = DRAWS[draw](random.global_indices(local, offsets, shape), dtype)
    assert part.shape == tuple(local)
    valid = part[tuple(slice(0, length) for _, length in window)]
    assert same(valid, whole[tuple(slice(o, o + length) for o, length in window)])


@pytest.mark.parametrize("draw", sorted(DRAWS))
def test_an_element_is_the_same_alone_in_a_run_shuffled_and_across_chunks(draw):
    n = 2 * random.CHUNK + 7
    whole = DRAWS[draw](line(n), F32)
    order = np.random.default_rng(0).permutation(n)
    assert same(DRAWS[draw](order.astype(np.uint64), F32), whole[order])
    assert same(DRAWS[draw](line(n - 5, 5), F32), whole[5:])
    assert same(DRAWS[draw](line(n)[::-3], F32), whole[::-3])
    for i in (0, 1, 2, 3, random.CHUNK - 1, random.CHUNK, n - 1):
        assert same(DRAWS[draw](line(1, i), F32), whole[i : i + 1])


def test_global_indices_are_row_major_and_reach_beyond_32_bits():
    assert random.global_indices((2, 2), (1, 1), (3, 4)).tolist() == [[5, 6], [9, 10]]
    assert random.global_indices((), (), ()).tolist() == 0
    assert random.global_indices((0, 3), (0, 0), (0, 3)).shape == (0, 3)
    far = random.global_indices((1, 2), (2**33, 1), (2**34, 7))
    assert far.dtype == np.uint64
    assert far.tolist() == [[7 * 2**33 + 1, 7 * 2**33 + 2]]
    assert not same(random.bits(far, 0, 0), random.bits(far & np.uint64(0xFFFFFFFF), 0, 0))


def test_step_and_key_each_change_the_draw():
    base = random.bits(line(64), 1, 1)
    for key, step in ((1, 2), (2, 1), (1, 1 + 2**32), (1 + 2**32, 1)):
        assert (random.bits(line(64), key, step) != base).all()
    assert same(random.bits(line(64), 1, -1), random.bits(line(64), 1, 2**64 - 1))


# -- values ----------------------------------------------------------------------------------------


def test_uniform_of_every_dtype_is_the_same_draw_cut_to_its_mantissa():
    wide = random.uniform(line(5000), F64, 1, 0)
    for dtype in (F32, F16, BF16):
        size = 2.0 ** random.MANTISSA[dtype.name]
        narrow = random.uniform(line(5000), dtype, 1, 0)
        assert narrow.dtype == dtype
        assert (narrow.astype(np.float64) == np.floor(wide * size) / size).all()


def test_uniform_never_reaches_one():
    for dtype in FLOATS:
        x = random.uniform(line(100_000), dtype, 9, 0).astype(np.float64)
        assert x.min() >= 0 and x.max() < 1


def test_uniform_uses_all_53_bits_of_f64():
    x = random.uniform(line(1000), F64, 1, 0) * 2.0**53
    assert (x == np.floor(x)).all()
    assert len({int(v) & 0x1FFFFF for v in x}) > 990  # the low 21 bits are random as well


def test_normal_of_every_dtype_is_the_f64_draw_rounded():
    wide = random.normal(line(5000), F64, 1, 0)
    assert same(random.normal(line(5000), F32, 1, 0), wide.astype(np.float32))
    for dtype in (F16, BF16):
        rounded = wide.astype(np.float32).astype(dtype)
        assert same(random.normal(line(5000), dtype, 1, 0), rounded)


@pytest.mark.parametrize("stream", [0, 12345])
def test_moments_are_those_of_the_distributions(stream):
    """Each within five standard errors; fixed streams, so this either always holds or never."""
    n = 1 << 18
    u, z = random.uniform(line(n), F64, stream, 0), random.normal(line(n), F64, stream, 0)
    for x, moments in (
        (u, [(1, 1 / 2), (2, 1 / 3), (3, 1 / 4), (4, 1 / 5)]),
        (z, [(1, 0), (2, 1), (3, 0), (4, 3), (6, 15)]),
    ):
        for power, moment in moments:
            y = x**power
            assert abs(y.mean() - moment) < 5 * y.std() / n**0.5
        for lag in (1, 2, 3, 4, 5):  # neighbors, of a pair, a block and beyond, are uncorrelated
            a, b = x[:-lag] - x.mean(), x[lag:] - x.mean()
            assert abs((a * b).mean()) < 5 * x.var() / n**0.5
    inside = [(np.abs(z) < k).mean() for k in (1, 2, 3)]
    assert inside == pytest.approx([0.682689, 0.954500, 0.997300], abs=0.005)


def test_logarithm_and_angle_agree_with_the_library_to_a_few_units():
    rng = np.random.default_rng(0)
    words = np.r_[0, 1, 2**30, 2**31, 2**32 - 1, rng.integers(0, 2**32, 100_000)]
    x = (words + 1.0) * 2.0**-32
    assert np.allclose(random._log(x), np.log(x), rtol=1e-15, atol=0)
    cos, sin = random._turn(words.astype(np.uint32))
    angle = 2 * np.pi * (words / 2.0**32)
    assert np.abs(cos - np.cos(angle)).max() < 2e-15
    assert np.abs(sin - np.sin(angle)).max() < 2e-15
