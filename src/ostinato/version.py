"""The version of the package, where every room can read it without importing the front door."""

__version__ = "0.2.0.dev0"
