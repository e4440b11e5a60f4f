"""The official files of CIFAR and MNIST, written here byte by byte and read back."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hotset.datasets import files
from hotset.datasets.files import download_cifar10, read_cifar, read_idx, read_mnist
from hotset.errors import ConfigError, DownloadError, FormatError, MissingDataError

CIFAR10_NAMES = [f"class{i}" for i in range(10)]
FINE_NAMES = [f"fine{i}" for i in range(100)]
COARSE_NAMES = [f"coarse{i}" for i in range(20)]
BATCHES = [f"data_batch_{i}" for i in range(1, 6)]
PER_BATCH = 4


def python2_pickle(value: Any) -> bytes:
    """Returns what Python 2's `pickle.dumps(value, 2)` writes: the form of the official files."""
    return b"\x80\x02" + _opcodes(value) + b"."


def _opcodes(value: Any) -> bytes:
    if isinstance(value, dict):
        pairs = b"".join(_opcodes(key) + _opcodes(item) for key, item in value.items())
        return b"}(" + pairs + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(_opcodes, value)) + b"e"
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    if isinstance(value, str):
        return b"T" + struct.pack("<i", len(value)) + value.encode("latin1")
    assert isinstance(value, np.ndarray)
    rows, columns = value.shape
    return (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        + b"(K\x01"
        + (b"J" + struct.pack("<i", rows) + b"J" + struct.pack("<i", columns) + b"\x86")
        + b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        + b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + b"\x89"
        + (b"T" + struct.pack("<i", value.size) + value.tobytes())
        + b"tb"
    )


def random_batch(seed: int, classes: int, count: int = PER_BATCH) -> tuple[Any, list[int]]:
    """Returns `(count, 3072)` pixels and `count` labels."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (count, 3072), dtype=np.uint8)
    return pixels, rng.integers(0, classes, count).tolist()


def write_cifar10_python(root: Path, dump: Any = python2_pickle) -> Path:
    """Writes CIFAR-10's Python layout with four images a batch; returns its folder."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for seed, name in enumerate([*BATCHES, "test_batch"]):
        pixels, labels = random_batch(seed, 10)
        entry = {"batch_label": name, "labels": labels, "data": pixels, "filenames": ["x.png"]}
        (folder / name).write_bytes(dump(entry))
    meta = {"num_cases_per_batch": PER_BATCH, "label_names": CIFAR10_NAMES, "num_vis": 3072}
    (folder / "batches.meta").write_bytes(dump(meta))
    return folder


def write_cifar10_binary(root: Path) -> Path:
    """Writes CIFAR-10's binary layout with four images a batch; returns its folder."""
    folder = root / "cifar-10-batches-bin"
    folder.mkdir()
    for seed, name in enumerate([*BATCHES, "test_batch"]):
        pixels, labels = random_batch(seed, 10)
        records = np.concatenate([np.array(labels, np.uint8)[:, None], pixels], axis=1)
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(CIFAR10_NAMES) + "\n\n")
    return folder


