"""Bytes in words."""

from __future__ import annotations


def human_bytes(count: float) -> str:
    """Bytes with a unit, in powers of ten.

    Example:
        >>> human_bytes(153_600_000)
        '153.6 MB'
    """
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
