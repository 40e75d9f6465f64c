"""Drop-ins for libraries that run Metal kernels only where there is Metal.

`ostinato.interop.mlx` stands in for `mlx.core.fast.metal_kernel`, `ostinato.interop.torch` for
`torch.mps.compile_shader`. Import the one you need: this package imports neither library.
"""
