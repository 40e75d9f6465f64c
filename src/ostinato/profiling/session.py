"""`ostinato.profile`: record what a program submits, then show where the time went.

    with ost.profile() as prof:
        run_the_program()
    print(prof)

A profile records while its block is open, into a file of your choice or a temporary one. Everything committed inside
the block is recorded, by whichever thread; blocks may nest and overlap. Reading the profile waits for the work
committed in it. Nothing else waits: commits stay asynchronous, and dispatches overlap as before.
"""

from __future__ import annotations

import atexit
import os
import weakref
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import counters, settings
from ..backends.protocol import Level
from ..base import host
from ..base.copies import refuse_copy
from ..encode.encoder import capture
from ..errors import ArgumentError, OstinatoError
from ..runtime import tracing
from ..runtime.buffer import allocate
from ..runtime.library import compile_library
from ..runtime.queue import OnQueue, queue_of, settle, settle_at_exit
from ..runtime.tracing import level_named
from . import ceilings
from .recorder import Recorder
from .recording import Recording, Writer, save

if TYPE_CHECKING:
    from .analyse import Summary

_PROBE = """
kernel void sampling_probe(device float *x [[buffer(0)]]) { x[0] = 1.0f; }
"""


class Profile:
    """What was submitted while it was open. Made by `ostinato.profile`."""

    def __init__(self, level: Level, path: str | os.PathLike[str] | None, with_source: bool = False) -> None:
        self._level = level
        self._path = path
        self._with_source = with_source
        self._writer: Writer | None = None
        self._recorder: Recorder | None = None
        self._open = False
        self._before: dict[str, int] = {}
        self._taken: dict[str, int] | None = None
        self._summary: Summary | None = None

    @property
    def recorder(self) -> Recorder | None:
        """The recorder of what is submitted; None before the profile is entered."""
        return self._recorder

    @property
    def level(self) -> str:
        """What is timed: "command_buffers" or "dispatches"."""
        return self._level.name.lower()

    def begin(self) -> Recorder:
        """Opens the recording and returns its recorder. `with` also attaches it to everything that is submitted."""
        if self._writer is not None:
            raise ArgumentError("a profile is entered once; make another with ostinato.profile()")
        asked = settings.get("profile_source")
        self._writer = Writer(self._path)
        self._recorder = Recorder(self._writer, self._level, self._with_source if asked is None else asked is True)
        self._open = True
        self._before = host.counters()
        _unfinished.add(self)
        return self._recorder

    def __enter__(self) -> Profile:
        recorder = self.begin()
        try:
            tracing.attach(recorder)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._recorder is not None
        assert self._writer is not None
        self._open = False
        self._summary = None
        try:
            tracing.detach(self._recorder)
            self._taken = host.since(self._before)
            # Without a file, what is still in flight reports later; leaving the block waits for nothing.
            if self._path is not None or not any(queue.in_flight_count for queue in self._recorder.expected()):
                self.close()
        finally:
            self._writer.relax()

    def close(self) -> None:
        """Wait for what was committed in it, write everything, and end. A profile with a file does so when left."""
        writer = self._entered()
        if not writer.closed:
            self._settle()
            writer.close()
        _unfinished.discard(self)

    def recording(self) -> Recording:
        """What was recorded so far. Waits for what was committed."""
        writer = self._entered()
        if not writer.closed:
            self._settle()
            if not self._open:
                self.close()
        return writer.recording()

    def summary(self, per: str | None = None) -> Summary:
        """Tables, suspects, critical paths and validity checks. Waits for what was committed.

        `per` names the region of the "per …" figures, if not the one with most instances.
        """
        from .analyse import summarise  # loaded when somebody reads the profile, not while it records

        if self._summary is not None and per is None:
            return self._summary
        with self.recording() as recording:
            summary = summarise(recording, per)
        if not self._open and per is None:
            self._summary = summary
        return summary

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was recorded so far to a file."""
        with self.recording() as recording:
            save(recording, path)

    def save_html(self, path: str | os.PathLike[str], *, with_source: bool = True) -> None:
        """Write what was recorded so far as a page for a browser: one file that needs no network.

        It shows the source texts of kernels that are recorded or lie on this machine, unless `with_source` is False.
        """
        from .analyse import columns_of
        from .report.page import save_page

        with self.recording() as recording:
            save_page(columns_of(recording), path, self.summary(), with_source=with_source)

    def to_pandas(self) -> Any:
        """Every dispatch recorded so far as a row of a `pandas.DataFrame`. Needs pandas; waits for what was committed.

        The columns are those of the view `dispatch_report`, described in docs/recording.md.
        """
        with self.recording() as recording:
            return recording.to_pandas()

    def to_polars(self) -> Any:
        """The same as a `polars.DataFrame`. Needs Polars."""
        with self.recording() as recording:
            return recording.to_polars()

    def to_arrow(self) -> Any:
        """The same as a `pyarrow.Table`. Needs PyArrow."""
        with self.recording() as recording:
            return recording.to_arrow()

    def look_first(self) -> str:
        """The closing line of the report: where to look first, and why."""
        from .analyse import look_first

        return look_first(self.summary())

    def _entered(self) -> Writer:
        if self._writer is None:
            raise ArgumentError("nothing was recorded: a profile is entered with `with` before it is read")
        return self._writer

    def _settle(self) -> None:
        """Everything committed has reported, and the devices' ceilings are known."""
        assert self._recorder is not None
        assert self._writer is not None
        given_up = settle(self._recorder.expected())
        risen = self._taken or host.since(self._before)
        self._writer.process_facts(overhead_ns=self._recorder.host_ns, **risen)
        self._recorder.write_conditions()
        if given_up:
            self._writer.drop("work whose wait was given up", given_up)
            return
        for queue, number in self._recorder.take_unmeasured():
            # A device that is lost, closed or full has none to measure; the report says that they are missing.
            with suppress(OstinatoError):
                self._writer.device_facts(number, **ceilings.of(queue).columns())

    def __str__(self) -> str:
        from . import report

        return report.render(self.summary())

    def _repr_html_(self) -> str | None:
        if self._writer is None:
            return None  # a notebook shows the repr instead
        from .analyse import columns_of
        from .report.notebook import embedded

        with self.recording() as recording:
            return embedded(columns_of(recording), self.summary())

    __reduce_ex__ = refuse_copy

    def __repr__(self) -> str:
        state = "not entered" if self._writer is None else "open" if self._open else "closed"
        return f"<Profile of {self.level}, {state}>"


