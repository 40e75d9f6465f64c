"""The backends: one folder each, all behind the small protocol in `protocol.py`."""
