"""What single kernels and chains of them take: attention, fusion, layouts, optimizers, gradients."""
