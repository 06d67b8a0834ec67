"""Changes in code in their general form: names are placeholders. What the plan changed before is in the code before."""

import textwrap
from typing import NamedTuple

TRAINING, INFERENCE = "training", "inference"  # loops
# Rules whose code stands where the program makes or calls its model, whichever line the kernels' op is at.
AT_MODEL = frozenset(
    """
    allocator alignment amp attention_backend channels_last compile cuda_graph data_loader fp8 inference_mode
    kept_activations optimizer pageable_copy parameter_loop tf32 unused_gradients weight_casts zero_grad
    """.split()
)


class GeneralForm(NamedTuple):
    """A change in code for a rule's changes that have these words; the first form that fits counts."""

    rule: str
    words: str  # empty: any
    before: str
    after: str
    loop: str = ""  # the program's loop that it is written for; empty: any
    framework: str = ""  # whose setting it is; empty: none's
    called: tuple[str, ...] = ()  # the library's line must be in a file that begins so; empty: any or none

    def fits(self, rule: str, change: str, loop: str, library: str = "") -> bool:
        """``loop``: the program's; empty: unknown, and any will do. ``library``: the library's line."""
        placed = not self.called or library.startswith(self.called)
        return self.rule == rule and self.words in change and placed and (not self.loop or loop in ("", self.loop))


