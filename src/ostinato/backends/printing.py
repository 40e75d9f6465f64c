"""Which calls of os_log and printf in kernels print, from the settings and from how the device was opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypedDict

from .. import settings

if TYPE_CHECKING:
    from ..msl import Module

LOG_BYTES = 1 << 20
"""How much the kernels of a submission may print, as records; OSTINATO_LOG_BYTES overrides it."""


class _Options(TypedDict):
    log_level: str | None
    printf: bool


class Printing(NamedTuple):
    """What prints."""

    log_level: str | None
    """The lowest level of os_log that does; None for none."""
    printf: bool

    @property
    def options(self) -> _Options:
        """The options of `Module.translate`."""
        return {"log_level": self.log_level, "printf": self.printf}


SILENT = Printing(None, False)


def chosen(module: Module, debug: bool) -> Printing:
    """What prints in a module that is compiled now; `debug` is whether the device's builds are for debugging.

    Warns once if the module calls printf in a build in which that prints nothing.
    """
    if not module.log_calls:
        return SILENT
    level = settings.text("log_level") or settings.LOG_LEVELS[0]
    if not debug and any(call.site.level == "printf" for call in module.log_calls):
        settings.report_once(
            "printf",
            "printf in kernels prints nothing in this build: set OSTINATO_DEBUG=1 or open the device with debug=True;"
            " os_log_default.log(…) always prints",
        )
    return Printing(None if level == "off" else level, debug)


def log_bytes() -> int:
    """How many bytes of records a submission keeps."""
    return int(settings.text("log_bytes") or LOG_BYTES) // 8 * 8
