"""The mathematics: pure functions from the columns of a recording to figures. Knows neither devices nor encoders."""

from .columns import Columns
from .reading import columns_of
from .summary import Summary, look_first, summarise

__all__ = ["Columns", "Summary", "columns_of", "look_first", "summarise"]
