"""A folder of JPEG photographs, cut from those that scikit-image's wheel carries."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
from PIL import Image

from hotset.errors import MissingExtraError

PHOTOGRAPHS = (
    "astronaut.png",
    "chelsea.png",
    "coffee.png",
    "hubble_deep_field.jpg",
    "ihc.png",
    "motorcycle_left.png",
    "retina.jpg",
    "rocket.jpg",
)
"""Those in colour."""
WIDTH, HEIGHT, SPREAD = 500, 375, 40
QUALITY = 90


def write_photographs(folder: Path, count: int, *, seed: int = 0) -> int:
    """Writes a tree of JPEG files, one folder per photograph, as `ImageFolder` reads it.

    Each is a part of a photograph, of about 500x375 pixels: sizes differ by up to 40 pixels.

    Args:
        folder: made where it is not there.
        count: how many files.
        seed: of the parts.

    Returns:
        Bytes of all files.

    Raises:
        MissingExtraError: if scikit-image is not installed.
    """
    found = importlib.util.find_spec("skimage")
    if found is None or found.origin is None:
        raise MissingExtraError(
            "the photographs are those in scikit-image's wheel, and it is not installed: "
            "pip install 'hotset[demo]'"
        )
    home, generator = Path(found.origin).parent / "data", np.random.default_rng(seed)
    photographs = [Image.open(home / name).convert("RGB") for name in PHOTOGRAPHS]
    written = 0
    for number in range(count):
        kind = number % len(photographs)
        place = folder / PHOTOGRAPHS[kind].partition(".")[0] / f"{number:05}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        _part(photographs[kind], generator).save(place, quality=QUALITY)
        written += place.stat().st_size
    return written


def _part(photograph: Image.Image, generator: np.random.Generator) -> Image.Image:
    width = WIDTH + int(generator.integers(-SPREAD, SPREAD + 1))
    height = HEIGHT + int(generator.integers(-SPREAD, SPREAD + 1))
    most = min(photograph.width / width, photograph.height / height)
    share = min(most, 1.0) * generator.uniform(0.8, 1.0)
    cut = int(width * share), int(height * share)
    left = int(generator.integers(0, photograph.width - cut[0] + 1))
    top = int(generator.integers(0, photograph.height - cut[1] + 1))
    part = photograph.crop((left, top, left + cut[0], top + cut[1]))
    return part.resize((width, height), Image.Resampling.BICUBIC)
