"""Base images made on this machine from its own packages, for when no registry is at hand."""

from images.local.build import ImageStore, ensure
from images.local.recipes import NAMES, reference

__all__ = ["NAMES", "ImageStore", "ensure", "reference"]
