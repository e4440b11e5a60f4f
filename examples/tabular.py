"""Rows of a table with a small network of linear layers, in plain PyTorch.

    python examples/tabular.py [--rows 160000] [--epochs 5] [--batch-size 1024]

The rows are made from a seed: 32 columns, and a label that depends on products of some of them.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

COLUMNS = 32
CLASSES = 4


def make_rows(count: int, *, seed: int) -> TensorDataset:
    """(N, 32) float32 columns, of which some decide, and (N,) int64 labels."""
    generator = torch.Generator().manual_seed(seed)
    columns = torch.randn(count, COLUMNS, generator=generator)
    noise = torch.randn(count, 2, generator=generator)
    first = columns[:, 0] * columns[:, 1] + columns[:, 2] + 0.3 * noise[:, 0]
    second = columns[:, 3] - columns[:, 4] * columns[:, 5] + 0.3 * noise[:, 1]
    return TensorDataset(columns, 2 * (first > 0).long() + (second > 0).long())


def make_network() -> nn.Sequential:
    """From (N, 32) float32 to (N, 4) logits."""
    return nn.Sequential(
        nn.Linear(COLUMNS, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES)
    )


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
        for columns, labels in loader:
            columns, labels = columns.to(device), labels.to(device)
            outputs = network(columns)
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
    parser = argparse.ArgumentParser(description="A small network on the rows of a table.")
    parser.add_argument("--rows", type=int, default=160_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batch-size", type=int, default=1024)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(
        make_rows(args.rows, seed=1),
        args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        drop_last=True,
    )
    validation_loader = DataLoader(
        make_rows(args.rows // 5, seed=2), args.batch_size, num_workers=args.workers
    )
    network = make_network().to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    print(f"{len(train_loader)} batches to train on, {len(validation_loader)} to validate on")
    for epoch in range(1, args.epochs + 1):
        loss, accuracy = run_epoch(network, train_loader, device, optimizer)
        print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.1%}", end="; ")
        loss, accuracy = run_epoch(network, validation_loader, device)
        print(f"validation: loss {loss:.4f}, accuracy {accuracy:.1%}", flush=True)


if __name__ == "__main__":
    main()
