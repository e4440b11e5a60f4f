"""One leaf of every sample, stored end to end.

A leaf of one shape throughout is *dense*: one tensor with the samples along its first axis. One
whose shape differs, or text, is *ragged*: the values end to end, and where each begins. Anything
else is kept as a list. Each gives back every leaf exactly as it was: type, shape, dtype, bits.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hotset.errors import SchemaError
from hotset.sample.moving import to_device
from hotset.sample.ragged import Ragged

IMAGE_BANDS = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4, "YCbCr": 3, "HSV": 3, "LAB": 3}
"""PIL modes of whole bytes, and their channels."""
IMAGE_DTYPES = {"I": torch.int32, "F": torch.float32, "I;16": torch.uint16}
"""PIL modes of one wide channel, and their dtype."""
_WITHOUT_NUMPY = {torch.bfloat16, torch.complex32} | {
    dtype for dtype in vars(torch).values() if str(dtype).startswith("torch.float8")
}


@dataclass(frozen=True)
class LeafSchema:
    """What kind of value a leaf is.

    Attributes:
        kind: "tensor", "array", "image" (PIL), "int", "float", "bool", "scalar" (NumPy's), "str",
            "bytes", or "other".
        shape: shape as stored: (C, H, W) for an image, () for numbers.
        dtype: dtype as stored, None for text and others.
        cls: exact Python class.
        mode: PIL mode of an image.
    """

    kind: str
    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    cls: type = field(default=object)
    mode: str = ""

    @property
    def is_storable(self) -> bool:
        """Whether values of this kind can be stored as numbers in a tensor."""
        return self.dtype is not None

    @property
    def nbytes(self) -> int:
        """Bytes of one stored value; 0 where it is not stored in a tensor."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize if self.dtype else 0

    def __str__(self) -> str:
        if self.kind == "image":
            return f"PIL image {self.mode} {self.shape[2]}x{self.shape[1]}"
        if self.kind in ("tensor", "array"):
            dtype = self.cls.__name__ if self.dtype is None else str(self.dtype)
            return f"{self.kind} {self.shape} {dtype.removeprefix('torch.')}"
        return self.cls.__name__


def is_pil_image(leaf: Any) -> bool:
    """Whether a leaf is a PIL image, without importing PIL."""
    return any(c.__module__ == "PIL.Image" and c.__name__ == "Image" for c in type(leaf).__mro__)


def is_int64(number: int) -> bool:
    """Whether a whole number fits in 64 bits."""
    return -(2**63) <= number < 2**63


def describe(leaf: Any) -> LeafSchema:
    """The schema of one leaf."""
    cls = type(leaf)
    if isinstance(leaf, Tensor):
        if not leaf.is_nested and leaf.layout is torch.strided:
            # A subclass with attributes of its own (bounding boxes) is kept as the object it is,
            # and so is a quantized tensor, which has a scale.
            is_plain = cls is Tensor or not getattr(leaf, "__dict__", None)
            is_storable = is_plain and not leaf.is_quantized
            return LeafSchema("tensor", tuple(leaf.shape), leaf.dtype if is_storable else None, cls)
    elif isinstance(leaf, np.ndarray):
        dtype = _torch_dtype(leaf.dtype)
        if dtype is not None and cls is np.ndarray:
            return LeafSchema("array", leaf.shape, dtype, cls)
    elif is_pil_image(leaf):
        width, height = leaf.size
        if leaf.mode in IMAGE_BANDS:
            shape = (IMAGE_BANDS[leaf.mode], height, width)
            return LeafSchema("image", shape, torch.uint8, cls, leaf.mode)
        if leaf.mode in IMAGE_DTYPES:
            return LeafSchema("image", (1, height, width), IMAGE_DTYPES[leaf.mode], cls, leaf.mode)
    elif cls is bool:
        return LeafSchema("bool", (), torch.bool, cls)
    elif cls is int:
        return LeafSchema("int", (), torch.int64 if is_int64(leaf) else None, cls)
    elif cls is float:
        return LeafSchema("float", (), torch.float64, cls)
    elif isinstance(leaf, (np.bool_, np.number)):
        return LeafSchema("scalar", (), _torch_dtype(leaf.dtype), cls)
    elif isinstance(leaf, (str, bytes)):
        return LeafSchema("str" if isinstance(leaf, str) else "bytes", cls=cls)
    return LeafSchema("other", cls=cls)


def has_numpy(dtype: torch.dtype) -> bool:
    """Whether NumPy has the dtype too."""
    return dtype not in _WITHOUT_NUMPY


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype | None:
    if not dtype.isnative:
        return None
    try:
        return torch.from_numpy(np.empty(0, dtype)).dtype
    except TypeError:
        return None


def encode(leaf: Any, schema: LeafSchema) -> Tensor:
    """The stored form of a leaf: a CPU tensor of `schema.shape` and `schema.dtype`.

    Images become channels first, (C, H, W), since that is what batches and kernels read.
    """
    if schema.kind == "tensor":
        return leaf.detach().as_subclass(Tensor).cpu()  # type: ignore[no-any-return]
    if schema.kind == "image":
        return _writable(planes(leaf))
    if schema.kind in ("array", "scalar"):
        return _writable(np.asarray(leaf))
    return torch.as_tensor(leaf, dtype=schema.dtype)


def planes(image: Any) -> np.ndarray:
    """(C, H, W) of a PIL image; PIL parts the bands in a third of the time that NumPy takes."""
    if image.mode in IMAGE_DTYPES or image.mode == "L":
        return np.asarray(image)[None]
    if image.mode == "RGB":
        bands = [image.tobytes("raw", band) for band in "RGB"]
    else:
        bands = [band.tobytes() for band in image.split()]
    # A bytearray, since arrays over it may be written to, as those of other leaves.
    values = np.frombuffer(bytearray().join(bands), np.uint8)
    return values.reshape(len(bands), image.height, image.width)


def raw_bytes(leaf: Any, schema: LeafSchema) -> np.ndarray:
    """(nbytes,) uint8: a leaf as it lies in memory or in a file, its values end to end.

    Args:
        leaf: a value that can be stored, or text.
        schema: its own.
    """
    if schema.kind == "str":
        return np.frombuffer(leaf.encode("utf-8", "surrogatepass"), np.uint8)
    if schema.kind == "bytes":
        return np.frombuffer(leaf, np.uint8)
    if schema.kind == "image":
        return np.ascontiguousarray(planes(leaf)).reshape(-1).view(np.uint8)
    stored = encode(leaf, schema).resolve_conj().resolve_neg().contiguous()
    # Not `reshape`: one element, or none, may keep a stride that `view` refuses.
    flat = stored.as_strided((stored.numel(),), (1,))
    return flat.view(torch.uint8).numpy()


def _writable(array: np.ndarray) -> Tensor:
    """An array's values; copied where torch would warn of memory that must not be written."""
    return torch.from_numpy(np.require(array, requirements=("C", "W")))


def decode(stored: Tensor, schema: LeafSchema) -> Any:
    """The leaf that `encode` was given: same type, dtype, shape and bits; a copy."""
    if schema.kind == "tensor":
        return stored.clone().as_subclass(schema.cls)
    if schema.kind == "image":
        from PIL import Image

        size = (schema.shape[2], schema.shape[1])
        if schema.mode in IMAGE_DTYPES or 0 in size:
            return Image.frombytes(schema.mode, size, stored.cpu().numpy().tobytes())
        bands = [Image.frombytes("L", size, band.tobytes()) for band in stored.cpu().numpy()]
        return bands[0] if schema.mode == "L" else Image.merge(schema.mode, bands)
    array = stored.cpu().numpy()
    if schema.kind == "array":
        return array.copy()
    return array[()] if schema.kind == "scalar" else array.item()


def widened(stored: Tensor, schema: LeafSchema) -> Tensor:
    """Values in the dtype that their leaf has, which may be wider than the one they are kept in."""
    return stored if schema.dtype is None else stored.to(schema.dtype)


@dataclass(frozen=True)
class DenseColumn:
    """A leaf of one shape and dtype throughout.

    Attributes:
        schema: of every leaf.
        data: (N, *schema.shape), on any device; of the schema's dtype, or of a narrower floating
            one, and then widened whenever it is read.
    """

    schema: LeafSchema
    data: Tensor

    def __len__(self) -> int:
        return len(self.data)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.data.numel() * self.data.element_size()

    def item(self, row: int) -> Any:
        """The leaf of one sample as it was."""
        return decode(widened(self.data[row], self.schema), self.schema)

    def to(self, device: torch.device) -> DenseColumn:
        """The same column on a device, its rows end to end; copied only where it must be."""
        return DenseColumn(self.schema, self.data.to(device).contiguous())


@dataclass(frozen=True)
class ListColumn:
    """A leaf that does not stack: text, or shapes that differ from sample to sample.

    Attributes:
        schema: of the first leaf; others may differ in shape.
        items: one stored tensor and its schema, or one Python object, per sample. A tensor may be
            of a narrower floating dtype than its schema's.
    """

    schema: LeafSchema
    items: list[Any]

    def __len__(self) -> int:
        return len(self.items)

    @property
    def nbytes(self) -> int:
        """Bytes held in tensors and text."""
        return sum(_item_bytes(item) for item in self.items)

    def item(self, row: int) -> Any:
        """The leaf of one sample as it was."""
        item = self.items[row]
        return decode(widened(*item), item[1]) if isinstance(item, tuple) else item

    def to(self, device: torch.device) -> ListColumn:
        """The column itself: what does not stack stays on the host."""
        return self


@dataclass(frozen=True)
class RaggedColumn:
    """A leaf whose shape differs from sample to sample, or text: all values end to end.

    Attributes:
        schema: of the first leaf; the others have its kind, class, dtype and number of axes.
        data: (values,) on any device; bytes where it is text. Floating-point values may be of a
            narrower dtype than the schema's.
        index: (N, 1 + axes) int64 on the host: where each leaf starts in `data`, and its shape;
            for images also the place of its mode in `modes`.
        modes: PIL modes of images.
        most: a height and a width that no image exceeds; empty takes them from the index.
    """

    schema: LeafSchema
    data: Tensor
    index: np.ndarray
    modes: tuple[str, ...] = ()
    most: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.index)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.data.numel() * self.data.element_size()

    def item(self, row: int) -> Any:
        """The leaf of one sample as it was."""
        start, *rest = self.index[row].tolist()
        axes = len(self.schema.shape) if self.schema.is_storable else 1
        shape = tuple(rest[:axes])
        stored = self.data[start : start + math.prod(shape)]
        if self.schema.kind in ("str", "bytes"):
            text = stored.cpu().numpy().tobytes()
            if self.schema.kind == "bytes":
                return self.schema.cls(text)
            return self.schema.cls(text.decode("utf-8", "surrogatepass"))
        mode = self.modes[rest[axes]] if self.modes else ""
        values = widened(stored.reshape(shape), self.schema)
        return decode(values, replace(self.schema, shape=shape, mode=mode))

    @property
    def channels(self) -> int | None:
        """Channels of every image of bytes; None where there are none, or they differ."""
        is_bytes = self.schema.dtype is torch.uint8 and len(self.schema.shape) == 3
        if not is_bytes or len(self.index) == 0:
            return None
        first = int(self.index[0, 1])
        return None if first == 0 or (self.index[:, 1] != first).any() else first

    def images(self) -> Ragged:
        """The column as images of bytes, which all have as many `channels`."""
        channels = self.channels
        assert channels is not None
        numbers = np.ascontiguousarray(self.index[:, [0, 2, 3]].T)
        offsets, heights, widths = to_device(numbers, self.data.device)
        height, width = self.most or self.index[:, [2, 3]].max(axis=0).tolist()
        return Ragged(self.data, offsets, heights, widths, channels, (height, width))

    def to(self, device: torch.device) -> RaggedColumn:
        """The same column on a device."""
        return replace(self, data=self.data.to(device))


