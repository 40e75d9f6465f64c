"""A Metal kernel on the memory of a torch tensor. Needs torch: pip install torch."""

import numpy as np

import ostinato as ost

SOURCE = """
#include <metal_stdlib>
using namespace metal;

kernel void silu(device float *x [[buffer(0)]], uint id [[thread_position_in_grid]]) {
    x[id] = x[id] / (1.0f + exp(-x[id]));
}
"""


def main() -> None:
    try:
        import torch
    except ImportError:
        print("skipped: this example needs torch (pip install torch)")
        return

    dev = ost.open_device()
    silu = dev.library(SOURCE)["silu"]
    place = "cuda" if dev.capabilities.backend == "cuda" else "cpu"
    tensor = torch.randn(4096, generator=torch.Generator().manual_seed(0)).to(place)
    before = tensor.cpu().numpy().copy()

    x = dev.from_dlpack(tensor)  # the tensor's own memory; on Metal a copy, unless it begins at a page
    enc = dev.command_encoder()
    enc.dispatch(silu, x, threads=x.size)
    enc.commit_and_wait_labeled("silu")

    np.testing.assert_allclose(x.numpy(), before / (1 + np.exp(-before)), rtol=1e-5, atol=1e-6)
    sharing = "in its own memory" if np.array_equal(tensor.cpu().numpy(), x.numpy()) else "in a copy"
    print(f"silu of a torch tensor, {sharing}, on {dev.name!r}: same as NumPy")


if __name__ == "__main__":
    main()
