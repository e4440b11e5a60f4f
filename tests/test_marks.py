"""What users say their own callables are."""

from __future__ import annotations

from torchvision import transforms as v1
from torchvision.transforms import v2

import hotset
from hotset.chain.marks import mark_of


def test_functions_bear_their_mark():
    """A marked function is the same function, and its mark is found, inside a Lambda too."""

    def jitter(value):
        return value

    assert hotset.random(jitter) is jitter
    assert mark_of(jitter) == "random"
    assert mark_of(v1.Lambda(jitter)) == mark_of(v2.Lambda(jitter)) == "random"


def test_classes_bear_their_mark():
    """Every instance of a marked class is marked, a subclass's too."""

    @hotset.deterministic
    class Halve:
        def __call__(self, value):
            return value / 2

    class More(Halve):
        pass

    assert mark_of(Halve()) == mark_of(More()) == "deterministic"
    assert mark_of(hotset.random(More)()) == "random"
    assert mark_of(Halve()) == "deterministic"


def test_the_unmarked_has_no_mark():
    """Nothing is assumed of anything else."""
    assert mark_of(abs) is None
    assert mark_of(v1.Lambda(abs)) is None
    assert mark_of(v1.ToTensor()) is None


def test_doubled_marks_take_the_last():
    """The outermost marker counts."""
    assert mark_of(hotset.random(hotset.deterministic(lambda value: value))) == "random"
