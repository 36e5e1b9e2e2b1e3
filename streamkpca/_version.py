"""The version of this release; built packages and exported models carry it."""

__version__ = "0.1.0"
