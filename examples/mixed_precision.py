"""Training in mixed precision on batches that come out of hotset in half precision.

    python examples/mixed_precision.py [--device cuda] [--dtype float16] [--epochs 4]

Who keeps what, and in which dtype:

* The data stays in bytes where it lies. The loader makes it what the network reads, in half
  precision and channels last, in one pass: `dtype=` and `channels_last=` below. Every value is
  computed in float32 and rounded once.
* The network stays in float32, and is moved with `.to(memory_format=...)`, never with `.half()`.
  `torch.autocast` runs convolutions and matrix products in half precision. The weights, and
  BatchNorm's parameters and running statistics, remain float32.
* The loss is computed in float32, from what the network gives.
* `torch.amp.GradScaler` is for float16, whose smallest value is 6e-8: gradients below half of that
  become zero. It multiplies the loss, so that they do not, and divides the gradients before the
  step; where one has become infinite it leaves the step out and scales by less. bfloat16 has the
  range of float32 and needs none: the scaler is then made with `enabled=False`, which turns each of
  its methods into what stands without it.

By itself this trains in float16 on a CUDA device, and in bfloat16 on the CPU. The last two lines
that it prints show, in float16 on either, what a scaler is for.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.transforms import v2

import hotset

CLASSES = 4
TINY = 1e-7
"""Of the loss of `tiny_loss_gradients`, whose gradients are then too small for float16."""


@dataclass(frozen=True)
class Outcome:
    """What a training came to.

    Attributes:
        losses: the mean loss of each epoch.
        batch_dtype: of the images as the loader gave them.
        batch_norm_dtypes: of BatchNorm's parameters and running statistics, by name.
        scale: times how much the last backward pass was larger than that of the loss itself, as
            measured where it began; 1 without a scaler.
        vanished: of the last step's gradients, those that are zero though float32's are not; a
            share.
        are_finite: whether all gradients of the last step are finite.
    """

    losses: tuple[float, ...]
    batch_dtype: torch.dtype
    batch_norm_dtypes: dict[str, torch.dtype]
    scale: float
    vanished: float
    are_finite: bool


def half_of(device: torch.device) -> torch.dtype:
    """The half precision to train in on a device."""
    return torch.float16 if device.type == "cuda" else torch.bfloat16


def make_images(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Noisy stripes, whose width and direction are their class.

    Returns:
        (N, 3, 16, 16) uint8 images, and (N,) int64 labels.
    """
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    across = torch.arange(16).expand(16, 16)
    stripes = torch.stack(
        [pattern // width % 2 for width in (2, 4) for pattern in (across, across.T)]
    )
    noise = torch.randint(0, 160, (count, 3, 16, 16), generator=generator)
    return (stripes[labels][:, None] * 80 + noise).to(torch.uint8), labels


def make_loader(device: torch.device, half: torch.dtype, count: int = 512) -> hotset.Loader:
    """Batches as a network under autocast reads them: in half precision, channels last."""
    return hotset.Loader(
        make_images(count),
        batch_size=64,
        shuffle=True,
        seed=0,
        transform=[
            v2.RandomCrop(16, padding=2),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.45] * 3, [0.25] * 3),
        ],
        dtype=half,
        channels_last=True,
        device=device,
    )


