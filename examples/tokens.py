"""Token sequences of differing lengths in batches: padded, and jagged.

The tokens lie end to end where training runs; a batch of them is one gather.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import hotset

VOCABULARY, PAD = 1000, 0


def sentences(count: int) -> dict[str, object]:
    """Some token sequences; their lengths are a field like any other."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 40, (count,), generator=generator)
    tokens = [torch.randint(1, VOCABULARY, (n,), generator=generator) for n in lengths.tolist()]
    return {"tokens": tokens, "length": lengths, "label": torch.arange(count) % 2}


def padded_means(embedding: nn.Embedding, data: object, device: str) -> list[Tensor]:
    """Mean embedding of each sequence, from padded batches."""
    loader = hotset.Loader(
        data,
        batch_size=64,
        shuffle=True,
        seed=0,
        device=device,
        ragged={"tokens": hotset.Padded(PAD, multiple_of=8, max_length=32)},
    )
    means = []
    for batch in loader:
        tokens = batch["tokens"]  # (B, longest), a multiple of 8
        lengths = batch["length"].clamp(max=32)
        is_token = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        summed = (embedding(tokens) * is_token[..., None]).sum(1)
        means.append(summed / lengths[:, None])
    return means


def jagged_means(embedding: nn.Embedding, data: object, device: str) -> list[Tensor]:
    """The same from nested tensors, which hold no padding: their offsets tell the lengths."""
    loader = hotset.Loader(
        data, batch_size=64, shuffle=True, seed=0, device=device, ragged={"tokens": "jagged"}
    )
    means = []
    for batch in loader:
        tokens = batch["tokens"]  # (B, lengths), nested
        means.append(
            nn.functional.embedding_bag(
                tokens.values(), embedding.weight, tokens.offsets()[:-1], mode="mean"
            )
        )
    return means


def main() -> None:
    """Both, on the GPU where there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    embedding, data = nn.Embedding(VOCABULARY, 16).to(device), sentences(1000)
    padded, jagged = (f(embedding, data, device) for f in (padded_means, jagged_means))
    print(f"padded: {len(padded)} batches; jagged: {len(jagged)} batches")


if __name__ == "__main__":
    main()
