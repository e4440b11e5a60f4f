"""`hotset.CachedDataset`: a map-style dataset whose deterministic part was run once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, get_worker_info

from hotset.errors import ConfigError, DeviceError
from hotset.loader.assemble import Assembled, assemble
from hotset.loader.batch import Request
from hotset.loader.cast import Cast, ToDtype, check_dtype, is_castable
from hotset.loader.ids import Occurrences, check_ids
from hotset.loader.options import Options
from hotset.placement.budget import Budget
from hotset.placement.link import Link, link_to
from hotset.placement.placing import Placing
from hotset.placement.plan import Plan
from hotset.rng import Key
from hotset.sample.column import LeafSchema
from hotset.sample.tree import batch_leaves, unflatten
from hotset.sources.mapstyle import dataset_source
from hotset.sources.source import (
    ArraySource,
    Source,
    array_source,
    check_length,
    dataset_length,
    is_array_data,
    read,
)
from hotset.sources.sweep import Progress


class CachedDataset(Dataset[Any]):
    """Samples kept on a device, augmented when asked for; for a stock `DataLoader`.

    Whole batches are fetched in one go (`__getitems__`), as a `DataLoader` does by itself. For the
    full speed give it to `hotset.Loader` or `hotset.accelerate` instead.

    Args:
        data: a map-style dataset; or a tensor, array, or tuple, list or dictionary of them.
        pre_transform: callable, or list of callables, on the first field, run once per sample.
        transform: callable, or list of callables, on the result, run whenever a sample is asked
            for. For dictionaries both are `{field: transform}`.
        device: where the samples are kept; None is torch's default device.
        dtype: floating dtype that the first field comes out as, if it is an image or
            floating-point.
        num_workers: processes that may read `data` once.
        progress: called with (samples read, total) meanwhile.

    Raises:
        ConfigError: if `pre_transform` is random, or data is empty.
        DeviceError: if the device is not there; and when samples on CUDA are asked for in a worker
            process or for pinning.
        HotsetError: as `hotset.accelerate` does.

    Example:
        >>> import torch, hotset
        >>> data = (torch.arange(4.0).reshape(4, 1), torch.arange(4))
        >>> cached = hotset.CachedDataset(data, pre_transform=lambda x: x * 2, device="cpu")
        >>> cached[3][0].tolist()
        [6.0]
    """

    def __init__(
        self,
        data: Any,
        *,
        pre_transform: Any = None,
        transform: Any = None,
        device: str | torch.device | Link | None = None,
        dtype: torch.dtype | None = None,
        num_workers: int = 0,
        progress: Progress | None = None,
    ) -> None:
        options = Options(
            link=link_to(device),
            placing=Placing(budget=Budget("100%", host="100%")),
            dtype=check_dtype(dtype),
            check_every=0,
            settings={"num_workers": num_workers, "collate_fn": None},
            progress=progress,
            threads=1,
        )
        source = _source(data, pre_transform, transform)
        made = assemble(source, options)
        for step in made.analysis.split.steps[: source.once]:
            if step.nature != "deterministic":
                raise ConfigError(
                    f"`pre_transform` runs once, but {step.name} is random ({step.reason}); "
                    "move it to `transform`"
                )
        self._plan = made.plan
        self._use(made, options)

    def _use(self, made: Assembled, options: Options) -> None:
        self._device, self._options, self._made = options.device, options, made
        self._cast = Cast(made.analysis.source.leaf, options.dtype)
        self._is_pinning_checked = False

    def __getstate__(self) -> dict[str, Any]:
        """What a worker process needs: the samples as they are kept, and the steps left."""
        hidden = ("_made", "_options", "_cast")
        state = {name: value for name, value in vars(self).items() if name not in hidden}
        state["source"] = self.array_source(None) or self._made.analysis.source
        state["options"] = replace(self._options, progress=None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        # The pipeline is made anew: compiled kernels and the forms of steps do not travel.
        source, options = state.pop("source"), state.pop("options")
        vars(self).update(state)
        self._use(assemble(source, options), options)

    @property
    def plan(self) -> Plan:
        """What was done once, what is done for every sample, and where the samples are kept."""
        return self._plan

    def __len__(self) -> int:
        return self._plan.samples

    @property
    def _is_random(self) -> bool:
        return any(step.nature != "deterministic" for step in self._made.analysis.split.steps)

    def __getitem__(self, index: int) -> Any:
        """One sample, as the transforms make it; tensors on the dataset's device.

        Raises:
            IndexError: if there is no such sample.
        """
        position = int(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"index {index} of a dataset of {len(self)} samples")
        return self.__getitems__([position])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples at some indices, made as one batch."""
        self._refuse_copies()
        ids = check_ids(np.asarray(indices, dtype=np.int64), len(self))
        made = self._made
        if made.reader is not None:
            name = made.analysis.source.name
            return [self._cast(read(made.reader, index, name)) for index in ids.tolist()]
        seed, occurrence = 0, np.zeros_like(ids)
        if self._is_random:  # else torch's generator is left as the plain dataset leaves it
            seed = int(torch.empty((), dtype=torch.int64).random_().item())
            occurrence = Occurrences(len(ids)).of(np.unique(ids, return_inverse=True)[1])
        request = Request(ids, occurrence, Key(seed, 0, seed))
        with made.pipeline.session() as make:
            batch = next(iter(make(iter([request]))))
        spec, final = made.analysis.spec, made.analysis.final
        columns = [
            _leaves(leaf, schema)
            for leaf, schema in zip(batch_leaves(batch, spec), final, strict=True)
        ]
        return [unflatten(spec, iter(leaves)) for leaves in zip(*columns, strict=True)]

    def array_source(self, rows: Tensor | None) -> ArraySource | None:
        """This dataset as a source of hotset's own loaders: what is kept, and the steps left.

        Args:
            rows: (N,) int64 of the samples wanted; None for all.
        """
        resident, analysis = self._made.resident, self._made.analysis
        if resident is None:
            return None
        steps = [step.call for step in analysis.split.steps[analysis.split.cut :]]
        dtype = self._options.dtype
        if dtype is not None and is_castable(analysis.final[resident.leaf]):
            steps.append(ToDtype(dtype))
        kept = resident if rows is None else resident.of(rows)
        return ArraySource(kept, transform=steps, name=type(self).__name__)

    def _refuse_copies(self) -> None:
        """Data on CUDA can be used in the main process only, and cannot be pinned."""
        if self._device.type == "cpu" or self._is_pinning_checked:
            return
        if get_worker_info() is not None:
            raise DeviceError(
                f"this CachedDataset lies on {self._device} and cannot be read in a worker "
                "process; give the DataLoader num_workers=0, or use hotset.Loader(dataset, ...)"
            )
        if _is_pinned_for():
            raise DeviceError(
                f"this CachedDataset lies on {self._device}, and only host memory can be pinned; "
                "give the DataLoader pin_memory=False, or use hotset.Loader(dataset, ...)"
            )
        self._is_pinning_checked = True


def _is_pinned_for() -> bool:
    """Whether the `DataLoader` that is asking will pin what it gets; it does not say so itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        asking: Any = frame.f_locals.get("self")
        if type(asking).__name__ == "_SingleProcessDataLoaderIter":
            return bool(asking._pin_memory)
        frame = frame.f_back
    return False


def _leaves(leaf: Any, schema: LeafSchema) -> Sequence[Any]:
    """One leaf of every sample, as the user's own chain would give it, but on its device."""
    if not isinstance(leaf, Tensor):
        return leaf  # type: ignore[no-any-return]
    if schema.kind in ("int", "float", "bool"):
        return leaf.tolist()
    if schema.kind == "scalar":
        return list(leaf.cpu().numpy())
    return leaf.unbind(0)


def _source(data: Any, pre_transform: Any, transform: Any) -> Source:
    if isinstance(data, ArraySource):
        check_length(len(data), data.name)
        return data
    if is_array_data(data):
        source: Source = array_source(data, transform, pre_transform)
        check_length(len(source), "the data")
        return source
    dataset_length(data)
    return dataset_source(data, transform, pre_transform)
