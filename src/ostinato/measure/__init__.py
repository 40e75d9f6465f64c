"""Measuring on purpose: benchmarks, comparisons and tuning, by replays that this room makes itself."""
