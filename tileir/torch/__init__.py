"""TileIR kernels as PyTorch operators (docs/torch.md). Needs PyTorch 2.4 or newer, which `pip install tileir[torch]` brings.

import tileir.torch

scale = tileir.torch.register("mine::scale", source)     # also torch.ops.mine.scale
y = scale(x, 2.0)                                        # on the GPU of x; CPU tensors on the simulator
o = tileir.torch.attention(q, k, v, causal=True)         # with a backward pass
"""

from tileir.torch.attention import attention
from tileir.torch.dtypes import elem_of
from tileir.torch.operator import KernelOp, register

__all__ = ["KernelOp", "attention", "elem_of", "register"]
