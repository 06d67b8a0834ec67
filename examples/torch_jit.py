"""A scripted module next to an eager one: what the kernel table knows of torch.jit.

    python examples/torch_jit.py

TorchScript runs its graph without Python, so no marker stands inside it: the layer and the aten ops are known, the
user's calls (torch.relu, ...) are not. The work of these aten ops is counted all the same. On a GPU, TorchScript also
fuses ops into kernels of its own (fused_sigmoid_mul), whose work is unknown: <NA>, never 0.
"""

import warnings

import torch

import pyprof


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.value, self.gate = torch.nn.Linear(128, 256), torch.nn.Linear(128, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.value(x) * torch.sigmoid(self.gate(x))


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    eager = Gate().to(device)
    warnings.filterwarnings("ignore", message=".*torch.jit.*", category=DeprecationWarning)  # torch.jit's own
    scripted = torch.jit.script(eager)
    x = torch.randn(32, 128, device=device)
    for _ in range(3):  # TorchScript optimises its graph in the first calls
        scripted(x)

    with pyprof.profile("jit.json.gz", force=True):
        with pyprof.annotate("eager"):
            eager(x)
        with pyprof.annotate("scripted"):
            scripted(x)

    profile = pyprof.load("jit.json.gz")
    for name in ("eager", "scripted"):
        part = profile.where(f"layer like '{name}*'")
        print(f"{name}: {part.totals.rows} operations, {part.totals.flop:,} FLOP")
        print(part.kernels[["layer", "op", "aten", "flops"]].to_string(index=False), end="\n\n")


if __name__ == "__main__":
    main()
