"""A tree of image files, one folder per class, on this machine or in object storage."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from typing import Any

from torch.utils.data import Dataset

from hotset.errors import MissingDataError, MissingExtraError, StorageError
from hotset.store.objects import Objects
from hotset.store.urls import check_local, given_path, is_remote, local_path

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Source: torchvision.datasets.folder.IMG_EXTENSIONS."""
TAGS = (
    "ETag",
    "etag",
    "md5Hash",
    "generation",
    "LastModified",
    "last_modified",
    "mtime",
    "created",
)
"""What file systems call that which tells whether a file has changed; the first that is there."""


class ImageFolder(Dataset[Any]):
    """Images in folders named after their classes, as torchvision's `ImageFolder` reads them.

    A sample is an image, PIL in RGB, and the number of its class, int. Classes and files come in
    torchvision's order. A store that is made from it is told stale by the size of each file, and
    by its ETag, or when it was written.

    Args:
        root: of the tree, "~" the user's home; or its URL, as "s3://bucket/train", of any protocol
            that fsspec knows.
        transform: callable on the image.
        target_transform: callable on the number of the class.
        storage_options: for a URL, what fsspec's file system is told: keys, an endpoint.

    Attributes:
        classes: names of the classes, sorted.
        class_to_idx: number of each class.
        samples: (path or URL, number of the class) of each file.
        targets: number of the class of each file.

    Raises:
        MissingDataError: if the tree is not there, has no class, or a class has no image.
        StorageError: if it cannot be read.
        MissingExtraError: if the package that knows a URL's protocol, or Pillow, is not installed.

    Source: torchvision.datasets.ImageFolder.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Callable[[Any], Any] | None = None,
        *,
        target_transform: Callable[[int], Any] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        root = given_path(root, "root")
        if not is_remote(root):
            check_local(root, storage_options=storage_options)
            root = local_path(root)
        self.root = os.fspath(root)
        self.transform, self.target_transform = transform, target_transform
        self.storage_options = dict(storage_options or {})
        self._files: dict[str, tuple[int, str]] = {}
        if is_remote(self.root):
            folders, files = self._remote_files()
        else:
            folders, files = _local_files(self.root)
        self.classes = sorted(folders)
        if not self.classes:
            raise MissingDataError(f"there is no class folder in {self.root}")
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        found = [
            (path, self.class_to_idx[name])
            for name in self.classes
            for path in sorted(files.get(name, ()), key=lambda path: path.rpartition("/")[::2])
        ]
        empty = [name for name in self.classes if not files.get(name)]
        if empty:
            raise MissingDataError(
                f"there is no image in {self.root} for the classes {', '.join(empty)}; images end "
                f"in {', '.join(EXTENSIONS)}"
            )
        self.samples = found
        self.targets = [target for _, target in found]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        """An image and the number of its class, transformed.

        Raises:
            MissingDataError: if the file is not there any more.
            StorageError: if it cannot be read.
        """
        path, target = self.samples[index]
        image = self._image(path)
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            return image, self.target_transform(target)
        return image, target

    def __repr__(self) -> str:
        return f"ImageFolder({self.root!r}, {len(self):,} images, {len(self.classes):,} classes)"

    def source_files(self) -> dict[str, tuple[int, str]]:
        """Size in bytes of each file at a URL, and what tells whether it has changed."""
        return self._files

    def _image(self, path: str) -> Any:
        try:
            from PIL import Image
        except ImportError as error:
            raise MissingExtraError(
                'ImageFolder needs Pillow, which is not installed: pip install "hotset[vision]"'
            ) from error
        if not is_remote(path):
            with open(path, "rb") as file, Image.open(file) as image:
                return image.convert("RGB")
        objects = Objects(self.root, self.storage_options)
        content = objects.read_range(path.removeprefix(f"{objects.url}/"))
        with Image.open(io.BytesIO(content)) as image:
            return image.convert("RGB")

    def _remote_files(self) -> tuple[set[str], dict[str, list[str]]]:
        """Names of the class folders, and the URLs of the images within each."""
        objects = Objects(self.root, self.storage_options)
        self.root = objects.url
        folders, files = set[str](), dict[str, list[str]]()
        for path, info in objects.tree():
            name, _, rest = path.partition("/")
            if rest or info["type"] == "directory":
                folders.add(name)
            if rest and path.lower().endswith(EXTENSIONS):
                url = f"{self.root}/{path}"
                files.setdefault(name, []).append(url)
                tag = next((str(info[key]) for key in TAGS if info.get(key) is not None), "")
                self._files[url] = int(info["size"]), tag
        return folders, files


def _local_files(root: str) -> tuple[set[str], dict[str, list[str]]]:
    """Names of the class folders, and the paths of the images within each."""
    try:
        with os.scandir(root) as entries:
            folders = {entry.name for entry in entries if entry.is_dir()}
    except FileNotFoundError as error:
        raise MissingDataError(f"there is no folder at {root}") from error
    except NotADirectoryError as error:
        raise MissingDataError(
            f"{root} is no folder; give the one that holds a folder of images for each class"
        ) from error
    except OSError as error:
        raise StorageError(f"{root} cannot be read: {error.strerror or error}") from error
    files = {
        name: [
            os.path.join(folder, file)
            for folder, _, names in os.walk(os.path.join(root, name), followlinks=True)
            for file in names
            if file.lower().endswith(EXTENSIONS)
        ]
        for name in folders
    }
    return folders, files
