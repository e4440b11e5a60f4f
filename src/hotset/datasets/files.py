"""Readers of the official CIFAR and MNIST files into arrays; nothing in a file is ever run."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import math
import os
import pickle
import shutil
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray

from hotset.errors import ConfigError, DownloadError, FormatError, MissingDataError

StrPath = str | os.PathLike[str]
CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
CIFAR10_MD5 = "c58f30108f718f92721af3d95e74349a"
"""Source: https://www.cs.toronto.edu/~kriz/cifar.html, which also describes both layouts."""
DOWNLOAD_TIMEOUT_S = 30.0
CHUNK_BYTES = 1 << 20
CIFAR_PIXELS = 3 * 32 * 32
"""Bytes of one CIFAR image: its red, green and blue planes of 32 rows."""
IDX_DTYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
"""NumPy dtype of each IDX type code. Source: http://yann.lecun.com/exdb/mnist/"""
DEFLATE_MAX_RATIO = 1032
"""Bytes that one byte of gzip can become at most. Source: https://zlib.net/zlib_tech.html"""


def read_cifar(
    root: StrPath,
    name: Literal["cifar10", "cifar100"] = "cifar10",
    *,
    train: bool = True,
    coarse: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, tuple[str, ...]]:
    """Returns images, labels and class names of CIFAR-10 or CIFAR-100 from the official files.

    Both official layouts are read: the Python one (pickles, of which only uint8 arrays, containers,
    numbers and strings are accepted) and the binary one. Where both are complete, the Python one is
    taken. Files with other numbers of images than the official ones are read if they agree.

    Args:
        root: the folder that holds ``cifar-10-batches-py`` (``cifar-10-batches-bin``,
            ``cifar-100-python``, ``cifar-100-binary``), as with torchvision, or that folder itself.
        name: ``"cifar10"`` or ``"cifar100"``.
        train: the training set, or else the test set.
        coarse: the 20 superclasses of CIFAR-100 instead of its 100 classes.

    Returns:
        images ``(N, 3, 32, 32)`` uint8, 0-255, RGB; labels ``(N,)`` int64; one name per class.

    Raises:
        ConfigError: if `name` is another one, or `coarse` is asked of CIFAR-10.
        MissingDataError: if no layout is complete below `root`.
        FormatError: if a file is truncated, damaged, or holds anything but data.
    """
    if name not in ("cifar10", "cifar100"):
        raise ConfigError(f"`name` must be 'cifar10' or 'cifar100', got {name!r}")
    if coarse and name == "cifar10":
        raise ConfigError("`coarse` labels exist only in CIFAR-100, got name='cifar10'")
    kind = "" if name == "cifar10" else "coarse_" if coarse else "fine_"
    classes = {"": 10, "coarse_": 20, "fine_": 100}[kind]
    paths, meta = _find_cifar(Path(root), name, train, kind)
    is_pickle, key = not paths[0].suffix, f"{kind}label_names"
    entry = _load_pickle(meta) if is_pickle else {key: meta.read_text("latin1").split()}
    names = _get_list(entry, key, str, meta)
    if len(names) != classes:
        raise FormatError(f"{meta}: expected {classes} class names, got {len(names)}")
    read = _read_pickled_batch if is_pickle else _read_binary_batch
    batches = [read(path, kind) for path in paths]
    expected = entry.get("num_cases_per_batch", len(batches[0][1]))
    for path, (_, labels) in zip(paths, batches, strict=True):
        if len(labels) != expected or len(labels) == 0:
            raise FormatError(f"{path}: expected {expected or 'some'} images, got {len(labels)}")
        if labels.min() < 0 or labels.max() >= classes:
            raise FormatError(
                f"{path}: expected labels 0 to {classes - 1}, got {labels.min()} to {labels.max()}"
            )
    images = np.concatenate([batch[0] for batch in batches]).reshape(-1, 3, 32, 32)
    labels = np.concatenate([batch[1] for batch in batches])
    return torch.from_numpy(images), torch.from_numpy(labels), tuple(names)


