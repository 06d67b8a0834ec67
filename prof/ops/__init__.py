"""The op models, one file a family. Importing this package fills ``pyprof.prof.model.MODELS``."""
from pyprof.prof.ops import gemm as gemm
from pyprof.prof.ops import conv as conv
from pyprof.prof.ops import views as views
from pyprof.prof.ops import attention as attention
from pyprof.prof.ops import gemm_packed as gemm_packed
from pyprof.prof.ops import contraction as contraction
from pyprof.prof.ops import mha as mha
from pyprof.prof.ops import rnn as rnn
from pyprof.prof.ops import spectral as spectral
from pyprof.prof.ops import linalg as linalg
from pyprof.prof.ops import attention_kernels as attention_kernels
from pyprof.prof.ops import conv_backends as conv_backends
