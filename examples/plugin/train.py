"""An op that no model counts, counted by one of your own: from a file, or from an installed package.

cd examples/plugin
python train.py                                                     FLOPs unknown
pyprof prof --group op --models scaled_add/flops.py plugin.json.gz  the file, for this command
pip install . && python train.py                                    the plug-in, for every command and pyprof.load
"""

import torch
from scaled_add import scaled_add

import pyprof


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a, b = torch.randn(256, 1024, device=device), torch.randn(256, 1024, device=device)
    scaled_add(a, b, 0.5)  # a first call, in which a kernel is compiled

    with pyprof.profile("plugin.json.gz", force=True):
        scaled_add(a, b, 0.5)

    profile = pyprof.load("plugin.json.gz")
    print(profile.kernels[["op", "aten", "params", "flops", "bytes"]].to_string(index=False))
    print("FLOPs:", "unknown" if profile.totals.flop is None else f"{profile.totals.flop:,}")


if __name__ == "__main__":
    main()
