"""Where a chain is cut, what happens to each step, and the reasons given."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision import transforms as v1
from torchvision.transforms import v2

from hotset.chain.split import Position, Split, positions, split_chain
from hotset.chain.step import BatchForm, Step
from hotset.kernels.dispatch import Reference
from hotset.ops.geometry import Flip
from hotset.ops.pointwise import Elementwise, Table
from tests.vision_chains import draws_for, leaf_of, split_of

TABLE = "elementwise on bytes: an exact table of 256 entries per channel"
DRAWN = "drawn per sample, for the whole batch"
CHEAPER = "deterministic, cheaper after the cut"


def _split(transform: Any, kind: str = "RGB", shape: tuple[int, int, int] = (3, 16, 16)) -> Split:
    return split_of(transform, [leaf_of(kind, shape, seed) for seed in range(4)])[0]


def _actions(split: Split) -> list[tuple[str, str]]:
    return [(decision.step, decision.action) for decision in split.decisions]


def test_the_usual_chain_is_cut_before_anything():
    """Crop, flip, ToTensor, Normalize: bytes are stored, all the rest is done in batches."""
    chain = [
        v1.RandomCrop(16, 2),
        v1.RandomHorizontalFlip(),
        v1.ToTensor(),
        v1.Normalize([0.5] * 3, [0.5] * 3),
    ]
    split = _split(chain)
    assert (split.mode, split.cut) == ("batch", 0)
    assert [(d.step, d.action, d.reason) for d in split.decisions] == [
        ("RandomCrop", "batch", DRAWN),
        ("RandomHorizontalFlip", "batch", DRAWN),
        ("ToTensor", "table", TABLE),
        ("Normalize", "table", TABLE),
    ]
    assert [len(stage.ops) for stage in split.stages] == [1, 1, 1, 0]
    assert [op.step for op in split.ops] == [0, 16, 32]


def test_the_smallest_form_is_stored():
    """A resize to fewer pixels runs once; ToTensor, which makes four bytes of one, does not."""
    split = _split([v1.Resize(8), v1.ToTensor()])
    assert split.cut == 1
    assert _actions(split) == [("Resize", "once"), ("ToTensor", "table")]
    assert split.decisions[0].reason == "torchvision: depends on its input alone"
    # A resize to more pixels has no batched form, so that the larger form is stored.
    assert _actions(_split([v1.Resize(32), v1.ToTensor()])) == _actions(split)


def test_of_equals_the_latest_is_stored():
    """Steps that keep the number of bytes run once rather than every time."""
    split = _split([v1.Resize(16), v1.RandomHorizontalFlip(), v1.PILToTensor()])
    assert split.cut == 1
    split = _split([v1.PILToTensor(), lambda x: x.flip(0)])
    assert split.cut == 2
    assert split.stages == ()


def test_a_crop_at_the_centre_runs_once():
    """It makes fewer bytes of more; a pad makes more of fewer, and is done in batches."""
    assert _actions(_split([v1.CenterCrop(8)])) == [("CenterCrop", "once")]
    split = _split([v1.Pad(2), v1.ToTensor()])
    assert [(d.step, d.action, d.reason) for d in split.decisions] == [
        ("Pad", "batch", CHEAPER),
        ("ToTensor", "table", TABLE),
    ]


def test_an_empty_chain_stores_what_there_is():
    """Nothing to do, nothing to say."""
    split = _split([])
    assert (split.mode, split.cut, split.decisions, split.ops) == ("batch", 0, (), ())


def test_steps_on_floats_are_called_on_batches():
    """Behind a random step on floats, a Normalize is the user's own, called on the batch."""
    chain = [v1.RandomHorizontalFlip(), v1.Normalize([0.5] * 3, [0.5] * 3)]
    split = _split(chain, "float32")
    assert _actions(split) == [("RandomHorizontalFlip", "batch"), ("Normalize", "batch")]
    assert [type(op) for op in split.ops] == [Flip, Elementwise]


def _mirror(image: Tensor) -> Tensor:
    return image.flip(-1)


def test_the_longest_run_is_one_table():
    """Steps that together act on each value stand in one table, and those behind it apart."""
    chain = [
        v1.RandomVerticalFlip(),
        v1.ToTensor(),
        v1.ConvertImageDtype(torch.float16),
        v1.RandomHorizontalFlip(),
        v1.Normalize([0.5] * 3, [0.5] * 3),
    ]
    split = _split(chain)
    assert [d.action for d in split.decisions] == ["batch", "table", "table", "batch", "batch"]
    assert [type(op) for op in split.ops] == [Flip, Table, Flip, Elementwise]
    table = split.ops[1]
    assert isinstance(table, Table)
    assert table.values.dtype is torch.float16


