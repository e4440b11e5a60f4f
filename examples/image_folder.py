"""An image folder with a small convolutional network, in plain PyTorch and torchvision.

    python examples/image_folder.py [--data FOLDER] [--epochs 6] [--workers 2] [--batch-size 32]

FOLDER has `train` and `val` below it, with a folder of images for each class in them. Without
`--data` JPEG files are made from a seed in a temporary folder, which goes when the script ends.
"""

from __future__ import annotations

import argparse
import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

CLASSES = 4
SIZE = 64
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def write_images(folder: Path, count: int, *, seed: int) -> None:
    """Writes JPEG files of about 300x225, as many for each class: soft spots in its colours.

    Args:
        folder: gets a folder for each class.
        count: of all images.
        seed: of where the spots are, and of their noise; a class's colours are always the same.
    """
    colours = np.random.default_rng(0).integers(0, 256, (CLASSES, 3, 3), dtype=np.uint8)
    draws = np.random.default_rng(seed)
    for number in range(count):
        label = number % CLASSES
        size = (300 + int(draws.integers(-20, 21)), 225 + int(draws.integers(-20, 21)))
        spots = colours[label][draws.integers(0, 3, (6, 8))]
        soft = np.asarray(Image.fromarray(spots).resize(size, Image.Resampling.BICUBIC))
        noise = draws.integers(0, 192, soft.shape, dtype=np.uint8)
        place = folder / f"class_{label}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(soft // 4 + noise).save(place / f"{number:05d}.jpg", quality=90)


def temporary_folder(images: int) -> Path:
    """A folder of made images, until the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="image_folder_"))
    atexit.register(shutil.rmtree, folder)
    write_images(folder / "train", images, seed=1)
    write_images(folder / "val", images // 4, seed=2)
    return folder


def make_loaders(
    folder: Path, batch_size: int, workers: int
) -> tuple[DataLoader[Any], DataLoader[Any]]:
    """To train on, with augmentation, and to validate on."""
    finish = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    augment = [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip()]
    plain = [transforms.Resize(SIZE), transforms.CenterCrop(SIZE)]
    train_set = ImageFolder(folder / "train", transforms.Compose([*augment, *finish]))
    validation_set = ImageFolder(folder / "val", transforms.Compose([*plain, *finish]))
    return (
        DataLoader(train_set, batch_size, shuffle=True, num_workers=workers),
        DataLoader(validation_set, batch_size, num_workers=workers),
    )


def make_network(classes: int) -> nn.Sequential:
    """From (N, 3, 64, 64) float32 to (N, classes) logits."""
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [
            nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def run_epoch(
    network: nn.Module,
    loader: DataLoader[Any],
    device: torch.device,
    optimizer: torch.optim.Optimizer | None = None,
) -> tuple[float, float]:
    """The mean loss and the accuracy over a loader; trains where there is an optimizer."""
    network.train(optimizer is not None)
    losses, right, count = torch.zeros((), device=device), torch.zeros((), device=device), 0
    with torch.set_grad_enabled(optimizer is not None):
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            outputs = network(images)
            loss = functional.cross_entropy(outputs, labels)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            losses += loss.detach() * len(labels)
            right += (outputs.argmax(1) == labels).sum()
            count += len(labels)
    return losses.item() / count, right.item() / count


def main() -> None:
    """Trains, and prints how well that goes."""
    parser = argparse.ArgumentParser(description="A small network on a folder of images.")
    parser.add_argument("--data", type=Path, help="folder with train/CLASS and val/CLASS")
    parser.add_argument("--images", type=int, default=800, help="to make, without --data")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = temporary_folder(args.images) if args.data is None else args.data
    train_loader, validation_loader = make_loaders(folder, args.batch_size, args.workers)
    classes = len(train_loader.dataset.classes)
    network = make_network(classes).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    print(f"{len(train_loader)} batches to train on, {len(validation_loader)} to validate on")
    for epoch in range(1, args.epochs + 1):
        loss, accuracy = run_epoch(network, train_loader, device, optimizer)
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.1%}", end="; ")
        loss, accuracy = run_epoch(network, validation_loader, device)
        print(f"validation: loss {loss:.4f}, accuracy {accuracy:.1%}", flush=True)


if __name__ == "__main__":
    main()
