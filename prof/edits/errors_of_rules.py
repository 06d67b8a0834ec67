"""How far savings are from what rules predict, besides the errors of durations: by what their edits leave out.

Standard deviations of the logarithm of measured over predicted savings, of the pairs in docs/explanation/advice.md:
golden captures and programs with several faults. Rules with few pairs have a value between their own and that of all.
"""

ERROR = 0.3  # of all pairs
ERRORS = {
    "tf32": 0.1,
    "amp": 0.2,
    "alignment": 0.1,
    "attention": 0.4,
    "attention_backend": 0.15,
    "optimizer": 0.25,
    "parameter_loop": 0.25,
    "fusion": 0.6,
    "cross_entropy": 0.15,
    "item": 0.8,
    "size_sync": 0.8,
    "allocator": 0.2,
    "zero_grad": 0.4,
    "conv_bias": 0.15,
    "weight_casts": 0.15,
    "data_loader": 0.1,
    "dropout_in_eval": 0.15,
}
