"""The errors hotset raises.

    HotsetError
    ├── ConfigError        (ValueError)         an argument is wrong
    ├── DeviceError        (RuntimeError)       a device is missing, or data is out of its reach
    │   └── DeviceMemoryError (MemoryError)     a device has no room
    ├── PrecisionError     (OverflowError)      a value does not fit the dtype that it is kept in
    ├── UnsupportedError   (TypeError)          a kind of dataset or loader hotset cannot serve
    ├── KeyingError        (TypeError)          something does not say what it consists of
    ├── SampleError        (RuntimeError)       reading one sample failed
    ├── SchemaError        (ValueError)         samples do not fit together into batches
    ├── FaithfulnessError  (RuntimeError)       a sample differs from the user's own chain
    ├── StateError         (ValueError)         a saved state belongs to something else
    ├── StorageError       (OSError)            a store cannot be written: disk full, no permission
    ├── FormatError        (ValueError)         a data file is damaged, or not what its name says
    ├── MissingDataError   (FileNotFoundError)  data files are not there
    ├── MissingExtraError  (ImportError)        an optional package is not installed
    └── DownloadError      (OSError)            a download failed

Every error also subclasses the builtin that a caller would expect, and says what was expected, what
came, and what to do.
"""

from __future__ import annotations


class HotsetError(Exception):
    """Root of every error that hotset raises on purpose."""


class ConfigError(HotsetError, ValueError):
    """An argument has a value that cannot be used."""


class DeviceError(HotsetError, RuntimeError):
    """A device is missing, or data cannot be used from where it lies."""


class DeviceMemoryError(DeviceError, MemoryError):
    """A device has no room for what was to be placed there."""


class PrecisionError(HotsetError, OverflowError):
    """A value lies outside the range of the dtype that it was to be kept in."""


class UnsupportedError(HotsetError, TypeError):
    """A dataset, loader or sample is of a kind that hotset cannot serve."""


class KeyingError(HotsetError, TypeError):
    """Something does not say what it consists of, so that a cache cannot be told stale by it."""


class SampleError(HotsetError, RuntimeError):
    """Reading one sample failed; the message names it, the cause is chained."""


class SchemaError(HotsetError, ValueError):
    """Samples do not fit together into batches."""


class FaithfulnessError(HotsetError, RuntimeError):
    """An accelerated sample differs from what the user's own chain gives."""


class StateError(HotsetError, ValueError):
    """A saved state does not belong to this loader."""


class StorageError(HotsetError, OSError):
    """A store cannot be written: the disk is full, or the place may not be written to."""


class FormatError(HotsetError, ValueError):
    """A data file is damaged or is not what its name says."""


class MissingDataError(HotsetError, FileNotFoundError):
    """Data files are not where they were looked for."""


class MissingExtraError(HotsetError, ImportError):
    """An optional package is not installed; the message names the extra."""


class DownloadError(HotsetError, OSError):
    """A download failed."""


class StaleStoreWarning(UserWarning):
    """A store was made from something else than it is wanted for, and another is made beside it."""


class OrientationWarning(UserWarning):
    """Images say by EXIF that they are to be turned, and a store keeps pixels as they lie."""