def make_network() -> nn.Sequential:
    """A small convolutional network, in float32."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, CLASSES),
    )


def train(device: torch.device, half: torch.dtype, epochs: int = 4) -> Outcome:
    """The recipe: what a training loop in mixed precision consists of."""
    loader = make_loader(device, half)
    network = make_network().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type, enabled=half is torch.float16)
    losses = []
    for _ in range(epochs):
        total = torch.zeros((), device=device)
        for images, labels in loader:
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=half):
                outputs = network(images)
            outputs.retain_grad()  # only for `scale_of` below
            loss = functional.cross_entropy(outputs.float(), labels)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)  # needed only where gradients are looked at or clipped
            scaler.step(optimizer)
            scaler.update()
            total += loss.detach()  # no `.item()` in the loop: it would wait for the device
        losses.append(total.item() / len(loader))
    gradients = gradients_of(network)
    return Outcome(
        losses=tuple(losses),
        batch_dtype=images.dtype,
        batch_norm_dtypes=batch_norm_dtypes(network),
        scale=scale_of(outputs, labels),
        vanished=vanished(network, images, labels),
        are_finite=bool(gradients.isfinite().all()),
    )


def batch_norm_dtypes(network: nn.Module) -> dict[str, torch.dtype]:
    """The dtype of every floating-point parameter and statistic of BatchNorm, by its name."""
    return {
        f"{place}.{name}": tensor.dtype
        for place, module in network.named_modules()
        if isinstance(module, nn.BatchNorm2d)
        for name, tensor in module.state_dict().items()
        if tensor.is_floating_point()
    }


def gradients_of(network: nn.Module) -> Tensor:
    """(parameters,) all gradients end to end."""
    return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])


def scale_of(outputs: Tensor, labels: Tensor) -> float:
    """Times how much the gradients of outputs are larger than those of their loss itself.

    Args:
        outputs: (B, classes) in half precision, with the gradients of a backward pass.
        labels: (B,) int64.
    """
    assert outputs.grad is not None
    single = outputs.detach().float().requires_grad_()
    functional.cross_entropy(single, labels).backward()
    assert single.grad is not None
    return float(outputs.grad.float().norm() / single.grad.norm())


def vanished(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of gradients that are zero in mixed precision, though float32's are not.

    Args:
        network: stays as it is, but for its gradients and BatchNorm's statistics.
        images: (B, 3, H, W) in half precision.
        labels: (B,) int64.
    """
    found = []
    for is_mixed in (True, False):
        network.zero_grad()
        scaler = torch.amp.GradScaler(images.device.type, enabled=images.dtype is torch.float16)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
        with torch.autocast(images.device.type, dtype=images.dtype, enabled=is_mixed):
            outputs = network(images if is_mixed else images.float())
        loss = functional.cross_entropy(outputs.float(), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        found.append(gradients_of(network))
    mixed, single = found
    return float(((mixed == 0) & (single != 0)).sum() / (single != 0).sum())


def tiny_loss_gradients(device: torch.device, *, is_scaled: bool) -> Tensor:
    """(256,) float32 gradients of a linear layer in float16, whose loss is tiny.

    Args:
        device: where.
        is_scaled: whether a `GradScaler` multiplies the loss, and divides the gradients.
    """
    layer = nn.Linear(64, 4, bias=False).to(device)
    nn.init.constant_(layer.weight, 0.125)
    inputs = torch.linspace(0.5, 1, 64, device=device).repeat(8, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0**16, enabled=is_scaled)
    with torch.autocast(device.type, dtype=torch.float16):
        outputs = layer(inputs)
    loss = outputs.float().mean() * TINY
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    return gradients_of(layer)


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains, and prints what came of it."""
    parser = argparse.ArgumentParser(description="Training in mixed precision with hotset.")
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=default)
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), help="default: see above")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args(arguments)
    device = torch.device(args.device)
    half = half_of(device) if args.dtype is None else getattr(torch, args.dtype)
    outcome = train(device, half, args.epochs)
    print(f"batches: {outcome.batch_dtype}, channels last, on {device}")
    for number, loss in enumerate(outcome.losses, 1):
        print(f"epoch {number}: loss {loss:.4f}")
    for name, dtype in outcome.batch_norm_dtypes.items():
        print(f"BatchNorm {name}: {dtype}")
    print(f"the loss was scaled by: {outcome.scale:,.0f}")
    print(f"gradients finite: {outcome.are_finite}")
    print(f"gradients that vanished: {outcome.vanished:.2%}")
    for is_scaled in (False, True):
        share = float((tiny_loss_gradients(device, is_scaled=is_scaled) == 0).float().mean())
        how = "with a GradScaler" if is_scaled else "without one"
        print(f"float16, a tiny loss, {how}: {share:.0%} of the gradients are zero")


if __name__ == "__main__":
    main()
