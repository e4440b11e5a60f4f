"""`hotset.open`: a store, wherever it is."""

from __future__ import annotations

import os

from hotset.store.store import Store, Verify


def open(path: str | os.PathLike[str], *, verify: Verify = "touch") -> Store:
    """A store that `hotset.build` made.

    Args:
        path: its directory.
        verify: when a block's checksum is looked at: "touch" before it is first used, "open" all
            at once, or "never".

    Raises:
        MissingDataError: if there is no store.
        FormatError: if it is damaged, or of a newer version.

    Example:
        >>> import hotset, tempfile
        >>> path = tempfile.mkdtemp() + "/numbers.hotset"
        >>> built = hotset.build([1, 2, 3], path, version="1")
        >>> hotset.open(path)[2]
        3
    """
    return Store(path, verify=verify)
