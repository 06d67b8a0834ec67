"""How far savings are from what rules predict, besides the errors of durations: by what their edits leave out.

Standard deviations of the logarithm of measured over predicted savings: of each rule's pairs in
docs/explanation/advice.md (golden captures, and programs with several faults), with two more pairs at the deviation of
all, because few pairs that happen to agree do not make a rule sure.
"""

ERROR = 0.35  # of all 75 pairs
ERRORS = {
    "data_loader": 0.22,
    "attention_backend": 0.23,
    "zero_grad": 0.23,
    "conv_bias": 0.24,
    "weight_casts": 0.24,
    "alignment": 0.25,
    "amp": 0.25,
    "cross_entropy": 0.26,
    "fusion": 0.26,
    "cell_loop": 0.27,
    "pageable_copy": 0.27,
    "channels_last": 0.28,
    "cuda_graph": 0.29,
    "allocator": 0.3,
    "select_in_loop": 0.3,
    "sparse_grad": 0.33,
    "compile": 0.36,
    "attention": 0.44,
    "optimizer": 0.45,
    "tf32": 0.49,
    "parameter_loop": 0.5,
    "item": 0.63,
}