def test_unknown_random_steps_are_left_to_workers():
    """The steps before run once, the user's own the rest, and each says why."""
    split = _split([v1.Resize(8), v1.ColorJitter(0.5), v1.ToTensor()])
    assert (split.mode, split.cut, split.stages) == ("worker", 1, ())
    assert [(d.step, d.action, d.reason) for d in split.decisions] == [
        ("Resize", "once", "torchvision: depends on its input alone"),
        (
            "ColorJitter",
            "worker",
            "per sample, since ColorJitter is random and has no batched form",
        ),
        ("ToTensor", "worker", "per sample, since ColorJitter is random and has no batched form"),
    ]


def test_deterministic_steps_that_are_no_table_are_left_to_workers():
    """Behind a random step a mirror acts on no value by itself."""
    split = _split([v1.RandomVerticalFlip(), v1.PILToTensor(), _mirror, v1.RandomCrop(16, 2)])
    assert split.mode == "worker"
    assert split.decisions[0].reason == (
        "per sample, since _mirror does not act on each value by itself"
    )


def test_a_later_cut_is_taken_where_the_smallest_has_no_batched_rest():
    """A mirror that acts on no value by itself runs once, on more bytes, rather than per sample."""
    split = _split([v1.ToTensor(), _mirror, v1.RandomHorizontalFlip()])
    assert (split.mode, split.cut) == ("batch", 2)
    assert [d.action for d in split.decisions] == ["once", "once", "batch"]


def test_workers_get_bytes_where_a_table_would_do():
    """ToTensor before an unknown random step is cheap: bytes are kept, and it runs every time."""
    chain = [v1.ToTensor(), v1.RandomAffine(5)]
    assert _split(chain).cut == 0
    chain = [v1.ToTensor(), _mirror, v1.RandomAffine(5)]
    assert _split(chain).cut == 2


def test_least_cut_holds_for_workers():
    """Steps that are to run once do so, even where bytes would be fewer before them."""
    leaves = [leaf_of("RGB", (3, 8, 8), seed) for seed in range(2)]
    steps = [
        Step(0, v1.ToTensor(), "deterministic", ""),
        Step(1, v1.RandomAffine(5), "random", ""),
    ]
    traces = [[leaf, v1.ToTensor()(leaf), v1.ToTensor()(leaf)] for leaf in leaves]
    assert split_chain(steps, traces).cut == 0
    assert split_chain(steps, traces, least_cut=1).cut == 1


def test_images_of_differing_sizes_are_stored_behind_the_resize():
    """Only where all samples have one shape can they be stored end to end."""
    leaves = [leaf_of("RGB", (3, 20, width), width) for width in (20, 24)]
    chain = [v1.Resize((30, 30)), v1.RandomHorizontalFlip(), v1.ToTensor()]
    assert split_of(chain, leaves)[0].cut == 1
    split = split_of([v1.RandomHorizontalFlip(), v1.ToTensor()], leaves)[0]
    assert (split.mode, split.cut) == ("worker", 0)
    assert split.decisions[0].reason == (
        "per sample, since images differ in size, and RandomHorizontalFlip does not make them one"
    )


def test_values_that_are_no_numbers_are_not_stored():
    """A step that gives text or a tuple has no place for a cut behind it."""
    split = _split([v1.FiveCrop(4)])
    assert (split.mode, split.cut) == ("worker", 0)


class _Double:
    """A user's own transform with a batched form."""

    def __call__(self, image: Tensor) -> Tensor:
        return image * 2 if torch.rand(()) < 2 else image

    def batch_form(self, leaf: Any, number: int) -> BatchForm | None:
        if not isinstance(leaf, Tensor):
            return None
        op = Elementwise(number, lambda images: images * 2)
        return BatchForm((op,), lambda params: lambda image: image * 2)


def test_a_users_own_batched_form_is_taken():
    """A transform that brings `batch_form` is asked with a leaf and its number."""
    split = _split([_Double()], "float32")
    assert _actions(split) == [("_Double", "batch")]
    images = torch.ones(2, 3, 4, 4)
    batch = Reference(split.ops).run(images, torch.tensor([0, 1]), draws_for([0, 1]))
    assert torch.equal(batch, images * 2)


@pytest.mark.parametrize("version", [v1, v2], ids=["v1", "v2"])
def test_a_batch_is_what_the_chain_makes(version: Any):
    """A deterministic chain's batch is, bit for bit, what the steps make of each image."""
    chain = [version.Pad(1, fill=9), v1.ToTensor(), version.CenterCrop(10), lambda x: x * 2]
    leaves = [leaf_of("RGB", (3, 9, 7), seed) for seed in range(4)]
    split, traces = split_of(chain, leaves)
    stored = torch.stack(
        [v1.functional.pil_to_tensor(trace[split.cut]) for trace in traces]
        if split.cut < 2
        else [trace[split.cut] for trace in traces]
    )
    found = Reference(split.ops).run(stored, torch.arange(4), draws_for(range(4)))
    assert torch.equal(found, torch.stack([trace[-1] for trace in traces]))


