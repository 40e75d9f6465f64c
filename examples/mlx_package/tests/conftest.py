"""Kernels run on Metal where there is Metal, else by Ostinato. This comes before the package is imported."""

import mlx.core as mx

if not mx.metal.is_available():
    from ostinato.interop.mlx import install

    install()