_unfinished: weakref.WeakSet[Profile] = weakref.WeakSet()


def _close_at_exit() -> None:
    # Registered after the writers' own, and so called before them: what is in flight still belongs to its profile.
    if _unfinished:
        settle_at_exit()
    for profile in list(_unfinished):
        with suppress(OstinatoError, KeyboardInterrupt):
            profile.close()


atexit.register(_close_at_exit)


def sampling_found(device: OnQueue) -> tuple[Level, str]:
    """What a device can time, tested with a sample, and a sentence about it. Drivers may claim more than they do."""
    queue = queue_of(device, "sampling_found")
    claimed = queue.backend.capabilities.sampling
    if claimed is Level.OFF:
        return Level.OFF, "times nothing"
    with counters.uncounted():
        library = compile_library(queue, _PROBE)
        buffer = allocate(queue, 1, "float32")
        graph = capture(queue, lambda enc: enc.dispatch(library["sampling_probe"], buffer, threads=1))
        submission = queue.submit(
            graph.command_list,
            lambda started: queue.backend.submit(graph.command_list, started, claimed is Level.DISPATCHES),
            uses=[buffer._allocation().backing],
            keep=graph,
            label="sampling probe",
        )
        submission._wait_until(None)
        times = submission.gpu_time
        assert submission._run is not None
        samples = submission._run.samples() if claimed is Level.DISPATCHES else None
    if times is None or not 0 < times[0] <= times[1]:
        return Level.OFF, "claims to time command buffers, but a sample has no time"
    if claimed is not Level.DISPATCHES:
        return Level.COMMAND_BUFFERS, "times command buffers, not dispatches"
    if samples is None or not 0 < samples[0, 0] <= samples[0, 1]:
        return Level.COMMAND_BUFFERS, "claims to time dispatches, but a sample has no time"
    resolution = queue.backend.capabilities.timer_step_ns
    return Level.DISPATCHES, f"times dispatches, to about {resolution:.0f} ns"


def profile(
    level: str = "dispatches", path: str | os.PathLike[str] | None = None, with_source: bool = False
) -> Profile:
    """A profile, to be entered with `with`.

    `level` is "dispatches", or "command_buffers" for less; `path` names a file to record into, which is written while
    the program runs and can be looked at with `ostinato report`. `with_source` records the source texts of the kernels
    too; without it a recording has their file, line and digest. The setting `OSTINATO_PROFILE_SOURCE` overrides it.
    """
    chosen = level_named(level)
    if chosen is Level.OFF:
        raise ArgumentError("level='off' records nothing; leave the profile out instead")
    return Profile(chosen, path, with_source)
