"""Adapters for torchvision's transforms, v1 and v2: their natures and their batched forms.

torchvision is never imported here: a transform is recognised by the name and the home of its exact
class. A user's subclass is not recognised, since it may do anything; it is probed.
"""

from __future__ import annotations

import copy
import numbers
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from hotset.chain.step import OPS_PER_STEP, BatchForm, Nature, StepCall, flatten_chain
from hotset.ops.erase import RandomErase
from hotset.ops.geometry import Flip, Padding, Window
from hotset.ops.op import Gate, Params
from hotset.ops.pointwise import Elementwise
from hotset.ops.resample import Filter, ResizedCrop, pillow_order
from hotset.sample.column import describe

DETERMINISTIC = frozenset(
    (
        "CenterCrop",
        "ConvertImageDtype",
        "FiveCrop",
        "Grayscale",
        "Identity",
        "ImageClassification",
        "LinearTransformation",
        "Normalize",
        "ObjectDetection",
        "PILToTensor",
        "Pad",
        "RGB",
        "Resize",
        "SemanticSegmentation",
        "TenCrop",
        "ToDtype",
        "ToImage",
        "ToPILImage",
        "ToPureTensor",
        "ToTensor",
        "VideoClassification",
    )
)
"""Classes whose result depends on their input alone."""

UNDECIDED = frozenset(("Lambda",))
"""Classes that do whatever a user's function does: probed."""

_PIL_FILTERS: dict[str, Filter] = {
    "nearest": "nearest",
    "nearest-exact": "nearest",
    "box": "box",
    "bilinear": "bilinear",
    "hamming": "hamming",
    "bicubic": "bicubic",
    "lanczos": "lanczos",
}
_TENSOR_FILTERS: dict[str, Filter] = {"bilinear": "bilinear"}
"""torch's own resizing rounds in other places: within a level of PIL's for these."""
_PIL_NUMBERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Interpolations by Pillow's numbers, which v2 takes as well."""
_RESIZED_PLAINLY = ("L", "RGB", "CMYK", "YCbCr")

ALWAYS, NEVER = 2.0, -1.0
"""Values of `p` that torch.rand cannot reach: a replayed step applies for certain, or never."""


def is_torchvision(call: Any) -> bool:
    """Whether it is one of torchvision's own transforms (not a subclass of one)."""
    return type(call).__module__.startswith("torchvision.transforms")


def is_v2(call: Any) -> bool:
    """Whether it is one of torchvision's v2 transforms."""
    return type(call).__module__.startswith("torchvision.transforms.v2")


def nature_of(call: Any) -> tuple[Nature, str] | None:
    """What a torchvision transform is, and why; None for anything else."""
    name = type(call).__name__
    if not is_torchvision(call) or name in UNDECIDED:
        return None
    if name in DETERMINISTIC:
        return "deterministic", "torchvision: depends on its input alone"
    return "random", "torchvision: draws for every sample"


def batch_form(call: Any, leaf: Any, number: int) -> BatchForm | None:
    """The batched form of a torchvision transform, for leaves like `leaf`; or None.

    Args:
        call: the user's transform.
        leaf: a value that reaches it.
        number: what its draws are keyed from.
    """
    build = _BUILDERS.get(type(call).__name__) if is_torchvision(call) else None
    if build is None:
        return None
    schema = describe(leaf)
    if schema.kind not in ("image", "tensor") or len(schema.shape) != 3:
        return None
    if schema.kind == "tensor" and schema.cls is not Tensor and schema.cls.__name__ != "Image":
        return None  # v2 goes by the class of a tensor: a mask is not erased, nor normalised
    return build(call, leaf, number)


def _image_size(leaf: Any) -> tuple[int, int, int]:
    """(C, H, W) of a leaf."""
    channels, height, width = describe(leaf).shape
    return channels, height, width


def _fill(call: Any, leaf: Any) -> tuple[float, ...] | None:
    """The fill of a pad or crop, one per channel or for all; None where it is not constant."""
    fill = getattr(call, "fill", 0)
    channels = _image_size(leaf)[0]
    if fill is None:
        fill = 0
    if isinstance(fill, numbers.Real):
        values: tuple[float, ...] = (float(fill),)
    elif isinstance(fill, Sequence) and not isinstance(fill, str) and len(fill) in (1, channels):
        values = tuple(map(_single if len(fill) > 1 else float, fill))
    else:
        return None
    dtype = describe(leaf).dtype
    is_integer = dtype is not None and not dtype.is_floating_point
    if is_integer and not all(value.is_integer() and 0 <= value <= 255 for value in values):
        return None
    return values


def _pads_alike(call: Any, leaf: Any, paddings: Sequence[Padding]) -> bool:
    """Whether torchvision pads a leaf as PIL does, which is what `Padding` describes."""
    if not isinstance(leaf, Tensor):
        return True
    # It rounds wide integers to single precision, and reflects what a negative side cuts off.
    is_exact = leaf.dtype not in (torch.int32, torch.int64) or call.padding_mode == "constant"
    least = min(min(p.left, p.top, p.right, p.bottom) for p in paddings)
    return is_exact and (least >= 0 or call.padding_mode != "reflect")


