"""What `install(pretend_metal=True)` changes in MLX beside `metal_kernel`: its answers about the GPU.

Packages ask whether there is Metal, and whether the GPU is the default device, before they make a kernel. With this,
MLX answers as on a Mac: Metal is available, the GPU is the default device until `mx.set_default_device` or `mx.stream`
says otherwise, and streams of the GPU can be made. They are streams of the CPU, where all work is done. A function that
`mx.compile` compiled and that calls a kernel runs uncompiled. Operations of MLX with `stream=mx.gpu` still raise: only
kernels accept it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from .installing import Replacement
from .mlx_tracing import KernelWhileTracing


def is_gpu(core: Any, where: Any) -> bool:
    """Whether a stream, a device or a kind of device is that of a GPU, or of one that MLX pretends to have."""
    if isinstance(where, core.Stream) and where in _streams:
        return True
    device = getattr(where, "device", where)
    return bool(getattr(device, "type", device) == core.gpu)


_ASKED = ("is_available", "new_stream", "default_stream", "stream", "compile")

_streams: list[Any] = []
"""Streams of the CPU that were asked for as streams of the GPU."""


class _Answers:
    """MLX's functions about devices, with a GPU that is the CPU."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self._original = {name: getattr(core, name) for name in _ASKED}
        self._default = core.Device(core.gpu)
        self._of_thread = threading.local()  # a stream belongs to the thread that made it

    def is_available(self, device: Any) -> bool:
        return is_gpu(self._core, device) or self._original["is_available"](device)

    def default_device(self) -> Any:
        return self._default

    def set_default_device(self, device: Any) -> None:
        self._default = self._core.Device(self._core.gpu if is_gpu(self._core, device) else self._core.cpu)

    def device_info(self, _device: Any = None) -> dict[str, str | int]:
        return {"architecture": "ostinato_cpu", "device_name": "Ostinato", "max_recommended_working_set_size": 1 << 33}

    def new_stream(self, device: Any) -> Any:
        stream = self._original["new_stream"](self._core.cpu)
        if is_gpu(self._core, device):
            _streams.append(stream)
        return stream

    def default_stream(self, device: Any) -> Any:
        if not is_gpu(self._core, device):
            return self._original["default_stream"](device)
        if not hasattr(self._of_thread, "stream"):
            self._of_thread.stream = self.new_stream(device)
        return self._of_thread.stream

    @contextmanager
    def stream(self, where: Any) -> Iterator[Any]:
        before, gpu = self._default, is_gpu(self._core, where)
        self.set_default_device(where)
        try:
            with self._original["stream"](self._core.cpu if gpu and where not in _streams else where) as entered:
                yield entered
        finally:
            self._default = before

    def compile(self, fun: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[..., Any]:
        compiled = self._original["compile"](fun, *arguments, **options)
        captured = [*arguments[:2], *(options[name] for name in ("inputs", "outputs") if name in options)]
        is_eager = False

        @wraps(fun)
        def call(*given: Any, **named: Any) -> Any:
            nonlocal is_eager
            if not is_eager:
                before = list(_leaves(captured))
                try:
                    return compiled(*given, **named)
                except KernelWhileTracing:
                    is_eager = True
                    for container, key, value in before:  # the broken trace left its own arrays in them
                        container[key] = value
            return fun(*given, **named)

        return call


def _leaves(tree: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Every place in nested lists and dicts that holds something else, with what it holds."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(value, dict | list):
            yield from _leaves(value)
        elif not isinstance(tree, tuple):
            yield tree, key, value


def replacements(core: Any) -> list[Replacement]:
    """The attributes of MLX that a pretended GPU needs."""
    answers = _Answers(core)
    names = (*_ASKED, "default_device", "set_default_device", "device_info")
    return [
        (core.metal, "is_available", lambda: True),
        (core.metal, "device_info", answers.device_info),
        *((core, name, getattr(answers, name)) for name in names),
    ]
