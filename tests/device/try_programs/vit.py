"""torchvision's ViT-B/16, inference in fp32."""

import contextlib

import torch
import torchvision
from clock import HAND, STEPS, WARM, Clock, begin, turn

begin()
model = torchvision.models.vit_b_16()
turn()
model = model.cuda().eval()
images = torch.randn(32, 3, 224, 224).cuda()
if "compile" in HAND:
    model = torch.compile(model)
clock = Clock()
with torch.no_grad():
    if "cuda_graph" in HAND:
        model = torch.cuda.make_graphed_callables(model, (images,))
    for _ in range(WARM + STEPS + 2):
        with torch.autocast("cuda", dtype=torch.bfloat16) if "amp" in HAND else contextlib.nullcontext():
            scores = model(images)
        clock.step()
print("first score", f"{scores[0, 0].item():.2f}")
clock.end()
