"""Imports every family of op models, which fills ``pyprof.prof.ops.model.MODELS``."""

from importlib import import_module

FAMILIES = """
activation attention attention_kernels attention_libraries collective compiled contraction conv conv_backends copies
embedding embedding_tables embedding_updates experts extensions fills flashinfer gemm gemm_packed gemm_quantised
indexing jagged latent_attention linalg linear_cross_entropy loss mha norm optimizer packed_weights padding
paged_attention pointwise pointwise_backward pooling quantize reduction resize rng rnn row_norm scatter segments
softmax sorting sparse sparse_features spectral views vision
"""
for _family in FAMILIES.split():
    import_module(f"pyprof.prof.ops.{_family}")