def expected_cifar10(train: bool) -> tuple[Any, list[int]]:
    """Returns what `write_cifar10_*` wrote: `(N, 3, 32, 32)` pixels and labels."""
    batches = [random_batch(seed, 10) for seed in (range(5) if train else [5])]
    pixels = np.concatenate([batch[0] for batch in batches]).reshape(-1, 3, 32, 32)
    return pixels, [label for batch in batches for label in batch[1]]


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("write", [write_cifar10_python, write_cifar10_binary])
@pytest.mark.parametrize("inside", [False, True])
def test_cifar10_is_read_from_both_layouts(
    tmp_path: Path, write: Any, train: bool, inside: bool
) -> None:
    """Pixels, labels and names come back, from the parent folder or the folder itself."""
    folder = write(tmp_path)
    images, labels, names = read_cifar(folder if inside else tmp_path, train=train)
    pixels, expected_labels = expected_cifar10(train)
    assert images.dtype == torch.uint8
    assert images.is_contiguous()
    np.testing.assert_array_equal(images.numpy(), pixels)
    assert labels.dtype == torch.int64
    assert labels.tolist() == expected_labels
    assert names == tuple(CIFAR10_NAMES)
    images += 1


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_pickles_written_again_by_python3_are_read(tmp_path: Path, protocol: int) -> None:
    """Files that somebody loaded and saved again, in C or Fortran order, are read as well."""
    write_cifar10_python(
        tmp_path,
        lambda entry: pickle.dumps(
            pickle.loads(python2_pickle(entry), encoding="latin1"), protocol
        ),
    )
    images, labels, _ = read_cifar(tmp_path, train=False)
    pixels, expected_labels = expected_cifar10(train=False)
    np.testing.assert_array_equal(images.numpy(), pixels)
    assert labels.tolist() == expected_labels
    entry = {"labels": expected_labels, "data": np.asfortranarray(pixels.reshape(-1, 3072))}
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(pickle.dumps(entry, protocol))
    np.testing.assert_array_equal(read_cifar(tmp_path, train=False)[0].numpy(), pixels)


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("layout", ["python", "binary"])
def test_cifar100_is_read_with_fine_and_coarse_labels(
    tmp_path: Path, layout: str, coarse: bool
) -> None:
    """Each layout gives both kinds of labels and their names."""
    folder = tmp_path / f"cifar-100-{layout}"
    folder.mkdir()
    pixels, fine = random_batch(1, 100)
    _, groups = random_batch(2, 20)
    if layout == "python":
        entry = {"fine_labels": fine, "coarse_labels": groups, "data": pixels}
        (folder / "train").write_bytes(python2_pickle(entry))
        meta = {"fine_label_names": FINE_NAMES, "coarse_label_names": COARSE_NAMES}
        (folder / "meta").write_bytes(python2_pickle(meta))
    else:
        both = np.array([groups, fine], np.uint8).T
        (folder / "train.bin").write_bytes(np.concatenate([both, pixels], axis=1).tobytes())
        (folder / "fine_label_names.txt").write_text("\n".join(FINE_NAMES))
        (folder / "coarse_label_names.txt").write_text("\n".join(COARSE_NAMES))
    images, labels, names = read_cifar(tmp_path, "cifar100", coarse=coarse)
    np.testing.assert_array_equal(images.numpy(), pixels.reshape(-1, 3, 32, 32))
    assert labels.tolist() == (groups if coarse else fine)
    assert names == tuple(COARSE_NAMES if coarse else FINE_NAMES)
    with pytest.raises(MissingDataError, match=r"is incomplete: expected also test"):
        read_cifar(tmp_path, "cifar100", train=False, coarse=coarse)


def test_a_malicious_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    """A pickle that calls os.system is named and refused; unrestricted, it would have run."""
    folder = write_cifar10_python(tmp_path)
    trace = tmp_path / "trace"
    attack = f"cos\nsystem\n(S'echo > {trace}'\ntR.".encode()
    (folder / "test_batch").write_bytes(attack)
    with pytest.raises(FormatError, match=r"test_batch: the pickle asks for os\.system, which"):
        read_cifar(tmp_path, train=False)
    (folder / "batches.meta").write_bytes(attack)
    with pytest.raises(FormatError, match=r"batches\.meta: the pickle asks for os\.system"):
        read_cifar(tmp_path, train=False)
    assert not trace.exists()
    pickle.loads(attack)
    assert trace.exists()


