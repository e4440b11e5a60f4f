"""`hotset.open`: a store, wherever it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from hotset.store.store import Store, Verify
from hotset.store.urls import check_local, given_path, is_remote, local_path


def open(
    path: str | os.PathLike[str],
    *,
    verify: Verify = "touch",
    local: str | os.PathLike[str] | None = None,
    budget: int | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Store:
    """A store that `hotset.build` made.

    One at a URL is read through a copy on this machine, which is kept for the next time: as long as
    the store's manifest stays the same, nothing else is fetched again.

    Args:
        path: its directory, "~" the user's home; or its URL, as "s3://bucket/train.hotset", of any
            protocol that fsspec knows.
        verify: when a block's checksum is looked at: "touch" before it is first used, "open" all
            at once, or "never". Of a URL, unless it is "never", also when it is copied.
        local: for a URL, the folder of local copies; None is `$HOTSET_CACHE`, or `hotset` in the
            user's cache folder.
        budget: for a URL, what all copies in that folder together may take: bytes, "50GB", or
            "60%" of what is free on its disk; None is half of that. What the copies take counts as
            free. The least recently opened ones go first, and none that is open.
        storage_options: for a URL, what fsspec's file system is told: keys, an endpoint.

    Raises:
        ConfigError: for arguments that cannot be used.
        MissingDataError: if there is no store.
        FormatError: if it is damaged, or of a newer version.
        StorageError: if it may not be read, or its copy has no room.
        MissingExtraError: if the package that knows a URL's protocol is not installed.

    Example:
        >>> import hotset, tempfile
        >>> path = tempfile.mkdtemp() + "/numbers.hotset"
        >>> built = hotset.build([1, 2, 3], path, version="1")
        >>> hotset.open(path)[2]
        3
    """
    path = given_path(path)
    if local is not None:
        local = local_path(given_path(local, "local"))
    if is_remote(path):
        from hotset.store.remote import open_remote

        return open_remote(
            str(path), verify=verify, local=local, budget=budget, storage_options=storage_options
        )
    check_local(path, local=local, budget=budget, storage_options=storage_options)
    return Store(local_path(path), verify=verify)
