"""pyprof in other people's loops: the Trainer of Hugging Face, Lightning, IPython. Each module needs its package."""