def _single(value: Any) -> float:
    """A number as torchvision takes it where there is one per channel: in single precision."""
    return float(torch.tensor(float(value)))


def _sides(padding: Any) -> tuple[int, int, int, int]:
    """left, top, right, bottom from torchvision's one, two or four numbers."""
    sides = [padding] if isinstance(padding, int) else list(padding)
    left, top, right, bottom = {1: sides * 4, 2: sides * 2, 4: sides}[len(sides)]
    return left, top, right, bottom


def _crop_paddings(call: Any, height: int, width: int) -> list[Padding]:
    """The paddings of a RandomCrop; v1 adds missing pixels in two further steps, v2 in one."""
    mode = call.padding_mode
    left = top = right = bottom = 0
    if call.padding is not None:
        if is_v2(call):
            left, right, top, bottom = call.padding
        else:
            left, top, right, bottom = _sides(call.padding)
    missing_width = max(0, call.size[1] - (width + left + right)) if call.pad_if_needed else 0
    missing_height = max(0, call.size[0] - (height + top + bottom)) if call.pad_if_needed else 0
    if is_v2(call):
        left, right = left + missing_width, right + missing_width
        top, bottom = top + missing_height, bottom + missing_height
        return [Padding(left, top, right, bottom, mode)]
    return [
        Padding(left, top, right, bottom, mode),
        Padding(missing_width, 0, missing_width, 0, mode),
        Padding(0, missing_height, 0, missing_height, mode),
    ]


def _random_crop(call: Any, leaf: Any, number: int) -> BatchForm | None:
    fill = _fill(call, leaf)
    if fill is None:
        return None
    shape = _image_size(leaf)
    paddings = tuple(_crop_paddings(call, *shape[1:]))
    if not _pads_alike(call, leaf, paddings):
        return None
    size = (int(call.size[0]), int(call.size[1]))
    window = Window(number, size, paddings, None, fill)
    if min(window.range(shape)) < 1:
        return None  # the user's own step raises; it is left to say so

    def replay(params: Sequence[Params]) -> StepCall:
        top, left = int(params[0]["top"]), int(params[0]["left"])
        if not is_v2(call):
            return _with(call, get_params=lambda img, size: (top, left, *size))
        sides = paddings[0]
        padding = [sides.left, sides.top, sides.right, sides.bottom]
        forced = {
            "needs_crop": window.range(shape) != (1, 1),
            "top": top,
            "left": left,
            "height": size[0],
            "width": size[1],
            "needs_pad": any(padding),
            "padding": padding,
        }
        return _with(call, make_params=lambda flat_inputs: forced)

    return BatchForm((window,), replay)


def _random_resized_crop(call: Any, leaf: Any, number: int) -> BatchForm | None:
    schema = describe(leaf)
    name = _interpolation(call)
    is_pil = schema.kind == "image"
    filters = _PIL_FILTERS if is_pil else _TENSOR_FILTERS
    if name not in filters or schema.dtype is not torch.uint8:
        return None
    if is_pil and schema.mode not in _RESIZED_PLAINLY:
        return None  # with an alpha channel, PIL weighs the colours by it
    if not is_pil and call.antialias is not True:
        return None
    size = (int(call.size[0]), int(call.size[1]))
    scale, ratio = tuple(map(float, call.scale)), tuple(map(float, call.ratio))
    is_sorted = 0 < scale[0] <= scale[1] and 0 < ratio[0] <= ratio[1]
    if not is_sorted or len(scale) != 2 or len(ratio) != 2:
        return None  # torchvision warns, or fails; the user's own step does the same
    order = pillow_order(sys.modules["PIL"].__version__) if is_pil else "width first"
    crop = ResizedCrop(number, size, scale, ratio, filters[name], order)

    def replay(params: Sequence[Params]) -> StepCall:
        names = ("top", "left", "height", "width")
        box = {name: int(params[0][name]) for name in names}
        if is_v2(call):
            return _with(call, make_params=lambda flat_inputs: box)
        return _with(call, get_params=lambda img, scale, ratio: tuple(box.values()))

    return BatchForm((crop,), replay, levels=0 if is_pil else 1)


def _interpolation(call: Any) -> str:
    """The name of a transform's interpolation, which may be given as such, or by its number."""
    given = getattr(call.interpolation, "value", call.interpolation)
    if isinstance(given, int) and 0 <= given < len(_PIL_NUMBERS):
        return _PIL_NUMBERS[given]
    return str(given)


def _pad(call: Any, leaf: Any, number: int) -> BatchForm | None:
    fill = _fill(call, leaf)
    if fill is None:
        return None
    _, height, width = _image_size(leaf)
    padding = Padding(*_sides(call.padding), call.padding_mode)
    if not _pads_alike(call, leaf, (padding,)):
        return None
    size = (height + padding.top + padding.bottom, width + padding.left + padding.right)
    return _fixed(call, Window(number, size, (padding,), (0, 0), fill))


