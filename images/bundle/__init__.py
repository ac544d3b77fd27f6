"""The execd bundle: what is mounted into every sandbox, and how it is built."""

from images.bundle.cache import default_cache
from images.bundle.choose import build, quickest
from images.bundle.errors import (
    BundleDamaged,
    BundleError,
    ImportsUnmet,
    LockTimeout,
    PackageMissing,
    SourceMissing,
    StepFailed,
    ToolMissing,
)
from images.bundle.folder import load
from images.bundle.model import KINDS, Bundle, Kind
from images.bundle.sources import own_source_root, source_digest

__all__ = [
    "KINDS",
    "Bundle",
    "BundleDamaged",
    "BundleError",
    "ImportsUnmet",
    "Kind",
    "LockTimeout",
    "PackageMissing",
    "SourceMissing",
    "StepFailed",
    "ToolMissing",
    "build",
    "default_cache",
    "load",
    "own_source_root",
    "quickest",
    "source_digest",
]
