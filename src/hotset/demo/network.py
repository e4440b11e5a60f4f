"""The network that the demo trains, and how it is trained."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS = (32, 64, 64)
LEARNING_RATE = 0.2
MOMENTUM = 0.9
WEIGHT_DECAY = 5e-4
EVALUATED_AT_ONCE = 1000


def build_network(channels: int, classes: int) -> nn.Sequential:
    """A small convolutional network: three strided convolutions, pooling, and a linear layer.

    The first one takes patches of four pixels, so that a step is cheap even on two CPU cores.

    Args:
        channels: of an image.
        classes: to tell apart.

    Returns:
        A network from (N, channels, H, W) float32 to (N, classes) logits.

    Example:
        >>> build_network(3, 10)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    layers: list[nn.Module] = []
    for number, width in enumerate(WIDTHS):
        size, stride, padding = (3, 2, 1) if number else (4, 4, 0)
        layers += [
            nn.Conv2d(channels, width, size, stride=stride, padding=padding, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        ]
        channels = width
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)
    )


class Trainer:
    """Trains a network: SGD with Nesterov momentum, and a rate that rises and falls once.

    Args:
        network: what is trained; moved to `device`.
        steps: number of batches that it will be given.
        device: where it is trained.
    """

    def __init__(self, network: nn.Module, steps: int, device: torch.device) -> None:
        self._device = device
        self._network = network.to(device).to(memory_format=torch.channels_last)
        self._optimizer = torch.optim.SGD(
            self._network.parameters(),
            lr=LEARNING_RATE,
            momentum=MOMENTUM,
            nesterov=True,
            weight_decay=WEIGHT_DECAY,
        )
        self._schedule = torch.optim.lr_scheduler.OneCycleLR(
            self._optimizer, LEARNING_RATE, total_steps=steps
        )

    def learn(self, batch: Any) -> int:
        """Takes one step on a batch of (images, labels), and returns its number of samples."""
        images, labels = self._placed(batch)
        loss: Any = F.cross_entropy(self._network(images), labels)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self._schedule.step()
        return len(labels)

    @torch.no_grad()
    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        """The share of images that are told right; the network is in evaluation mode meanwhile.

        Args:
            images: (M, C, H, W) float32, as the pipeline's deterministic part makes them.
            labels: (M,) int64.
        """
        self._network.eval()
        right = 0
        for start in range(0, len(labels), EVALUATED_AT_ONCE):
            stop = start + EVALUATED_AT_ONCE
            part, wanted = self._placed((images[start:stop], labels[start:stop]))
            right += int((self._network(part).argmax(1) == wanted).sum())
        self._network.train()
        return right / len(labels)

    def _placed(self, batch: Any) -> tuple[Tensor, Tensor]:
        images, labels = batch
        return (
            images.to(self._device, non_blocking=True, memory_format=torch.channels_last),
            labels.to(self._device, non_blocking=True),
        )