PIXELS = np.zeros((4, 3072), np.uint8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cbuiltins\neval\nU\x031+1\x85R.", r"the pickle asks for builtins\.eval, which was"),
        (b"cnumpy\nload\n.", r"the pickle asks for numpy\.load"),
        (b"cnumpy.core.multiarray\nscalar\n.", r"the pickle asks for numpy.*\.scalar"),
        (b"\x8c\x05numpy\x8c\x0cndarray.dump\x93.", r"the pickle asks for numpy\.ndarray\.dump"),
        (b"\x8c\x07_codecs\x8c\x06lookup\x93.", r"the pickle asks for _codecs\.lookup"),
        (b"(S'true'\nios\nsystem\n.", r"the pickle asks for os\.system"),
        (b"\x82\x01.", "expected a complete pickle, got ValueError: unregistered extension"),
        (b"Ppersistent\n.", "expected a complete pickle, got UnpicklingError"),
        (b"cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R.", "array of uint8 .* got dtype 'O8'"),
        (b"c_codecs\nencode\n}b.", "the pickle tries to alter a function"),
        (b"c_codecs\nencode\nU\x01xU\x05rot13\x86R.", "latin1 text, got encoding 'rot13'"),
        (b"cnumpy\nndarray\n)\x81.", "expected a complete pickle, got "),
        (b"cnumpy\nndarray\n)R(K\x01K\x02\x85NNU\x02abtb.", "expected an array of uint8 with its"),
        (b"cnumpy\nndarray\n)RU\x01xb.", "expected a complete pickle, got ValueError"),
        (python2_pickle({"data": PIXELS})[:-9], "expected a complete pickle, got "),
        (python2_pickle({"data": PIXELS}).replace(b"J\4", b"J\5"), "15360 bytes for .*, got 122"),
        (b"", "expected a complete pickle, got EOFError"),
        (b"].", "expected a dictionary, got list"),
        (b"}U\x04datacnumpy\nndarray\n)Rs.", r"expected 'data' of shape \(N, 3072\), got _Pick"),
        ({"data": PIXELS[:, 1:]}, r"expected 'data' of .*, got shape \(4, 3071\)"),
        ({"data": PIXELS}, "expected 'labels' to be a list of int, got nothing"),
        ({"data": PIXELS, "labels": "0123"}, "'labels' to be a list of int, got a str"),
        ({"data": PIXELS, "labels": ["0"] * 4}, "'labels' to be a list of int, got a list of some"),
        ({"data": PIXELS, "labels": [0] * 3}, "expected one label per image, got 3 labels"),
        ({"data": PIXELS, "labels": [0, 1, 2, 10]}, "expected labels 0 to 9, got 0 to 10"),
        ({"data": PIXELS, "labels": [0, 1, 2, -3]}, "expected labels 0 to 9, got -1 to 2"),
        (pickle.dumps({"data": PIXELS, "labels": [0, 0, 0, 1 << 80]}, 2), "got 0 to 2147483648"),
        ({"data": PIXELS[:3], "labels": [0] * 3}, "expected 4 images, got 3"),
    ],
)
def test_pickles_that_are_not_cifar_are_refused(
    tmp_path: Path, content: bytes | dict[str, Any], message: str
) -> None:
    """Other names, types, shapes, counts and ranges are each refused, and the file is named."""
    path = write_cifar10_python(tmp_path) / "test_batch"
    path.write_bytes(content if isinstance(content, bytes) else python2_pickle(content))
    with pytest.raises(FormatError, match=f"test_batch: .*{message}"):
        read_cifar(tmp_path, train=False)


