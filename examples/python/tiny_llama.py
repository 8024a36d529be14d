"""A small Llama whose ranks share each layer, and three ways to multiply and communicate.

Every rank holds a part of each layer's weights (tensor parallelism). Between the products it holds a part of the
sequence (sequence parallelism): a tensor of the residual stream is [S / W, B, hidden]. A layer therefore has two kinds
of products.

    gather_linear   all_gather(x) @ w.t() for several w, which are split by rows: q, k, v and gate, up
    linear_scatter  reduce_scatter(x @ w.t()), where w is split by columns: o and down

Master weights are float32. Products take them as bfloat16, or as float8 with a scale for each row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_gather_tensor_autograd, reduce_scatter_tensor_autograd

import tandem.torch

COMPUTE = torch.bfloat16


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
    """Fused calls that round their operands to float8 for the products of the forward. The backward is as in Fused.

    Scales are made anew in each call: one for each row of x and one for each row of w.
    """

    def gather_linear(self, x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
        # x travels as float8. What the backward takes of it is gathered there, in bfloat16.
        rights = [w.to(COMPUTE).t() for w in weights]
        return tandem.torch.fused_all_gather_quantized_matmul(x, rights, 0, self.group, return_A=False)[1]

    def linear_scatter(self, x: Tensor, weight: Tensor) -> Tensor:
        return tandem.torch.fused_quantized_matmul_reduce_scatter(x, weight.to(COMPUTE).t(), "sum", 0, self.group)


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
