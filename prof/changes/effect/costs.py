"""What changes cost besides the work of making them: precision, memory, code."""

NOTHING = "a line of code; the numbers stay the same"
OF_CALLS = "other rounding: sums are added in another order"  # where PyTorch's function replaces a formula
COMPILED = "seconds to compile at the first call, and again for other shapes; other rounding"
COSTS = {
    "alignment": "layers of other sizes, with a few more parameters; checkpoints have other shapes",
    "tf32": "precision: operands of products are rounded to 10 bits of mantissa",
    "amp": "precision: products, and what follows them, have 8 significant bits (bf16) or 11 (fp16); memory for a "
    "narrow copy of the weights",
    "fp8": "precision: operands have 4 significant bits, with scales, so check the results; it needs torchao and a "
    "compiled model",
    "attention": "other rounding, and other random numbers for dropout; the attention weights are not returned",
    "attention_backend": OF_CALLS,
    "optimizer": OF_CALLS,
    "parameter_loop": "memory: temporaries of all parameters exist at once, if the loop made any",
    "fusion": COMPILED,
    "compile": "a minute or so to compile at the first call, and again for other shapes; other rounding",
    "cross_entropy": COMPILED,
    "zero_grad": "a little care: code that reads gradients must expect None",
    "channels_last": "other rounding; inputs must be in the same format",
    "conv_bias": "checkpoints without these biases",
    "weight_casts": "precision: layers that autocast keeps in fp32 run in half precision, too (they need less memory)",
    "sparse_grad": "another optimizer for this table; momentum and weight decay skip rows without a gradient",
    "select_in_loop": NOTHING,
    "mask_loop": "a rewritten loop; memory for the elements once more, in sorted order; other rounding",
    "cell_loop": "another layer, whose checkpoints have other names; memory for the results of all time steps at once",
    "sibling_layers": "one layer in place of several, whose checkpoints have other names and shapes",
    "inference_mode": "a line of code; the results cannot be used in a backward pass later",
    "made_on_cpu": "memory for what is kept",
    "kept_activations": "memory: the activations of these layers stay until their backward pass",
    "unused_gradients": "none, if no optimizer updates these parameters, however seldom, and no norm counts them",
    "repeats": "memory: the activations of all inputs at once; batch norm then sees the whole batch",
    "static_cache": "memory for the cache's greatest size from the beginning, and a mask for what is not filled yet",
    "item": "values that are printed later, or every few steps",
    "item of conditions": "the work is done where nothing needs it, too",
    "size_sync": "other ops, which may compute what the mask leaves out",
    "size_sync of copies": "values that the program reads a step later",
    "pageable_copy": "as much pinned memory of the host as is copied",
    "pageable_copy of values": "code that works on the GPU, or that gathers a step's values before it copies them",
    "copy_to_host": "code that works on the GPU, or as much pinned memory of the host as is copied",
    "data_loader": "memory and CPU time for the workers' processes",
    "allocator": "memory: PyTorch keeps what it has reserved",
    "cuda_graph": "fixed shapes and addresses: each step must have the same; memory for the graph's own pool; "
    "autocast with cache_enabled=False",
}
