"""A small Llama whose ranks share each layer, and three ways to multiply and communicate.

Every rank holds a part of each layer's weights (tensor parallelism). Between the products it holds a part of the
sequence (sequence parallelism): a tensor of the residual stream is [S / W, B, hidden]. A layer therefore has two kinds
of products.

    gather_linear   all_gather(x) @ w.t() for several w, which are split by rows: q, k, v and gate, up
    linear_scatter  reduce_scatter(x @ w.t()), where w is split by columns: o and down

Master weights are float32. Every product takes them as bfloat16, or as float8 with a scale for each row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_gather_tensor_autograd, reduce_scatter_tensor_autograd

import tandem.torch

COMPUTE = torch.bfloat16
F8 = torch.float8_e4m3fn


class Products:
    """How a rank computes the products that communicate. Both are collective calls, with gradients."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group

    def gather_linear(self, x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        """all_gather(x) @ w.t() for each w: x is [S / W, B, k], each w [n, k], each result [S, B, n]."""
        raise NotImplementedError

    def linear_scatter(self, x: Tensor, weight: Tensor) -> Tensor:
        """This rank's shard of the sum over ranks of x @ weight.t(): x is [S, B, k], the result [S / W, B, n]."""
        raise NotImplementedError


class Serial(Products):
    """A collective of torch.distributed, then products; or a product, then a collective."""

    def gather_linear(self, x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        whole = all_gather_tensor_autograd(x, 0, self.group)
        return [F.linear(whole, w.to(COMPUTE)) for w in weights]

    def linear_scatter(self, x: Tensor, weight: Tensor) -> Tensor:
        return reduce_scatter_tensor_autograd(F.linear(x, weight.to(COMPUTE)), "sum", 0, self.group)


class Fused(Products):
    """The collective and its products are one call. Autograd makes fused calls in the backward too."""

    def gather_linear(self, x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        rights = [w.to(COMPUTE).t() for w in weights]
        return tandem.torch.fused_all_gather_matmul(x, rights, 0, self.group)[1]

    def linear_scatter(self, x: Tensor, weight: Tensor) -> Tensor:
        return tandem.torch.fused_matmul_reduce_scatter(x, weight.to(COMPUTE).t(), "sum", 0, self.group)


class FusedFloat8(Products):
    """Fused calls, in float8 in the forward and in bfloat16 in the backward."""

    def gather_linear(self, x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        return list(_GatherLinearFloat8.apply(self.group, x, *(w.to(COMPUTE) for w in weights)))

    def linear_scatter(self, x: Tensor, weight: Tensor) -> Tensor:
        return _LinearScatterFloat8.apply(self.group, x, weight.to(COMPUTE))


def rowwise_float8(x: Tensor) -> tuple[Tensor, Tensor]:
    """x as float8, and the factor [..., 1] of each row that gives x again. The largest value of a row becomes 448."""
    x = x.float()
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-12) / torch.finfo(F8).max
    return (x / scale).to(F8), scale


class _GatherLinearFloat8(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: dist.ProcessGroup, x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.group = group
        ctx.save_for_backward(x, *weights)
        x8, x_scale = rowwise_float8(x)
        w8s, w_scales = zip(*map(rowwise_float8, weights))
        rights, right_scales = [w.t() for w in w8s], [scale.t() for scale in w_scales]
        none, types, exact = [None] * len(weights), [COMPUTE] * len(weights), [False] * len(weights)
        _, outs = tandem.torch.fused_all_gather_scaled_matmul(
            x8, rights, x_scale, right_scales, 0, group, none, none, types, exact
        )
        return tuple(outs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        grad_x, _ = tandem.torch.fused_matmuls_reduce_scatter(grads, weights, "sum", 0, ctx.group)
        whole = torch.ops.tandem.all_gather(x, 0, ctx.group.group_name).flatten(0, 1)
        return None, grad_x, *(grad.flatten(0, 1).t() @ whole for grad in grads)


class _LinearScatterFloat8(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: dist.ProcessGroup, x: Tensor, weight: Tensor) -> Tensor:
        ctx.group = group
        ctx.save_for_backward(x, weight)
        (x8, x_scale), (w8, w_scale) = rowwise_float8(x), rowwise_float8(weight)
        return tandem.torch.fused_scaled_matmul_reduce_scatter(
            x8, w8.t(), x_scale, w_scale.t(), "sum", 0, 0, group, None, out_dtype=COMPUTE
        )

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        whole, (grad_x,) = tandem.torch.fused_all_gather_matmul(grad, [weight], 0, ctx.group)
        return None, grad_x, whole.flatten(0, 1).t() @ x.flatten(0, 1)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of the model. The number of ranks divides `heads`, `kv_heads` and `intermediate`."""

    vocabulary: int = 256
    hidden: int = 128
    layers: int = 2
    heads: int = 8
    kv_heads: int = 4
    intermediate: int = 384

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads


class Weights:
    """Makes weights that are the same for every number of ranks, and keeps this rank's part of each."""

    def __init__(self, seed: int, rank: int, world: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.rank, self.world = rank, world

    def __call__(self, rows: int, columns: int, split: int | None = None) -> nn.Parameter:
        whole = torch.randn(rows, columns, generator=self.generator) * columns**-0.5
        part = whole if split is None else whole.chunk(self.world, split)[self.rank]
        return nn.Parameter(part.contiguous())


def rotated(x: Tensor, turns: Tensor) -> Tensor:
    """Rotary embedding of x [S, B, heads, size]. `turns`, [2, S, 1, 1, size / 2], has cos and sin of the angles."""
    cos, sin = turns
    one, other = x.float().chunk(2, -1)
    return torch.cat((one * cos - other * sin, other * cos + one * sin), -1).to(x.dtype)


class Block(nn.Module):
    """One layer of Llama on one rank: attention with this rank's heads, then its part of the SwiGLU."""

    def __init__(self, sizes: Sizes, products: Products, weights: Weights) -> None:
        super().__init__()
        self.sizes, self.products = sizes, products
        hidden, kv = sizes.hidden, sizes.kv_heads * sizes.head_size
        self.attention_norm = nn.Parameter(torch.ones(hidden))
        self.q, self.k, self.v = weights(hidden, hidden, 0), weights(kv, hidden, 0), weights(kv, hidden, 0)
        self.o = weights(hidden, hidden, 1)
        self.mlp_norm = nn.Parameter(torch.ones(hidden))
        self.gate, self.up = weights(sizes.intermediate, hidden, 0), weights(sizes.intermediate, hidden, 0)
        self.down = weights(hidden, sizes.intermediate, 1)

    def attention(self, x: Tensor, turns: Tensor) -> Tensor:
        qkv = self.products.gather_linear(x, [self.q, self.k, self.v])
        q, k, v = (each.unflatten(-1, (-1, self.sizes.head_size)) for each in qkv)  # [S, B, heads, size]
        q, k, v = (each.permute(1, 2, 0, 3) for each in (rotated(q, turns), rotated(k, turns), v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.products.linear_scatter(mixed.permute(2, 0, 1, 3).flatten(2), self.o)

    def mlp(self, x: Tensor) -> Tensor:
        gate, up = self.products.gather_linear(x, [self.gate, self.up])
        return self.products.linear_scatter(F.silu(gate) * up, self.down)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        x = x + self.attention(norm(x, self.attention_norm), turns)
        return x + self.mlp(norm(x, self.mlp_norm))


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, weight.shape, weight.to(x.dtype), 1e-5)


class Llama(nn.Module):
    """The model on one rank. Every rank is given all tokens and returns the loss of its part of the sequence.

    Embedding, norms and head are whole on every rank, which applies them to its part of the sequence. Their gradients
    have to be summed over the ranks: see `replicated()`.
    """

    turns: Tensor

    def __init__(self, sizes: Sizes, products: Products, group: dist.ProcessGroup, length: int, seed: int) -> None:
        super().__init__()
        self.rank, self.world = group.rank(), group.size()
        weights = Weights(seed, self.rank, self.world)
        self.embedding = weights(sizes.vocabulary, sizes.hidden)
        self.blocks = nn.ModuleList(Block(sizes, products, weights) for _ in range(sizes.layers))
        self.norm = nn.Parameter(torch.ones(sizes.hidden))
        self.head = weights(sizes.vocabulary, sizes.hidden)
        speeds = 10000.0 ** -torch.linspace(0, 1, sizes.head_size // 2 + 1)[:-1]
        angles = torch.outer(torch.arange(length), speeds)[:, None, None]
        self.register_buffer("turns", torch.stack((angles.cos(), angles.sin())))

    def replicated(self) -> list[nn.Parameter]:
        """The parameters that every rank has whole."""
        norms = [weight for block in self.blocks for weight in (block.attention_norm, block.mlp_norm)]
        return [self.embedding, *norms, self.norm, self.head]

    def forward(self, tokens: Tensor) -> Tensor:
        """The loss of predicting tokens[1:]: this rank's summand of the mean. `tokens` is [S + 1, B]."""
        mine, targets = (each.chunk(self.world)[self.rank] for each in (tokens[:-1], tokens[1:]))
        x = F.embedding(mine, self.embedding).to(COMPUTE)
        for block in self.blocks:
            x = block(x, self.turns)
        logits = F.linear(norm(x, self.norm), self.head.to(COMPUTE)).float()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()) / self.world
