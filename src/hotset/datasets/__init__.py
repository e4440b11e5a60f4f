"""Well-known datasets, kept on the device from the start."""

from hotset.datasets.vision import CIFAR10, CIFAR100, MNIST, FashionMNIST

__all__ = ["CIFAR10", "CIFAR100", "MNIST", "FashionMNIST"]