def test_every_truncation_of_a_pickle_is_refused(tmp_path: Path) -> None:
    """Wherever a file breaks off, the error is hotset's and names it."""
    folder = write_cifar10_python(tmp_path)
    whole = (folder / "test_batch").read_bytes()
    for length in [*range(0, 400, 7), len(whole) // 2, len(whole) - 1]:
        (folder / "test_batch").write_bytes(whole[:length])
        with pytest.raises(FormatError, match="test_batch: expected a complete pickle"):
            read_cifar(tmp_path, train=False)


def test_wrong_numbers_of_class_names_are_refused(tmp_path: Path) -> None:
    """Nine names for ten classes is an error in either layout."""
    python, binary = write_cifar10_python(tmp_path), write_cifar10_binary(tmp_path)
    (python / "batches.meta").write_bytes(python2_pickle({"label_names": CIFAR10_NAMES[:9]}))
    with pytest.raises(FormatError, match=r"batches\.meta: expected 10 class names, got 9"):
        read_cifar(python)
    (binary / "batches.meta.txt").write_text("\n".join(CIFAR10_NAMES[:9]))
    with pytest.raises(FormatError, match=r"batches\.meta\.txt: expected 10 class names, got 9"):
        read_cifar(binary)


def test_truncated_binary_files_are_refused(tmp_path: Path) -> None:
    """A file cut within a record, at a record, or to nothing is named."""
    path = write_cifar10_binary(tmp_path) / "data_batch_3.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(FormatError, match=r"data_batch_3\.bin: expected records of 3073 bytes"):
        read_cifar(tmp_path)
    path.write_bytes(whole[:-3073])
    with pytest.raises(FormatError, match=r"data_batch_3\.bin: expected 4 images, got 3"):
        read_cifar(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(FormatError, match=r"data_batch_3\.bin: expected 4 images, got 0"):
        read_cifar(tmp_path)
    path.write_bytes(b"\x0a" + whole[1:])
    with pytest.raises(FormatError, match=r"data_batch_3\.bin: .* 0 to 9, got \d to 10"):
        read_cifar(tmp_path)
    (path.parent / "test_batch.bin").write_bytes(b"")
    with pytest.raises(FormatError, match=r"test_batch\.bin: expected some images, got 0"):
        read_cifar(tmp_path, train=False)


def test_missing_cifar_files_are_named(tmp_path: Path) -> None:
    """Nothing at all, one file, the class names: each is said, unless another layout is whole."""
    with pytest.raises(MissingDataError, match="a folder cifar-10-batches-py or cifar-10-batch"):
        read_cifar(tmp_path / "nowhere")
    folder = write_cifar10_python(tmp_path)
    (folder / "data_batch_2").unlink()
    with pytest.raises(MissingDataError, match=r"py is incomplete: expected also data_batch_2$"):
        read_cifar(tmp_path)
    assert len(read_cifar(tmp_path, train=False)[0]) == PER_BATCH
    (folder / "batches.meta").unlink()
    with pytest.raises(FileNotFoundError, match=r"expected also batches\.meta$"):
        read_cifar(tmp_path, train=False)
    write_cifar10_binary(tmp_path)
    np.testing.assert_array_equal(read_cifar(tmp_path)[0].numpy(), expected_cifar10(True)[0])


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    """Unknown names, and coarse labels where there are none, are errors."""
    with pytest.raises(ConfigError, match="`name` must be 'cifar10' or 'cifar100', got 'cifar'"):
        read_cifar(tmp_path, "cifar")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="`coarse` labels exist only in CIFAR-100"):
        read_cifar(tmp_path, coarse=True)
    with pytest.raises(ConfigError, match="must be 'mnist' or 'fashion-mnist', got 'emnist'"):
        read_mnist(tmp_path, "emnist")  # type: ignore[arg-type]


IDX_CODES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}


def idx_bytes(array: Any) -> bytes:
    """Returns the IDX file of an array."""
    code = array.dtype.str[1:]
    head = struct.pack(f">HBB{array.ndim}I", 0, IDX_CODES[code], array.ndim, *array.shape)
    return head + bytes(array.astype(f">{code}").tobytes())


