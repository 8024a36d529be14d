"""tandem's ops as custom ops of PyTorch: torch.ops.tandem, with the schemas of torch.ops.symm_mem."""
from ._groups import close_groups, group_of
from . import _gradients, _ops
