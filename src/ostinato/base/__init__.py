"""Helpers for every package: locks, the disk cache, byte ranges, source lines, text that is safe to print."""