def _find_cifar(root: Path, name: str, train: bool, kind: str) -> tuple[list[Path], Path]:
    """Returns the batches and the class names of the first complete layout."""
    if name == "cifar10":
        batches = [f"data_batch_{i}" for i in range(1, 6)] if train else ["test_batch"]
        python, binary = "cifar-10-batches-py", "cifar-10-batches-bin"
        metas = "batches.meta", "batches.meta.txt"
    else:
        batches = ["train" if train else "test"]
        python, binary = "cifar-100-python", "cifar-100-binary"
        metas = "meta", f"{kind}label_names.txt"
    partial = ""
    for layout, suffix, meta in ((python, "", metas[0]), (binary, ".bin", metas[1])):
        for folder in (root / layout, root):
            paths = [folder / f"{batch}{suffix}" for batch in batches]
            missing = [path.name for path in (*paths, folder / meta) if not path.is_file()]
            if not missing:
                return paths, folder / meta
            if len(missing) <= len(paths) and not partial:
                partial = f"{folder} is incomplete: expected also {', '.join(missing)}"
    raise MissingDataError(partial or f"{root}: expected a folder {python} or {binary} in it")


def _read_binary_batch(path: Path, kind: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Returns `(N, 3072)` pixels and `(N,)` labels from records of labels and pixels."""
    # A record of CIFAR-100 starts with two labels, the coarse one first.
    label_bytes = 2 if kind else 1
    record_bytes = label_bytes + CIFAR_PIXELS
    table = np.fromfile(path, np.uint8)
    if len(table) % record_bytes:
        raise FormatError(
            f"{path}: expected records of {record_bytes} bytes, got {len(table)} bytes: "
            "it is truncated, or not of this layout"
        )
    records = table.reshape(-1, record_bytes)
    return records[:, label_bytes:], records[:, 1 if kind == "fine_" else 0].astype(np.int64)


def _read_pickled_batch(path: Path, kind: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Returns `(N, 3072)` pixels and `(N,)` labels from a file of the Python layout."""
    entry = _load_pickle(path)
    holder = entry.get("data")
    pixels = holder.array if isinstance(holder, _PickledArray) else None
    if pixels is None or pixels.ndim != 2 or pixels.shape[1] != CIFAR_PIXELS:
        came = type(holder).__name__ if pixels is None else f"shape {pixels.shape}"
        raise FormatError(f"{path}: expected 'data' of shape (N, {CIFAR_PIXELS}), got {came}")
    labels = _get_list(entry, f"{kind}labels", int, path)
    if len(labels) != len(pixels):
        raise FormatError(f"{path}: expected one label per image, got {len(labels)} labels")
    # Clipped, since a number of any size may stand there; out of range is out of range either way.
    return pixels, np.array([min(max(label, -1), 1 << 31) for label in labels], np.int64)


def _get_list(entry: dict[Any, Any], key: str, kind: type, path: Path) -> list[Any]:
    """Returns the list under `key`, whose elements are all exactly of one type."""
    values = entry.get(key)
    if not isinstance(values, list) or any(type(value) is not kind for value in values):
        came = "nothing" if values is None else f"a {type(values).__name__} of something else"
        raise FormatError(f"{path}: expected {key!r} to be a list of {kind.__name__}, got {came}")
    return values


class _Accepted:
    """A callable that a pickle may name; it stands for the real one, and cannot be altered."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)

    def __setstate__(self, state: Any) -> None:
        raise FormatError("the pickle tries to alter a function")


class _PickledDtype:
    """Stands for ``numpy.dtype``: uint8 and nothing else, so never an array of objects."""

    __slots__ = ()

    def __init__(self, code: Any = None, *_: Any) -> None:
        if code not in ("u1", "|u1"):
            raise FormatError(f"expected an array of uint8 ('u1'), got dtype {code!r}")

    def __setstate__(self, state: Any) -> None:
        """Ignores byte order, fields and alignment, which uint8 has none of."""


class _PickledArray:
    """Stands for ``numpy.ndarray``: its state is checked here, not by NumPy's C code."""

    __slots__ = ("array",)

    def __init__(self, *_: Any) -> None:
        self.array: NDArray[np.uint8] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, is_fortran, data = state
        # Python 2 pickled bytes as `str`; latin1 maps the characters back one to one.
        data = data.encode("latin1") if isinstance(data, str) else data
        if not isinstance(dtype, _PickledDtype) or not isinstance(data, bytes):
            raise FormatError("expected an array of uint8 with its bytes")
        if math.prod(shape) != len(data):
            raise FormatError(f"expected {math.prod(shape)} bytes for {shape}, got {len(data)}")
        self.array = np.frombuffer(data, np.uint8).reshape(shape, order="F" if is_fortran else "C")


def _encode(text: Any, encoding: Any) -> bytes:
    """Returns the bytes that Python 3 wrote as latin1 text into a pickle of protocol 2."""
    if type(text) is not str or encoding not in ("latin1", "latin-1"):
        raise FormatError(f"expected bytes written as latin1 text, got encoding {encoding!r}")
    return text.encode("latin1")


_ACCEPTED = {
    ("numpy.core.multiarray", "_reconstruct"): _Accepted(_PickledArray),
    ("numpy._core.multiarray", "_reconstruct"): _Accepted(_PickledArray),
    ("numpy", "ndarray"): _Accepted(_PickledArray),
    ("numpy", "dtype"): _Accepted(_PickledDtype),
    ("_codecs", "encode"): _Accepted(_encode),
}


class _DataUnpickler(pickle.Unpickler):
    """Knows five names, each standing for a function of this module; imports nothing."""

    def find_class(self, module: str, name: str, /) -> Any:
        """Returns what stands for a name, or refuses it."""
        if (module, name) not in _ACCEPTED:
            raise FormatError(
                f"the pickle asks for {module}.{name}, which was refused and not run; the official "
                "files hold only uint8 arrays, containers, numbers and strings"
            )
        return _ACCEPTED[module, name]


def _load_pickle(path: Path) -> dict[Any, Any]:
    """Returns the dictionary in a pickle that Python 2 (or 3) wrote, without running any of it."""
    with path.open("rb") as file:
        try:
            entry = _DataUnpickler(file, encoding="latin1").load()
        # A damaged pickle raises nearly anything: EOFError, KeyError, TypeError, MemoryError, …
        except Exception as error:
            what = f"expected a complete pickle, got {type(error).__name__}: {error}"
            what = str(error) if isinstance(error, FormatError) else what
            raise FormatError(f"{path}: {what}") from error
    if type(entry) is not dict:
        raise FormatError(f"{path}: expected a dictionary, got {type(entry).__name__}")
    return entry


def read_mnist(
    root: StrPath, name: Literal["mnist", "fashion-mnist"] = "mnist", *, train: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns images and labels of MNIST or Fashion-MNIST from the official IDX files.

    Args:
        root: the folder of the four files, plain or ``.gz``, spelt ``train-images-idx3-ubyte`` or
            ``train-images.idx3-ubyte``; or the folder that holds them as ``MNIST/raw`` or
            ``FashionMNIST/raw``, as with torchvision.
        name: ``"mnist"`` or ``"fashion-mnist"``.
        train: the training set, or else the test set.

    Returns:
        images ``(N, 1, 28, 28)`` uint8, 0-255, 0 for the background; labels ``(N,)`` int64, 0-9.

    Raises:
        ConfigError: if `name` is another one.
        MissingDataError: if a file is not there.
        FormatError: if a file is damaged, or is not what its name says.
    """
    if name not in ("mnist", "fashion-mnist"):
        raise ConfigError(f"`name` must be 'mnist' or 'fashion-mnist', got {name!r}")
    top = "MNIST/raw" if name == "mnist" else "FashionMNIST/raw"
    folders = [Path(root) / folder for folder in (top, "raw", "")]
    paths = _find_idx(folders, "train" if train else "t10k")
    images, labels = read_idx(paths[0]), read_idx(paths[1])
    if images.dtype != np.uint8 or images.shape[1:] != (28, 28):
        raise FormatError(
            f"{paths[0]}: expected (N, 28, 28) uint8, got {images.shape} {images.dtype}"
        )
    if labels.dtype != np.uint8 or labels.shape != (len(images),) or labels.max() > 9:
        raise FormatError(
            f"{paths[1]}: expected ({len(images)},) uint8, 0 to 9, one label per image, "
            f"got {labels.shape} {labels.dtype} up to {labels.max()}"
        )
    return torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels.astype(np.int64))


def _find_idx(folders: Sequence[Path], split: str) -> tuple[Path, Path]:
    """Returns the images and the labels of the first folder that has both, in any spelling."""
    ends = [f"{dot}idx{{}}-ubyte{gz}" for gz in ("", ".gz") for dot in "-."]
    for folder in folders:
        images = [folder / f"{split}-images{end.format(3)}" for end in ends]
        labels = [folder / f"{split}-labels{end.format(1)}" for end in ends]
        found = [next(filter(Path.is_file, paths), None) for paths in (images, labels)]
        if found[0] and found[1]:
            return found[0], found[1]
    raise MissingDataError(
        f"expected {split}-images-idx3-ubyte and {split}-labels-idx1-ubyte (or with .gz, or with "
        f".idx) in {' or '.join(map(str, folders))}, found no folder with both"
    )


def read_idx(path: StrPath) -> NDArray[Any]:
    """Returns the array in an IDX file, plain or gzipped, in the machine's byte order.

    Args:
        path: the file; whether it is gzipped is seen from its first bytes.

    Returns:
        An array of the file's shape: uint8, int8, int16, int32, float32 or float64.

    Raises:
        MissingDataError: if the file is not there.
        FormatError: if the header is not IDX's, or if the size is not the one the header says.
    """
    path = Path(path)
    if not path.is_file():
        raise MissingDataError(f"{path}: expected an IDX file, found none")
    with path.open("rb") as raw:
        is_gzip = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        # However large a size a header claims, no more is made room for than the file can hold.
        room_bytes = path.stat().st_size * (DEFLATE_MAX_RATIO if is_gzip else 1)
        try:
            file = cast("IO[bytes]", gzip.GzipFile(fileobj=raw) if is_gzip else raw)
            magic = file.read(4)
            ndim = magic[3] if len(magic) == 4 and magic[2] in IDX_DTYPES else 0
            sizes = file.read(4 * ndim)
            shape = tuple(int.from_bytes(sizes[i : i + 4], "big") for i in range(0, len(sizes), 4))
            if magic[:2] != b"\0\0" or not 1 <= ndim <= 32 or len(sizes) != 4 * ndim or 0 in shape:
                raise FormatError(
                    f"{path}: expected an IDX header (0, 0, type, number of dimensions, sizes), "
                    f"got {list(magic)} and sizes {shape}"
                )
            dtype = np.dtype(IDX_DTYPES[magic[2]])
            expected = math.prod(shape) * dtype.itemsize
            data = bytearray(file.read(min(expected + 1, room_bytes)))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise FormatError(f"{path}: expected a complete gzip file: {error}") from error
    if len(data) != expected:
        came = f"{len(data)}{' or more' if len(data) > expected else ''}"
        raise FormatError(f"{path}: expected {expected} bytes for {shape} {dtype.name}, got {came}")
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def download_cifar10(
    root: StrPath, *, progress: Callable[[int, int | None], object] | None = None
) -> Path:
    """Downloads CIFAR-10 (170 MB) into ``root/cifar-10-batches-py``, unless it is there.

    The folder appears by one rename, once the archive's MD5 agrees and every file is in it.

    Args:
        root: the folder to put it in; made if missing.
        progress: called with the bytes so far and in all (None where the server does not say).

    Returns:
        The folder of the batches.

    Raises:
        DownloadError: without a network, if what came is not the official archive, or if an
            incomplete folder is in the way.
    """
    folder = Path(root) / "cifar-10-batches-py"
    files = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"]
    if all((folder / file).is_file() for file in files):
        return folder
    if folder.exists():
        raise DownloadError(f"{folder} is incomplete and in the way: remove it, then try again")
    try:
        Path(root).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".cifar-10-", dir=root) as temporary:
            archive = Path(temporary) / "archive.tar.gz"
            url = urllib.request.urlopen(CIFAR10_URL, timeout=DOWNLOAD_TIMEOUT_S)
            with url as response, archive.open("w+b") as target:
                length = int(response.headers.get("Content-Length", 0)) or None
                while chunk := response.read(CHUNK_BYTES):
                    target.write(chunk)
                    if progress is not None:
                        progress(target.tell(), length)
                target.seek(0)
                # MD5 is what the source publishes; against malice there is HTTPS.
                md5 = hashlib.file_digest(target, "md5").hexdigest()
            if md5 != CIFAR10_MD5:
                raise OSError(f"expected an archive of MD5 {CIFAR10_MD5}, got {md5}")
            unpacked = Path(temporary) / folder.name
            unpacked.mkdir()
            # Only bytes are taken, under names written here: paths, links and modes have no effect.
            with tarfile.open(archive, "r:gz") as tar:
                for file in files:
                    member = tar.extractfile(f"{folder.name}/{file}")
                    if member is None:
                        raise OSError(f"expected {file} in the archive to be a file")
                    with member, (unpacked / file).open("wb") as target:
                        shutil.copyfileobj(member, target)
            unpacked.rename(folder)
    except (OSError, http.client.HTTPException, tarfile.TarError, KeyError, zlib.error) as error:
        raise DownloadError(
            f"could not download CIFAR-10 from {CIFAR10_URL} into {folder}: {error}. Without a "
            "network, unpack the archive there by hand"
        ) from error
    return folder