Column = DenseColumn | RaggedColumn | ListColumn


def _item_bytes(item: Any) -> int:
    if isinstance(item, tuple):
        return int(item[0].numel() * item[0].element_size())
    return len(item) if isinstance(item, (str, bytes)) else 0


def list_item(leaf: Any) -> Any:
    """How a `ListColumn` keeps a leaf: encoded with its schema where possible, else itself."""
    schema = describe(leaf)
    return (encode(leaf, schema).clone(), schema) if schema.is_storable else leaf


def _shared(array: np.ndarray) -> Tensor:
    """A tensor over an array's memory, to be read only; copied where torch cannot address it."""
    if any(stride < 0 for stride in array.strides):
        array = array.copy()
    with warnings.catch_warnings():
        # Resident data is never written to; that torch could is no reason to copy it.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)


def column_of(data: Any, name: str) -> DenseColumn:
    """A dense column over a tensor or array that a user gave; not copied if it need not be.

    Args:
        data: (N, ...) tensor or NumPy array; (N,) numbers give 0-d leaves.
        name: how messages call it.

    Raises:
        SchemaError: if it is neither, has no first axis, or has a dtype that PyTorch lacks.
    """
    if isinstance(data, Tensor) and data.ndim > 0:
        return DenseColumn(LeafSchema("tensor", tuple(data.shape[1:]), data.dtype, Tensor), data)
    if isinstance(data, (list, np.ndarray)):
        array = np.asarray(data)
        dtype = _torch_dtype(array.dtype)
        if array.ndim > 0 and dtype is not None:
            if array.ndim == 1:
                schema = LeafSchema("scalar", (), dtype, array.dtype.type)
            else:
                schema = LeafSchema("array", array.shape[1:], dtype, np.ndarray)
            return DenseColumn(schema, _shared(array))
    found = f"{type(data).__name__} of dtype {data.dtype}" if hasattr(data, "dtype") else repr(data)
    if isinstance(data, np.ndarray) and not data.dtype.isnative:
        raise SchemaError(
            f"{name} has the byte order of another machine ({data.dtype.str}); convert it with "
            "array.astype(array.dtype.newbyteorder('='))"
        )
    raise SchemaError(
        f"{name} must be a tensor or a NumPy array with samples along its first axis, got {found}"
    )
