# tests/golden/h200_graph_init.sqlite.gz holds this file's line numbers: who changes a line records it again.
import torch, torch.nn as nn, torch.nn.functional as F, pyprof
import triton, triton.language as tl

@triton.jit
def double_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

def double(x):
    y = torch.empty_like(x)
    double_kernel[(x.numel() // 256,)](x, y, x.numel(), BLOCK=256)
    return y

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return double(x)
    @staticmethod
    def backward(ctx, g): return double(g)

class Net(nn.Module):
    def __init__(s):
        super().__init__(); s.a = nn.Linear(512, 512); s.b = nn.Linear(512, 512)
    def forward(s, x): return Double.apply(F.gelu(s.b(F.relu(s.a(x)))))

import __main__
pyprof.init(trace=True)
pyprof.wrap(__main__, "double")
net = Net().cuda()
x = torch.randn(256, 512, device="cuda", requires_grad=True)
for _ in range(3): net(x).sum().backward()
s = torch.cuda.Stream()
with torch.autograd.profiler.emit_nvtx(record_shapes=True):
    pyprof.start()
    net.zero_grad(); net(x).sum().backward()
    with torch.no_grad():
        g = torch.cuda.CUDAGraph()
        static = x.detach().clone()
        with torch.cuda.graph(g):
            out = net(static)
    for _ in range(2): g.replay()
    torch.cuda.synchronize()
    pyprof.stop()
