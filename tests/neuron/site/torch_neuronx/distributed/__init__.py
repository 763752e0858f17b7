"""Collectives of the device."""

from . import backend  # noqa: F401
