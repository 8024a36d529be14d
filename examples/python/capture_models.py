"""Captures a parallel model for `tandem graph`, in one process: capture_models.py [--data-parallel N] MODEL

docs/guide/graph.md says what to do with the files, MODEL.0_forward.json and MODEL.0_backward.json. The models are small,
so that a laptop runs what is fused. Their structure is that of large ones.
"""

import argparse
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

import tandem.torch

RANKS = 4
BATCH, LENGTH, WIDTH, HEADS = 2, 32, 64, 8


def heads_of(x):
    """[batch, length, heads * n] as [batch, heads, length, n]. There are as many heads as this rank has."""
    return x.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)


class LlamaBlock(nn.Module):
    """RMS norms, attention with a causal mask, and a gated feed-forward."""

    def __init__(self):
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        normed = self.attention_norm(x)
        q, k, v = (heads_of(each(normed)) for each in (self.q, self.k, self.v))
        future = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).masked_fill(future, float("-inf"))
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))
        normed = self.feed_forward_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Gpt2Block(nn.Module):
    """Layer norms, biases, and one product for q, k and v."""

    def __init__(self):
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        # The weights of a head's q, k and v are beside each other, so a rank has whole heads.
        q, k, v = heads_of(self.qkv(self.attention_norm(x))).unflatten(1, (-1, 3)).unbind(2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.feed_forward_norm(x)), approximate="tanh"))


class VitBlock(nn.Module):
    """Attention without a mask over patches and a class token, whose number no rank divides."""

    def __init__(self):
        super().__init__()
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        normed = self.attention_norm(x)
        q, k, v = (heads_of(each(normed)) for each in (self.q, self.k, self.v))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.feed_forward_norm(x))))


def sequence_parallel(block, mesh, gathered, scattered):
    """Between layers, activations are sharded along the sequence: gathered before layers, and scattered behind them."""
    plan = {name: SequenceParallel(use_local_output=True) for name in ("attention_norm", "feed_forward_norm")}
    plan |= {name: ColwiseParallel(input_layouts=Shard(1)) for name in gathered}
    plan |= {name: RowwiseParallel(output_layouts=Shard(1)) for name in scattered}
    return parallelize_module(block, mesh, plan), torch.randn(BATCH, LENGTH // RANKS, WIDTH)


def llama(mesh):
    return sequence_parallel(LlamaBlock(), mesh, ("q", "k", "v", "gate", "up"), ("out", "down"))


def gpt2(mesh):
    return sequence_parallel(Gpt2Block(), mesh, ("qkv", "up"), ("out", "down"))


def vit(mesh):
    """Between layers, activations are whole on each rank: a sum over the ranks behind each layer."""
    plan = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    plan |= {name: RowwiseParallel() for name in ("out", "down")}
    return parallelize_module(VitBlock(), mesh, plan), torch.randn(BATCH, LENGTH + 1, WIDTH)


def hugging_face(mesh):
    """A model with a `tp_plan` of its own, loaded as a downloaded one is."""
    from transformers import DistributedConfig, LlamaConfig, LlamaModel

    sizes = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "vocab_size": 128}
    config = LlamaConfig(num_hidden_layers=1, num_attention_heads=HEADS, num_key_value_heads=HEADS, **sizes)
    with tempfile.TemporaryDirectory() as folder:
        LlamaModel(config).save_pretrained(folder)
        model = LlamaModel.from_pretrained(folder, distributed_config=DistributedConfig(tp_size=mesh.size()))

    def last_hidden_state(x):
        return model(inputs_embeds=x, use_cache=False).last_hidden_state

    return last_hidden_state, torch.randn(BATCH, LENGTH, WIDTH)


MODELS = {made.__name__: made for made in (llama, gpt2, vit, hugging_face)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--data-parallel", type=int, default=1, metavar="N", help="ranks that share the batches")
    given = parser.parse_args()
    # A fake process group: none of the other ranks is there.
    shape = (given.data_parallel, RANKS)
    dist.init_process_group("fake", rank=0, world_size=shape[0] * shape[1], store=FakeStore())
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp"))
    model, x = MODELS[given.model](mesh["tp"])
    with tandem.torch.capture_graphs(given.model) as files:
        torch.compile(model)(x.requires_grad_()).sum().backward()
    print(*files)


if __name__ == "__main__":
    main()
