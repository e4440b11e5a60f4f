"""Well-known datasets, kept on the device from the start; and trees of images, read one by one."""

from hotset.datasets.folder import ImageFolder
from hotset.datasets.vision import CIFAR10, CIFAR100, MNIST, FashionMNIST

__all__ = ["CIFAR10", "CIFAR100", "MNIST", "FashionMNIST", "ImageFolder"]
