"""CIFAR-10 with a small convolutional network, in plain PyTorch and torchvision.

    python examples/cifar.py [--data FOLDER] [--epochs 5] [--workers 2] [--batch-size 128]

Without `--data` it trains on images of CIFAR-10's shape that are made from a seed: each class has a
pattern of its own, under noise.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets, transforms

CLASSES = 10
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


class MadeImages(Dataset[tuple[Any, int]]):
    """Images of CIFAR-10's shape: a pattern of 8x8 squares for each class, and noise over it.

    Args:
        count: how many.
        seed: of the noise and the labels; the patterns are always the same.
        transform: called on a PIL image.
    """

    def __init__(self, count: int, *, seed: int, transform: Callable[[Any], Any]) -> None:
        patterns = np.random.default_rng(0).integers(0, 256, (CLASSES, 4, 4, 3), dtype=np.uint8)
        draws = np.random.default_rng(seed)
        labels = draws.integers(0, CLASSES, count)
        self.data: NDArray[np.uint8] = patterns.repeat(8, axis=1).repeat(8, axis=2)[labels] // 4
        self.data += draws.integers(0, 192, self.data.shape, dtype=np.uint8)
        self.targets: list[int] = labels.tolist()
        self.transform = transform

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """An image, transformed, and its label."""
        return self.transform(Image.fromarray(self.data[index])), self.targets[index]


def make_datasets(folder: str | None, images: int) -> tuple[Dataset[Any], Dataset[Any]]:
    """To train on, with augmentation, and to validate on."""
    finish = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    augment = transforms.Compose(
        [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), *finish]
    )
    plain = transforms.Compose(finish)
    if folder is not None:
        return (
            datasets.CIFAR10(folder, train=True, transform=augment),
            datasets.CIFAR10(folder, train=False, transform=plain),
        )
    return (
        MadeImages(images, seed=1, transform=augment),
        MadeImages(images // 5, seed=2, transform=plain),
    )


def make_network() -> nn.Sequential:
    """From (N, 3, 32, 32) float32 to (N, 10) logits; its first layer takes patches of 4x4."""
    layers: list[nn.Module] = []
    for before, after, size, stride in ((3, 32, 4, 4), (32, 64, 3, 2), (64, 64, 3, 2)):
        layers += [
            nn.Conv2d(before, after, size, stride, padding=size % 2, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


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
    parser = argparse.ArgumentParser(description="A small network on CIFAR-10.")
    parser.add_argument("--data", help="folder with CIFAR-10, as torchvision keeps it")
    parser.add_argument("--images", type=int, default=12_800, help="to make, without --data")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=128)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set, validation_set = make_datasets(args.data, args.images)
    train_loader = DataLoader(
        train_set, args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True
    )
    validation_loader = DataLoader(validation_set, args.batch_size, num_workers=args.workers)
    network = make_network().to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    print(f"{len(train_loader)} batches to train on, {len(validation_loader)} to validate on")
    for epoch in range(1, args.epochs + 1):
        loss, accuracy = run_epoch(network, train_loader, device, optimizer)
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.1%}", end="; ")
        loss, accuracy = run_epoch(network, validation_loader, device)
        print(f"validation: loss {loss:.4f}, accuracy {accuracy:.1%}", flush=True)


if __name__ == "__main__":
    main()
