"""A Metal kernel as an operator of torch, with its gradient, inside torch.compile. Needs torch: pip install torch."""

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void silu(device const float *x, device float *out, uint i [[thread_position_in_grid]]) {
    out[i] = x[i] / (1 + exp(-x[i]));
}

kernel void silu_backward(device const float *grad, device const float *x, device float *out,
                          uint i [[thread_position_in_grid]]) {
    float s = 1 / (1 + exp(-x[i]));
    out[i] = grad[i] * s * (1 + x[i] * (1 - s));
}
"""


def main() -> None:
    try:
        import torch
    except ImportError:
        print("skipped: this example needs torch (pip install torch)")
        return
    from ostinato.interop.torch import compile_shader, custom_op

    lib = compile_shader(SOURCE)  # on a Mac: torch.mps.compile_shader

    @custom_op("example::silu_backward")
    def silu_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        lib.silu_backward(grad, x, out)
        return out

    @custom_op("example::silu", backward=silu_backward)  # it gets what its parameters name
    def silu(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        lib.silu(x, out)
        return out

    place = "cuda" if torch.cuda.is_available() else "cpu"
    # "aot_eager" captures forward and backward as graphs; the default backend compiles what is around the kernels too.
    layer = torch.compile(lambda x: silu(2 * x) + 1, fullgraph=True, backend="aot_eager")
    x = torch.randn(4096, device=place, requires_grad=True)
    y = layer(x)
    y.square().sum().backward()
    gradient, x.grad = x.grad, None

    expected = torch.nn.functional.silu(2 * x) + 1
    expected.square().sum().backward()
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(gradient, x.grad)
    print(f"silu and its gradient under torch.compile, on {place}: same as torch's own")


if __name__ == "__main__":
    main()
