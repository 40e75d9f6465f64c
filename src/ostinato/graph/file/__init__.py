"""Graphs in files: `save` and `load_graph`. See `archive` for the contract, `docs/graph-file.md` for the format.

`document` makes a graph plain data, `reading` makes a graph of it again and trusts none of it, `values` checks single
values.
"""

from .archive import load_graph, save

__all__ = ["load_graph", "save"]
