"""A small backend for Ostinato: `ost.open_device("small")`."""
