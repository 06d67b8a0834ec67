"""A model before and after torch.compile: its operations, and the bytes that they move.

    python examples/torch_compile.py

On a GPU the compiler's own kernels (triton_...) are rows, whose FLOPs and bytes are counted from what they fuse. On a
CPU the profiler records only what the compiled code calls, the matrix products. Needs a C++ compiler there.
Both captures stay: `pyprof diff eager.json.gz compiled.json.gz` compares them further.
"""

import torch
import torch.nn.functional as F

import pyprof


class MLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)) * 2)


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    eager = MLP().to(device)
    compiled = torch.compile(eager)
    x = torch.randn(64, 256, device=device)

    pyprof.init()  # before the first call: a session that begins later makes PyTorch compile again
    compiled(x).sum().backward()  # compiles; not collected

    for name, model in (("eager", eager), ("compiled", compiled)):
        model.zero_grad()
        with pyprof.profile(f"{name}.json.gz", force=True):
            model(x).sum().backward()
        profile = pyprof.load(f"{name}.json.gz")
        print(f"{name}: {profile.totals.rows} operations, {profile.totals.nbytes / 1e6:.1f} MB")
        print(profile.kernels[["op", "dir", "aten", "flops", "bytes"]].to_string(index=False), end="\n\n")


if __name__ == "__main__":
    main()
