"""Figures in words, and text of others made fit to be shown."""

from __future__ import annotations

import math

from hotset.doctor.findings import Range

STRANGE = "\N{REPLACEMENT CHARACTER}"


def times_as(ratio: float) -> str:
    """How many times faster, as it is shown.

    Example:
        >>> [times_as(ratio) for ratio in (1.034, 3.14159, 87.3, math.inf)]
        ['1.03×', '3.1×', '87×', 'without limit']
    """
    return f"{_number(ratio)}×" if math.isfinite(ratio) else "without limit"


def gain_in_words(gain: Range, *, is_most: bool = False) -> str:
    """A gain with its error.

    Args:
        gain: how many times faster.
        is_most: whether it is the most there could be.

    Example:
        >>> gain_in_words(Range(3.9, 3.52, 4.3)), gain_in_words(Range(2.0, 2.0, 2.0), is_most=True)
        ('3.9× (3.5 to 4.3)', 'at most 2.0×')
    """
    words = f"at most {times_as(gain.value)}" if is_most else times_as(gain.value)
    if not math.isfinite(gain.value):
        return times_as(gain.value)
    low = _number(gain.low)
    high = _number(gain.high) if math.isfinite(gain.high) else "any"
    return words if low == high == _number(gain.value) else f"{words} ({low} to {high})"


def percent(share: float) -> str:
    """A share in percent.

    Example:
        >>> [percent(share) for share in (0.778, 0.0123, 0.00042, 0.0)]
        ['78 %', '1.2 %', '0.042 %', '0 %']
    """
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.2g} %"


def per_second(rate: float) -> str:
    """A rate as it is shown.

    Example:
        >>> [per_second(rate) for rate in (12345.6, 4.56, 0.0, math.inf)]
        ['12,346', '4.6', '–', 'no limit']
    """
    if not math.isfinite(rate):
        return "no limit"
    if rate == 0:
        return "–"
    return f"{rate:,.0f}" if rate >= 9.95 else f"{rate:.2g}"


def shown(text: str) -> str:
    r"""A name or a path on one line, without what a terminal or a file cannot take.

    A file name may hold any byte but two: line ends too, and what moves a terminal's cursor.

    Example:
        >>> shown("one\ntwo \x1b[31m")
        'one two �[31m'
    """
    return "".join(
        letter if letter.isprintable() else " " if letter.isspace() else STRANGE for letter in text
    )


def sentence(text: str) -> str:
    """Words as a sentence of their own, made fit to be shown.

    Example:
        >>> sentence("the step is the limit"), sentence("Is it?")
        ('The step is the limit.', 'Is it?')
    """
    text = ended(text)
    return text[:1].upper() + text[1:]


def ended(text: str) -> str:
    """Likewise, but that its first letter stays as it is.

    Example:
        >>> ended("the step is the limit"), ended("Is it?")
        ('the step is the limit.', 'Is it?')
    """
    text = shown(text).strip()
    return text if not text or text[-1] in ".!?:…" else f"{text}."


def shortened(text: str, length: int) -> str:
    """A name of so many letters at most, made fit to be shown.

    Example:
        >>> shortened("RandomResizedCrop", 8)
        'RandomR…'
    """
    text = shown(text)
    return text if len(text) <= length else text[: length - 1] + "…"


def counted(count: int, noun: str, plural: str = "") -> str:
    """So many of something.

    Example:
        >>> counted(1, "batch", "batches"), counted(1200, "worker")
        ('1 batch', '1,200 workers')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def _number(value: float) -> str:
    if value >= 19.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1.995 else f"{value:.2f}"
