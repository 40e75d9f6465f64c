"""Graphs in files: `save` and `load_graph`. See `archive` for the contract, `docs/graph-file.md` for the format.

`document` turns a graph into plain data, `reading` checks such data and makes a graph of it, `values` checks single
values.
"""

from .archive import is_graph_file, load_graph, save

__all__ = ["is_graph_file", "load_graph", "save"]