def _smaller(chain: list[Any], kind: str = "RGB", least_cut: int = 0) -> list[tuple[str, int]]:
    leaves = [leaf_of(kind, (3, 16, 16), seed) for seed in range(4)]
    _, traces = split_of(chain, leaves)
    split = split_chain(split_of(chain, leaves)[0].steps, traces, least_cut=least_cut)
    for each in split.smaller:
        assert each.leading == split.leading
        assert [d.step for d in each.decisions] == [d.step for d in split.decisions]
        assert all(d.action == "once" for d in each.decisions[: each.cut])
    return [(each.mode, each.cut) for each in split.smaller]


def test_the_smallest_cut_has_none_that_needs_less() -> None:
    """Bytes behind which all runs in batches leave nothing to fall back to."""
    assert _smaller([v1.ToTensor(), v1.RandomHorizontalFlip()]) == []
    assert _smaller([]) == []


def test_smaller_cuts_run_most_steps_once_first() -> None:
    """Each needs fewer bytes than those before it."""
    grow, shrink = v1.Resize(24), v1.Resize(8)
    assert _smaller([shrink, v1.Resize(12), grow, v1.ColorJitter(0.5)]) == [
        ("worker", 2),
        ("worker", 1),
    ]
    assert _smaller([grow, shrink, v1.Resize(12), v1.ColorJitter(0.5)]) == [("worker", 2)]


def test_smaller_cuts_keep_to_the_steps_that_run_once() -> None:
    """No fewer of them than the user wants."""
    chain = [v1.Resize(8), v1.Resize(12), v1.Resize(24), v1.ColorJitter(0.5)]
    assert _smaller(chain, least_cut=2) == [("worker", 2)]


def test_a_smaller_cut_of_floats_that_ran_in_batches() -> None:
    """The bytes before a mirror, which then runs per sample, and says why."""
    leaves = [leaf_of("RGB", (3, 16, 16), seed) for seed in range(4)]
    split, _ = split_of([v1.ToTensor(), _mirror, v1.RandomHorizontalFlip()], leaves)
    assert [(each.mode, each.cut) for each in split.smaller] == [("worker", 0)]
    assert split.smaller[0].decisions[1].reason == (
        "per sample, since _mirror acts on tensor (3, 16, 16) float32, which is no image of bytes"
    )


def test_images_of_differing_sizes_may_be_the_smaller_cut() -> None:
    """Where a crop makes them one size on whole batches, though one size was to be stored."""
    leaves = [leaf_of("RGB", (3, 20, width), width) for width in (20, 24)]
    split, _ = split_of([v1.Resize((30, 30)), v1.RandomResizedCrop(8), v1.ToTensor()], leaves)
    assert (split.mode, split.cut) == ("batch", 1)
    assert [(each.mode, each.cut) for each in split.smaller] == [("worker", 0)]


def test_every_position_is_described() -> None:
    """Whether all before it is deterministic, why it cannot be a cut, and what would be left."""
    leaves = [leaf_of("RGB", (3, 16, 16), seed) for seed in range(2)]
    chain = [v1.Pad(1), v1.ToTensor(), v1.RandomHorizontalFlip(), v1.Normalize([0.5], [0.5])]
    steps, traces = split_of(chain, leaves)[0].steps, split_of(chain, leaves)[1]
    found = positions(steps, traces)
    assert [p.is_deterministic for p in found] == [True, True, True, False, False]
    late = "random from RandomHorizontalFlip on"
    assert [p.problem for p in found] == ["", "", "", late, late]
    assert [p.rest for p in found] == ["batch", "batch", "batch", "batch", "nothing"]
    assert [p.rest for p in positions(steps[:2], [t[:3] for t in traces])] == [
        "batch",
        "table",
        "nothing",
    ]
    assert positions([], [[leaf] for leaf in leaves]) == (Position(True, "", "nothing"),)


def test_values_that_cannot_be_stored_are_named() -> None:
    """A tuple is none, and kinds that differ are two."""
    leaves = [leaf_of("RGB", (3, 16, 16), 0), leaf_of("L", (1, 16, 16), 1)]
    split, traces = split_of([v1.FiveCrop(4)], leaves)
    assert [p.problem for p in positions(split.steps, traces)] == [
        "values differ in kind: PIL image RGB 16x16 and PIL image L 16x16",
        "tuple is no tensor, array, image or number",
    ]
