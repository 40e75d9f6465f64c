"""A recording as a page: one HTML file that a browser opens without a network, a server or anything beside it.

A *view* is a tab of the page. In Python it is a function from `Material` to a plain dictionary (None where there is
nothing to show), in `assets/` a script that draws that dictionary. `writing.VIEWS` lists them in order.
"""

from .writing import page_text, save_page

__all__ = ["page_text", "save_page"]
