"""Which paths are URLs, and of what protocol. Pure."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hotset.errors import ConfigError

LOCAL = ("file", "local")


class Url(str):
    """A URL, which has a name as paths have."""

    @property
    def name(self) -> str:
        """Its last part."""
        return self.rstrip("/").rpartition("/")[2]


def given_path(path: Any, argument: str = "path") -> Any:
    """A path or URL as a user gives it, bytes as text.

    Args:
        path: what was given.
        argument: what messages call it.

    Raises:
        ConfigError: for what is none.
    """
    example = "a path or URL, as 'data/train.hotset'"
    try:
        text = os.fsdecode(path)
    except TypeError as error:
        is_short = path is None or isinstance(path, (bool, int, float))
        found = repr(path) if is_short else f"one of type {type(path).__name__}"
        raise ConfigError(f"`{argument}` must be {example}, got {found}") from error
    if not text or "\0" in text:
        raise ConfigError(f"`{argument}` must be {example}, got {text!r}")
    return text if isinstance(path, bytes) else path


def path_or_url(text: str) -> Path | Url:
    """What an argument of a program names; `file://` is a path.

    Example:
        >>> path_or_url("s3://bucket/a.hotset").name, path_or_url("data/b.hotset").name
        ('a.hotset', 'b.hotset')
    """
    return Url(text) if is_remote(text) else Path(local_path(text))


def protocol_of(path: Any) -> str | None:
    """The protocol of a URL, in small letters; None for what is no URL.

    Example:
        >>> protocol_of("S3://bucket/train.hotset"), protocol_of("data/train.hotset")
        ('s3', None)
    """
    match = (
        re.match(r"([A-Za-z][A-Za-z0-9+.-]*)(?:::|://)", path) if isinstance(path, str) else None
    )
    return None if match is None else match[1].lower()


def is_remote(path: Any) -> bool:
    """Whether a path is a URL of anything but this machine's own files.

    Raises:
        ConfigError: for a URL that `pathlib` has taken a slash from.
    """
    if isinstance(path, os.PathLike) and (match := re.match("([a-z0-9]{2,}):/", os.fspath(path))):
        raise ConfigError(
            f"{os.fspath(path)} was a URL before pathlib changed it; give it as a text, as in "
            f"{match[1]}://bucket/train.hotset"
        )
    protocol = protocol_of(path)
    return protocol is not None and protocol not in LOCAL


def local_path(path: Any) -> Any:
    """A path of this machine's own files, without the protocol that it may have.

    `~` at the start of a text is the user's home.
    """
    bare = path.partition("://")[2] if protocol_of(path) in LOCAL else path
    return os.path.expanduser(bare) if isinstance(bare, str) else bare


def check_local(path: Any, **options: Any) -> None:
    """Refuses options that mean nothing for a path of this machine's own files.

    Raises:
        ConfigError: if one of them is not None.
    """
    for name, value in options.items():
        if value is not None:
            raise ConfigError(
                f"`{name}` is for a URL such as s3://bucket/train.hotset, got the path "
                f"{os.fspath(path)!r}"
            )
