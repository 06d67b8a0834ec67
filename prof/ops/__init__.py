"""The op models, one file a family. Importing this package fills ``pyprof.prof.model.MODELS``."""
