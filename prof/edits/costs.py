"""What changes cost besides the work of making them: numerics, memory, code."""

NOTHING = "nothing: the same numbers, a line of code"
OF_CALLS = "numerics: sums in another order"  # of a change that calls PyTorch's function in place of its formula

COSTS = {
    "alignment": "code: sizes of layers; a few more parameters; checkpoints have other shapes",
    "tf32": "numerics: products round their operands to 10 bits of mantissa",
    "amp": "numerics: products, and what follows them, in 8 (bf16) or 11 bits (fp16); memory: a narrow copy of weights",
    "fp8": "numerics: operands of 4 bits, with scales: check the loss; code: torchao, and a compiled model",
    "attention": "numerics: sums in another order; other random numbers for dropout; no attention weights",
    "attention_backend": "numerics: sums in another order",
    "optimizer": "numerics: sums in another order",
    "parameter_loop": "memory: temporaries of all parameters at once, if the loop made any",
    "fusion": "code: compiled at the first call, and again for other shapes; numerics: sums in another order",
    "compile": "a minute or so to compile at the first call, again for other shapes; numerics: sums in another order",
    "cross_entropy": "code: compiled at the first call, and again for other shapes; numerics: sums in another order",
    "group_norm": "code: compiled at the first call, and again for other shapes; numerics: sums in another order",
    "zero_grad": "code: what reads gradients must expect None",
    "channels_last": "numerics: sums in another order; code: inputs in the same format",
    "conv_bias": "checkpoints lose these biases",
    "weight_casts": "numerics: layers that autocast keeps in fp32 run in half precision; less memory",
    "sparse_grad": "code: another optimizer for this table; momentum and weight decay skip rows without a gradient",
    "select_in_loop": NOTHING,
    "dropout_in_eval": "numerics: results without noise, as inference should have",
    "small_grid": "code: one batched call in place of the loop; memory: operands side by side",
    "mask_loop": "code: the loop rewritten; memory: the elements once more in sorted order; numerics: another order",
    "cell_loop": "code: another layer, whose checkpoints have other names; memory: the results of all steps at once",
    "sibling_layers": "code: one layer in place of several, whose checkpoints have other names and shapes",
    "made_on_cpu": "memory: what is kept",
    "static_cache": "memory: the cache's greatest size from the beginning; code: a mask for what is not filled yet",
    "item": "code: values are printed later, or every few steps",
    "size_sync": "code: other ops, which may compute what the mask leaves out",
    "pageable_copy": "memory: as much of the host's as the copies, pinned",
    "data_loader": "memory and CPU time of the workers' processes",
    "allocator": "memory: PyTorch keeps what it has reserved",
    "cuda_graph": "code: the same shapes and addresses in each step; memory: the graph's own pool",
}
