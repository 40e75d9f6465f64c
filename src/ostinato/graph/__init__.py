"""Captured work: graphs, their parameters and memory, replays, and graphs in files."""
