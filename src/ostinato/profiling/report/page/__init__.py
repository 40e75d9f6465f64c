"""A recording as a page: one HTML file that a browser opens without a network, a server or anything beside it.

A *view* is a tab of the page. In Python it is a function from `Material` to a plain dictionary (None where there is
nothing to show), in `assets/` a script that draws that dictionary. `writing.VIEWS` lists them in order. A comparison
has a page of the same make (`comparison.py`).
"""

from .comparison import comparison_page, save_comparison_page
from .writing import page_text, save_page

__all__ = ["comparison_page", "page_text", "save_comparison_page", "save_page"]