def _center_crop(call: Any, leaf: Any, number: int) -> BatchForm | None:
    _, height, width = _image_size(leaf)
    crop_height, crop_width = (int(edge) for edge in call.size)
    # torchvision pads what is too small, the odd pixel at the right and bottom, then rounds the
    # offset.
    short_height, short_width = max(0, crop_height - height), max(0, crop_width - width)
    padding = Padding(
        short_width // 2, short_height // 2, (short_width + 1) // 2, (short_height + 1) // 2
    )
    top = round((height + short_height - crop_height) / 2)
    left = round((width + short_width - crop_width) / 2)
    window = Window(number, (crop_height, crop_width), (padding,), (top, left))
    return _fixed(call, window)


def _fixed(call: Any, window: Window) -> BatchForm:
    return BatchForm((window,), lambda params: call)


def _flip(axis: str) -> Callable[[Any, Any, int], BatchForm | None]:
    def build(call: Any, leaf: Any, number: int) -> BatchForm | None:
        flip = Flip(number, axis, float(call.p))  # type: ignore[arg-type]

        def replay(params: Sequence[Params]) -> StepCall:
            return _with(call, p=ALWAYS if int(params[0]["flips"]) else NEVER)

        return BatchForm((flip,), replay)

    return build


def _random_erasing(call: Any, leaf: Any, number: int) -> BatchForm | None:
    value = call.value
    if isinstance(value, numbers.Real):
        value = (float(value),)
    if value is None or isinstance(value, str) or not isinstance(leaf, Tensor):
        return None  # noise for every pixel is not a rectangle of one value
    values = tuple(map(_single, value))
    if len(values) not in (1, leaf.shape[0]):
        return None
    if not leaf.dtype.is_floating_point and not all(
        v.is_integer() and 0 <= v <= 255 for v in values
    ):
        return None
    erase = RandomErase(number, float(call.p), tuple(call.scale), tuple(call.ratio), values)

    def replay(params: Sequence[Params]) -> StepCall:
        top, left, height, width = (
            int(params[0][name]) for name in ("top", "left", "height", "width")
        )
        if height == 0 or width == 0:
            return _with(call, p=NEVER)
        block = torch.tensor(values)[:, None, None]
        forced = _with(call, p=ALWAYS)
        if is_v2(call):
            drawn = {"i": top, "j": left, "h": height, "w": width, "v": block}
            return _with(forced, make_params=lambda flat_inputs: drawn)
        return _with(forced, get_params=lambda *a, **k: (top, left, height, width, block))

    return BatchForm((erase,), replay)


def _elementwise(call: Any, leaf: Any, number: int) -> BatchForm | None:
    if not isinstance(leaf, Tensor) or not leaf.dtype.is_floating_point:
        return None  # bytes are the table's

    def on_batch(images: Tensor) -> Tensor:
        result: Tensor = call(images.as_subclass(type(leaf)))
        return result.as_subclass(Tensor)

    return BatchForm((Elementwise(number, on_batch),), lambda params: call)


def _random_apply(call: Any, leaf: Any, number: int) -> BatchForm | None:
    gate = Gate(number, float(call.p))
    forms: list[BatchForm] = []
    ops: list[Any] = []
    shape = _image_size(leaf)
    for inner in flatten_chain(list(call.transforms)):
        form = batch_form(inner, leaf, number + 1 + len(ops))
        if form is None:
            return None
        for op in form.ops:
            # A step that is gated already, in a RandomApply of its own, has room for no other gate.
            is_fit = op.out_shape(shape) == shape and op.gate is None
            if not is_fit or isinstance(op, Elementwise):
                return None
            ops.append(copy.copy(op))
            object.__setattr__(ops[-1], "gate", gate)
        forms.append(form)
    if not 0 < len(ops) < OPS_PER_STEP:
        return None  # the numbers that key the draws are set aside for so many

    def replay(params: Sequence[Params]) -> StepCall:
        def step(image: Any) -> Any:
            if not bool(params[0]["passes"]):
                return image
            position = 0
            for form in forms:
                image = form.replay(params[position : position + len(form.ops)])(image)
                position += len(form.ops)
            return image

        return step

    return BatchForm(tuple(ops), replay, levels=sum(form.levels for form in forms))


def _with(call: StepCall, **attributes: Any) -> StepCall:
    """A shallow copy of a transform with attributes replaced; the user's own is untouched."""
    clone = copy.copy(call)
    for name, value in attributes.items():
        object.__setattr__(clone, name, value)
    return clone


_BUILDERS: dict[str, Callable[[Any, Any, int], BatchForm | None]] = {
    "RandomCrop": _random_crop,
    "RandomResizedCrop": _random_resized_crop,
    "Pad": _pad,
    "CenterCrop": _center_crop,
    "RandomHorizontalFlip": _flip("horizontal"),
    "RandomVerticalFlip": _flip("vertical"),
    "RandomErasing": _random_erasing,
    "RandomApply": _random_apply,
    "Normalize": _elementwise,
    "ConvertImageDtype": _elementwise,
    "ToDtype": _elementwise,
}