def write_mnist(folder: Path, *, dot: str = "-", end: str = "", seed: int = 0) -> None:
    """Writes five training and three test digits."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", 5), ("t10k", 3)):
        images, labels = digits(seed, count)
        for part, array in ((f"images{dot}idx3", images), (f"labels{dot}idx1", labels)):
            data = idx_bytes(array)
            path = folder / f"{split}-{part}-ubyte{end}"
            path.write_bytes(gzip.compress(data) if end else data)


def digits(seed: int, count: int) -> tuple[Any, Any]:
    """Returns `(count, 28, 28)` pixels and `count` labels."""
    rng = np.random.default_rng([seed, count])
    return (
        rng.integers(0, 256, (count, 28, 28), dtype=np.uint8),
        rng.integers(0, 10, count, dtype=np.uint8),
    )


@pytest.mark.parametrize("dtype", list(IDX_CODES))
@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4, 5)])
@pytest.mark.parametrize("zipped", [False, True])
def test_idx_of_every_type_is_read(
    tmp_path: Path, dtype: str, shape: tuple[int, ...], zipped: bool
) -> None:
    """Values, shape and type come back in the machine's byte order, writable."""
    array = (np.random.default_rng(0).normal(size=shape) * 100).astype(dtype, casting="unsafe")
    data = idx_bytes(array)
    (tmp_path / "file").write_bytes(gzip.compress(data) if zipped else data)
    read = read_idx(tmp_path / "file")
    assert read.dtype == np.dtype(dtype)
    assert read.dtype.isnative
    assert read.flags.writeable
    np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"expected an IDX .*, got \[\] and sizes \(\)"),
        (b"\0\1\x08\1\0\0\0\1x", r"expected an IDX .*, got \[0, 1, 8, 1\]"),
        (b"\0\0\x0a\1\0\0\0\1x", r"expected an IDX .*, got \[0, 0, 10, 1\]"),
        (b"\0\0\x08\0x", r"expected an IDX .*, got \[0, 0, 8, 0\]"),
        (b"\0\0\x08\xff" + b"\0\0\0\1" * 255 + b"x", r"expected an IDX .*, got \[0, 0, 8, 25"),
        (b"\0\0\x08\2\0\0\0\1\0\0", r"expected an IDX .* and sizes \(1, 0\)"),
        (b"\0\0\x08\2\0\0\0\0\xff\xff\xff\xff", r"expected an IDX .* sizes \(0, 4294967295\)"),
        (b"\0\0\x08\1\0\0\0\3xx", r"expected 3 bytes for \(3,\) uint8, got 2$"),
        (b"\0\0\x08\1\0\0\0\3xxxx", r"expected 3 bytes for \(3,\) uint8, got 4 or more"),
        (b"\0\0\x0e\3" + b"\xff" * 12 + b"xxx", r"expected \d{29,} bytes for .*, got 3$"),
    ],
)
def test_damaged_idx_files_are_refused(
    tmp_path: Path, data: bytes, message: str, zipped: bool
) -> None:
    """Magic numbers, dimensions and sizes are checked; a lying header takes no memory."""
    (tmp_path / "file").write_bytes(gzip.compress(data) if zipped else data)
    with pytest.raises(FormatError, match=r"file: " + message):
        read_idx(tmp_path / "file")


def test_damaged_gzip_files_are_refused(tmp_path: Path) -> None:
    """A gzip file that breaks off, or whose checksum disagrees, is named."""
    path = tmp_path / "file.gz"
    whole = gzip.compress(idx_bytes(np.random.default_rng(0).integers(0, 256, 999, np.uint8)))
    for data in (whole[:5], whole[:500], whole[:-1], whole[:-8] + b"\0" * 8):
        path.write_bytes(data)
        with pytest.raises(FormatError, match=r"file\.gz: expected a complete gzip file: "):
            read_idx(path)
    with pytest.raises(MissingDataError, match="absent: expected an IDX file, found none"):
        read_idx(tmp_path / "absent")


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("dot", ["-", "."])
@pytest.mark.parametrize(
    ("name", "below"),
    [("mnist", "MNIST/raw"), ("mnist", "."), ("fashion-mnist", "FashionMNIST/raw")],
)
def test_mnist_is_read_from_every_place_and_spelling(
    tmp_path: Path, name: Any, below: str, dot: str, end: str, train: bool
) -> None:
    """Pixels and labels come back with a channel axis."""
    write_mnist(tmp_path / below, dot=dot, end=end)
    images, labels = read_mnist(tmp_path, name, train=train)
    pixels, expected_labels = digits(0, 5 if train else 3)
    assert images.dtype == torch.uint8
    np.testing.assert_array_equal(images.numpy(), pixels[:, None])
    assert labels.dtype == torch.int64
    assert labels.tolist() == expected_labels.tolist()


