"""What there is to say of a store, in plain values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hotset.store.damage import Contents
from hotset.store.field import Field
from hotset.store.layout import VERSION


def facts(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a store holds, what it was made from, and how.

    Args:
        path: its directory.

    Returns:
        "path", "samples", "bytes", "format", "fields", "files", "fingerprint", "made". A ragged
        field has the least, mean and largest "min", "mean" and "max" of each axis, of text its
        bytes; None where its index is damaged.

    Raises:
        MissingDataError: if there is no store.
        FormatError: if its manifest is damaged.
    """
    contents = Contents(Path(path))
    manifest = contents.manifest
    contents.look(names=[f.index_file for f in manifest.fields if f.is_ragged])
    return {
        "path": str(path),
        "samples": manifest.samples,
        "bytes": manifest.nbytes,
        "format": VERSION,
        "fields": [_field(contents, f) for f in manifest.fields],
        "files": {name: file.nbytes for name, file in manifest.files.items()},
        "fingerprint": manifest.fingerprint,
        "made": manifest.made,
    }


def _field(contents: Contents, f: Field) -> dict[str, Any]:
    files = contents.manifest.files
    found: dict[str, Any] = {
        "name": f.name,
        "path": f.path,
        "kind": f.schema.kind,
        "dtype": str(f.dtype).removeprefix("torch."),
        "modes": list(f.modes) or ([f.schema.mode] if f.schema.mode else []),
        "layout": "ragged" if f.is_ragged else "dense",
        "bytes": sum(files[name].nbytes for name in (f.data_file, f.index_file) if name in files),
    }
    if not f.is_ragged:
        return {**found, "shape": list(f.schema.shape)}
    if contents.bad[f.index_file]:
        return {**found, "min": None, "mean": None, "max": None}
    shapes = contents.index(f)[:, 1 : 1 + f.axes]
    mean = [round(edge, 2) for edge in shapes.mean(axis=0).tolist()]
    return {
        **found,
        "min": shapes.min(axis=0).tolist(),
        "mean": mean,
        "max": shapes.max(axis=0).tolist(),
    }