_STEP = "optimizer.zero_grad()\nloss = criterion(model(x), target)\nloss.backward()\noptimizer.step()"
# The whole step: the graph's rows include the optimizer.
_GRAPHED = (
    f"def step():\n{textwrap.indent(_STEP, '    ')}  # Adam and AdamW: with capturable=True\n    return loss\n\n"
    "stream = torch.cuda.Stream()\nstream.wait_stream(torch.cuda.current_stream())\n"
    "with torch.cuda.stream(stream):\n    for _ in range(3):\n        step()  # these steps train, too\n"
    "torch.cuda.current_stream().wait_stream(stream)\ngraph = torch.cuda.CUDAGraph()\n"
    "with torch.cuda.graph(graph):\n    loss = step()\n\n"
    "x.copy_(next_x)  # for each batch, into the tensors that the graph reads\n"
    "target.copy_(next_target)\ngraph.replay()"
)
_QUANTIZE = "from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, quantize_\n\n"
GENERAL = tuple(GeneralForm(*form) for form in (
    ("tf32", "", "",
     'torch.set_float32_matmul_precision("high")  # at the start: products\n'
     "torch.backends.cudnn.allow_tf32 = True  # convolutions"),
    ("amp", "dtype=torch.bfloat16", "loss = criterion(model(x), target)\nloss.backward()",
     'with torch.autocast("cuda", dtype=torch.bfloat16):\n'
     "    loss = criterion(model(x), target)\nloss.backward()", TRAINING),
    ("amp", "dtype=torch.bfloat16", "out = model(x)",
     'with torch.autocast("cuda", dtype=torch.bfloat16):\n    out = model(x)', INFERENCE),
    ("amp", "dtype=torch.float16", "out = model(x)",
     'with torch.autocast("cuda", dtype=torch.float16):\n    out = model(x)', INFERENCE),
    ("amp", "dtype=torch.float16",
     "loss = criterion(model(x), target)\nloss.backward()\noptimizer.step()",
     'scaler = torch.amp.GradScaler("cuda")  # once\nwith torch.autocast("cuda", dtype=torch.float16):\n'
     "    loss = criterion(model(x), target)\nscaler.scale(loss).backward()\nscaler.step(optimizer)\n"
     "scaler.update()", TRAINING),
    ("attention", "Use fused attention",
     "scores = q @ k.transpose(-2, -1) * scale\nif mask is not None:\n    scores = scores + mask\n"
     "out = dropout(scores.softmax(-1)) @ v",
     "p = dropout.p if model.training else 0.0\n"
     "out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p, scale=scale)\n"
     "# is_causal=True in place of a causal mask"),
    ("attention_backend", "Allow FlashAttention", "out = F.scaled_dot_product_attention(q, k, v)",
     "with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]):  # of torch.nn.attention\n"
     "    out = F.scaled_dot_product_attention(q, k, v)"),
    ("attention_backend", "Let cuDNN run", "out = F.scaled_dot_product_attention(q, k, v)",
     "with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):  # of torch.nn.attention\n"
     "    out = F.scaled_dot_product_attention(q, k, v)"),
    ("optimizer", "Use the fused optimizer: torch.optim.Adam",
     "optimizer = torch.optim.AdamW(model.parameters(), lr=lr)",
     "optimizer = torch.optim.AdamW(model.parameters(), lr=lr, fused=True)"),
    ("optimizer", "Use the fused optimizer: torch.optim.SGD", "optimizer = torch.optim.SGD(model.parameters(), lr=lr)",
     "optimizer = torch.optim.SGD(model.parameters(), lr=lr, fused=True)"),
    ("fusion", 'Call F.gelu(x, approximate="tanh")',
     "y = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))",
     'y = F.gelu(x, approximate="tanh")'),
    ("fusion", "Call F.rms_norm", "y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight",
     "y = F.rms_norm(x, (x.shape[-1],), weight, eps)"),
    ("fusion", "Call F.silu", "y = x * torch.sigmoid(x)", "y = F.silu(x)"),
    ("copy_to_host", "", "labels = scores.softmax(1).cpu().argmax(1)", "labels = scores.argmax(1).cpu()"),
    ("unused_gradients", "", "teacher = Teacher().eval()\nwanted = teacher(x)",
     "teacher = Teacher().eval().requires_grad_(False)\nwith torch.no_grad():\n    wanted = teacher(x)"),
    ("kept_activations", "", "x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)", "x = layer(x)"),
    ("fusion", "Fuse the element-wise kernels", "def activation(x):\n    ...  # the element-wise ops",
     "@torch.compile\ndef activation(x):\n    ...  # the element-wise ops, unchanged"),
    ("cross_entropy", "", "loss = F.cross_entropy(logits.float(), target)",
     "@torch.compile\ndef loss_of(logits, target):\n    return F.cross_entropy(logits.float(), target)\n\n"
     "loss = loss_of(logits, target)"),
    ("zero_grad", "", "optimizer.zero_grad(set_to_none=False)", "optimizer.zero_grad()"),
    ("channels_last", "Use channels last 3d", "model = model.cuda()\nvolumes = volumes.cuda()",
     "model = model.cuda().to(memory_format=torch.channels_last_3d)\n"
     "volumes = volumes.cuda().to(memory_format=torch.channels_last_3d)"),
    ("channels_last", "Use channels last", "model = model.cuda()\nimages = images.cuda()",
     "model = model.cuda().to(memory_format=torch.channels_last)\n"
     "images = images.cuda().to(memory_format=torch.channels_last)"),
    ("conv_bias", "", "nn.Sequential(nn.Conv2d(a, b, 3), nn.BatchNorm2d(b))",
     "nn.Sequential(nn.Conv2d(a, b, 3, bias=False), nn.BatchNorm2d(b))"),
    ("weight_casts", "", 'with torch.autocast("cuda", dtype=torch.bfloat16):\n    out = model(x)',
     "model = model.to(torch.bfloat16)  # once\nout = model(x.to(torch.bfloat16))", INFERENCE),
    ("sparse_grad", "", "table = nn.Embedding(rows, size)\noptimizer = torch.optim.Adam(model.parameters(), lr=lr)",
     "table = nn.Embedding(rows, size, sparse=True)\n"
     "sparse = torch.optim.SparseAdam(list(table.parameters()), lr=lr)\n"
     "optimizer = torch.optim.Adam([p for p in model.parameters() if p is not table.weight], lr=lr)"),
    ("select_in_loop", "x.split", "for a in range(0, x.size(1), n):\n    h = step(x[:, a : a + n], h)",
     "for part in x.split(n, 1):\n    h = step(part, h)"),
    ("select_in_loop", "", "for i in range(x.size(1)):\n    h = step(x[:, i], h)",
     "for part in x.unbind(1):\n    h = step(part, h)"),
    ("item", "Do not read values", "total += loss.item()",
     "total += loss.detach()  # stays on the GPU\nif step % 100 == 0:\n    print(total.item())", TRAINING),
    ("item", "Do not read values", "values.append(scores.max().item())",
     "values.append(scores.max())  # stays on the GPU\nfound = torch.stack(values).tolist()  # after the last batch",
     INFERENCE),
    ("size_sync", "Do not wait for small copies", "values = tensor.cpu()  # the host waits for the GPU",
     "values.copy_(tensor, non_blocking=True)  # values: pinned, read a step later"),
    ("size_sync", "", "loss = values[mask].mean()  # the host waits to learn how many there are",
     "loss = torch.where(mask, values, 0).sum() / mask.sum()", TRAINING),
    ("size_sync", "", "score = values[mask].mean()  # the host waits to learn how many there are",
     "score = torch.where(mask, values, 0).sum() / mask.sum()", INFERENCE),
    ("pageable_copy", "Make small tensors on the GPU", "size = torch.tensor([h, w]).to(device)  # for each picture",
     "sizes = torch.tensor(all_sizes).pin_memory().to(device, non_blocking=True)  # once for all pictures"),
    ("pageable_copy", "", "loader = DataLoader(data, batch_size=n)\nx = x.to(device)",
     "loader = DataLoader(data, batch_size=n, pin_memory=True)\nx = x.to(device, non_blocking=True)"),
    ("repeats", "torch.cat", "outs = [model(part) for part in parts]",
     "outs = model(torch.cat(parts)).chunk(len(parts))  # with weights of each part's own: torch.vmap"),
    ("repeats", "torch.bmm (or", "outs = [a @ b for a, b in zip(lefts, rights)]",
     "outs = torch.bmm(torch.stack(lefts), torch.stack(rights))"),
    ("repeats", "", "for part in batch.chunk(4):\n    (loss_of(model(part)) / 4).backward()\noptimizer.step()",
     "loss_of(model(batch)).backward()  # as many samples at once as fit\noptimizer.step()"),
    ("data_loader", "Load data in the background", "loader = DataLoader(data, batch_size=n)",
     "loader = DataLoader(data, batch_size=n, num_workers=8, persistent_workers=True, pin_memory=True)"),
    ("allocator", "Leave memory to", "torch.cuda.empty_cache()  # within the step", ""),
    ("parameter_loop", "Clip gradients",
     "for p in model.parameters():\n    norms.append(p.grad.norm())  # and p.grad.mul_(...)",
     "torch.nn.utils.clip_grad_norm_(model.parameters(), limit, foreach=True)"),
    ("parameter_loop", "Update all parameters", "for p in params:\n    p.add_(p.grad, alpha=-lr)",
     "torch._foreach_add_(params, [p.grad for p in params], alpha=-lr)"),
    ("parameter_loop", "Leave the sum of squares",
     "for p in params:\n    loss = loss + 0.5 * c * p.pow(2).sum()\noptimizer = torch.optim.SGD(params, lr=lr)",
     "optimizer = torch.optim.SGD(params, lr=lr, weight_decay=c)"),
    ("cuda_graph", "Launch the step as a CUDA graph: call torch.compile", "model = torch.compile(model)",
     'model = torch.compile(model, mode="reduce-overhead")'),
    ("cuda_graph", "", "out = model(x)",
     "model = torch.cuda.make_graphed_callables(model, (x,))  # once\nout = model(x)", INFERENCE),
    ("cuda_graph", "", _STEP, _GRAPHED, TRAINING),
    ("alignment", "Pad the vocabulary",
     "embedding = nn.Embedding(vocabulary, size)\nhead = nn.Linear(size, vocabulary)",
     "# A multiple of 8 for types of two bytes, of 4 for four. No target refers to the added rows.\n"
     "rows = vocabulary + -vocabulary % 8\n"
     "embedding = nn.Embedding(rows, size)\nhead = nn.Linear(size, rows)"),
    ("compile", "Compile the whole model. In place of its graph",
     "model = torch.cuda.make_graphed_callables(model, (x,))",
     'model = torch.compile(model, mode="reduce-overhead")', INFERENCE),
    ("compile", "Compile the whole model. In place of its graph", "graph.replay()",
     f'model = torch.compile(model, mode="reduce-overhead")  # once, without the graph\n{_STEP}', TRAINING),
    ("compile", "Compile the whole model. Call", "out = model(x)",
     "model = torch.compile(model)  # once, before the loop\nout = model(x)"),
    ("fp8", "Do so before torch.compile(model)", "",
     "from torchao.float8 import convert_to_float8_training\n\n"
     "convert_to_float8_training(model)  # once, before torch.compile", TRAINING),
    ("fp8", "Do so before torch.compile(model)", "",
     f"{_QUANTIZE}quantize_(model, Float8DynamicActivationFloat8WeightConfig())  # once, before torch.compile",
     INFERENCE),
    ("fp8", "Run large linear layers in FP8", "out = model(x)",
     "from torchao.float8 import convert_to_float8_training\n\n"
     "convert_to_float8_training(model)  # once\nmodel = torch.compile(model)\nout = model(x)", TRAINING),
    ("fp8", "Run large linear layers in FP8", "out = model(x)",
     f"{_QUANTIZE}quantize_(model, Float8DynamicActivationFloat8WeightConfig())  # once\n"
     "model = torch.compile(model)\nout = model(x)", INFERENCE),
    ("cell_loop", "Replace the loop over time by one call of nn.LSTM",
     "for part in x:  # of one time\n    h, c = cell(part, (h, c))\n    outs.append(h)",
     "lstm = nn.LSTM(cell.input_size, cell.hidden_size)  # once, with the cell's weights\n"
     "outs, (h, c) = lstm(x, (h[None], c[None]))"),
    ("cell_loop", "Replace the loop over time by one call of nn.GRU",
     "for part in x:  # of one time\n    h = cell(part, h)\n    outs.append(h)",
     "gru = nn.GRU(cell.input_size, cell.hidden_size)  # once, with the cell's weights\n"
     "outs, h = gru(x, h[None])"),
    ("cell_loop", "Replace the ops of each time step by one call of nn.GRU",
     "for part in x:  # of one time\n    a, b = given(part).chunk(3, -1), back(h).chunk(3, -1)\n"
     "    reset, update = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])\n"
     "    h = (1 - update) * torch.tanh(a[2] + reset * b[2]) + update * h\n    outs.append(h)",
     "gru = nn.GRU(given.in_features, back.in_features)  # once, with weights and biases of given and back\n"
     "outs, h = gru(x, h[None])"),
    ("cell_loop", "Replace the ops of each time step by one call of nn.LSTM",
     "for part in x:  # of one time\n    i, f, g, o = (given(part) + back(h)).chunk(4, -1)\n"
     "    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)\n"
     "    h = torch.sigmoid(o) * torch.tanh(c)\n    outs.append(h)",
     "lstm = nn.LSTM(given.in_features, back.in_features)  # once, with weights and biases of given and back\n"
     "outs, (h, c) = lstm(x, (h[None], c[None]))"),
    ("mask_loop", "Replace the loop over masks: take all iterations",
     "for one, mask in zip(batch, masks):  # each of its own size\n"
     "    loss = loss + error(one[mask]).sum() / mask.sum()",
     "loss = (error(batch) * masks).sum(1).div(masks.sum(1)).sum()  # padded", TRAINING),
    ("mask_loop", "Replace the loop over masks: take all iterations",
     "for one, mask in zip(batch, masks):  # each of its own size\n"
     "    means.append(score(one[mask]).sum() / mask.sum())",
     "means = (score(batch) * masks).sum(1).div(masks.sum(1))  # padded", INFERENCE),
    ("mask_loop", "",
     "for number, weight in enumerate(weights):\n    chosen = (label == number).nonzero().squeeze(1)\n"
     "    out[chosen] += x[chosen] @ weight",
     "order = label.argsort()\nnumbers = torch.arange(len(weights), device=label.device)\n"
     "ends = torch.searchsorted(label[order], numbers, right=True).to(torch.int32)\n"
     "out.index_add_(0, order, F.grouped_mm(x[order], torch.stack(weights), offs=ends))"),
    ("static_cache", "Allocate the cache once", "cache = torch.cat([cache, new], dim=1)",
     "cache = new.new_zeros(new.size(0), longest, *new.shape[2:])  # once\ncache.index_copy_(1, position, new)"),
    ("sibling_layers", "Make one layer", "q, k, v = self.q(x), self.k(x), self.v(x)",
     "self.qkv = nn.Linear(width, 3 * width)  # once\nq, k, v = self.qkv(x).chunk(3, dim=-1)"),
    ("sibling_layers", "Put tables", "parts = [table(one) for table, one in zip(self.tables, ids)]",
     "self.table = nn.Embedding(sum(rows), width)  # once; first: torch.tensor([0, *rows[:-1]]).cumsum(0)\n"
     "parts = self.table(ids + self.first[:, None])"),
    ("part_graph", "", "for moment in range(count):\n    act()  # reads and writes the same tensors each time",
     "graph = torch.cuda.CUDAGraph()  # once, after a few calls of act() on a side stream\n"
     "with torch.cuda.graph(graph):\n    act()\nfor moment in range(count):\n    graph.replay()"),
    ("inference_mode", "", "out = model(x)", "with torch.inference_mode():\n    out = model(x)", INFERENCE),
    ("made_on_cpu", "", "window = torch.hann_window(size).to(x.device)",
     'self.register_buffer("window", torch.hann_window(size), persistent=False)  # once\nwindow = self.window'),
))  # fmt: skip