def test_mnist_and_fashion_mnist_side_by_side_are_not_mixed_up(tmp_path: Path) -> None:
    """Each name takes its own folder, and both files from the same one."""
    write_mnist(tmp_path / "MNIST/raw", seed=1)
    write_mnist(tmp_path / "FashionMNIST/raw", seed=2)
    write_mnist(tmp_path, seed=3)
    np.testing.assert_array_equal(read_mnist(tmp_path)[0][:, 0].numpy(), digits(1, 5)[0])
    fashion, _ = read_mnist(tmp_path, "fashion-mnist")
    np.testing.assert_array_equal(fashion[:, 0].numpy(), digits(2, 5)[0])
    (tmp_path / "MNIST/raw/train-labels-idx1-ubyte").unlink()
    np.testing.assert_array_equal(read_mnist(tmp_path)[0][:, 0].numpy(), digits(3, 5)[0])
    with pytest.raises(MissingDataError, match=r"expected t10k-images-idx3-ubyte and .*MNIST/raw"):
        read_mnist(tmp_path / "nowhere", train=False)


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        ("images-idx3", np.ones((5, 28, 27), np.uint8), r"expected \(N, 28, 28\) uint8, .*27"),
        ("images-idx3", np.ones((5, 28, 28), np.int8), r"expected \(N, 28, 28\) uint8, .* int8"),
        ("images-idx3", np.ones(5, np.uint8), r"expected \(N, 28, 28\) uint8, got \(5,\)"),
        ("labels-idx1", np.ones(4, np.uint8), r"expected \(5,\) uint8, .* got \(4,\)"),
        ("labels-idx1", np.full(5, 10, np.uint8), r"expected \(5,\) uint8, 0 to 9, .* up to 10"),
        ("labels-idx1", np.ones(5, np.int32), r"expected \(5,\) uint8, .* int32"),
    ],
)
def test_mnist_files_that_disagree_are_refused(
    tmp_path: Path, file: str, array: Any, message: str
) -> None:
    """Shapes, types, counts and the range of labels are checked, and the file is named."""
    write_mnist(tmp_path)
    (tmp_path / f"train-{file}-ubyte").write_bytes(idx_bytes(array))
    with pytest.raises(FormatError, match=f"train-{file}-ubyte: {message}"):
        read_mnist(tmp_path)


def pack(archive: Path, members: dict[str, bytes | str]) -> str:
    """Writes a tar.gz of files (bytes) and symbolic links (str); returns its MD5."""
    with tarfile.open(archive, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return hashlib.md5(archive.read_bytes()).hexdigest()


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local file that stands for the official archive, with members that must not come out."""
    folder = write_cifar10_python(tmp_path / "made")
    members = {f"{folder.name}/{path.name}": path.read_bytes() for path in folder.iterdir()}
    path = tmp_path / "official.tar.gz"
    md5 = pack(path, {**members, "../escaped": b"x", f"{folder.name}/extra": b"x"})
    monkeypatch.setattr(files, "CIFAR10_URL", path.as_uri())
    monkeypatch.setattr(files, "CIFAR10_MD5", md5)
    return path


def test_the_download_is_checked_and_unpacked(tmp_path: Path, archive: Path) -> None:
    """The known files appear and nothing else; a second call fetches nothing."""
    seen: list[tuple[int, int | None]] = []
    root = tmp_path / "new" / "root"
    folder = download_cifar10(root, progress=lambda done, total: seen.append((done, total)))
    assert folder == root / "cifar-10-batches-py"
    assert sorted(os.listdir(folder)) == sorted([*BATCHES, "test_batch", "batches.meta"])
    assert os.listdir(root) == ["cifar-10-batches-py"]
    assert not (root.parent / "escaped").exists()
    assert seen[-1] == (archive.stat().st_size, archive.stat().st_size)
    np.testing.assert_array_equal(read_cifar(root)[0].numpy(), expected_cifar10(True)[0])
    archive.unlink()
    assert download_cifar10(root) == folder


def test_a_download_that_fails_leaves_nothing(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong checksum, a wrong archive and no archive are errors; what is there is left alone."""
    root = tmp_path / "root"

    def fails(message: str) -> None:
        with pytest.raises(DownloadError, match=message):
            download_cifar10(root)
        assert os.listdir(root) == []

    archive.write_bytes(archive.read_bytes() + b"\0")
    fails(r"could not download CIFAR-10 from file:.* expected an archive of MD5 \w{32}, got \w{32}")
    name = "cifar-10-batches-py/data_batch_1"
    for content, message in (
        (b"x", "data_batch_2.*not found"),
        ("/etc/passwd", "linkname|not found"),
    ):
        monkeypatch.setattr(files, "CIFAR10_MD5", pack(archive, {name: content}))
        fails(message)
    archive.unlink()
    fails("could not download CIFAR-10 from file:.* Without a network, unpack the archive there")
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    with pytest.raises(DownloadError, match="is incomplete and in the way: remove it"):
        download_cifar10(root)
    assert folder.exists()
