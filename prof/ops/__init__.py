"""The op models, one file a family. Importing this package fills ``pyprof.prof.model.MODELS``."""
from pyprof.prof.ops import gemm as gemm
from pyprof.prof.ops import conv as conv
from pyprof.prof.ops import views as views
from pyprof.prof.ops import attention as attention
