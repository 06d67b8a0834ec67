"""pyprof.count of int8 modules with packed weights."""

import warnings

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import pyprof  # noqa: E402
from pyprof.prof.work.annotate import annotate  # noqa: E402
from tests.tables import parsed  # noqa: E402

ENGINES = [name for name in ("x86", "fbgemm", "qnnpack") if name in torch.backends.quantized.supported_engines]
pytestmark = [
    pytest.mark.skipif(not ENGINES, reason="this torch has no engine for quantized modules"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(autouse=True)
def engine():
    before, torch.backends.quantized.engine = torch.backends.quantized.engine, ENGINES[0]
    yield
    torch.backends.quantized.engine = before


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.d = torch.ao.quantization.QuantStub(), torch.ao.quantization.DeQuantStub()
        self.conv, self.fc = nn.Conv2d(3, 8, 3), nn.Linear(8 * 30 * 30, 10)

    def forward(self, x):
        return self.d(self.fc(self.conv(self.q(x)).flatten(1)))


def by_op(counted, name):
    return {op: flop for op, flop in zip(counted.table()["op"], counted.table()["flops"], strict=True) if name in op}


def test_static():
    """conv 2 * 2*8*30*30 * 27 = 777,600; linear 2 * 2*7200*10 = 288,000"""
    net, x = Net().eval(), torch.randn(2, 3, 32, 32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.qconfig = torch.ao.quantization.get_default_qconfig(ENGINES[0])
        prepared = torch.ao.quantization.prepare(net)
        prepared(x)
        int8 = torch.ao.quantization.convert(prepared)
    right = int8(x)
    counted = pyprof.count(int8, x)
    assert counted.unknown == {}
    # and 2 operations for each of 6144 numbers that are quantized, 1 for each of 20 that are not any more
    assert counted.flops == 777_600 + 288_000 + 2 * 6144 + 20
    assert torch.equal(int8(x), right)


def test_dynamic():
    """2 * 10 * 64 * 32"""
    net = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(64, 32)), {nn.Linear})
    assert pyprof.count(net, torch.randn(10, 64)).flops == 40_960


def test_between_layers():
    """MobileNetV3's hardswish, 3 operations for each of 192 numbers; GoogLeNet's and ShuffleNet's cat, none"""
    x = torch.quantize_per_tensor(torch.randn(2, 3, 32), 0.1, 0, torch.quint8)
    with pyprof.count() as counted:
        torch.ops.quantized.cat([torch.ops.quantized.hardswish(x, 0.1, 0), x], 1, 0.1, 0)
    assert (counted.flops, counted.unknown) == (576, {})
    assert counted.bytes == 2 * (192 + 384)


def test_a_capture_has_what_is_counted(tmp_path):
    """The numbers of the two tests above, of two layers that differ in their packed weights alone, and of conv1d:
    2 * 2*8*14 * 3*3 = 4032"""
    net = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(64, 32)), {nn.Linear})
    wide = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(64, 96)), {nn.Linear})
    conv = torch.ao.nn.quantized.Conv1d(3, 8, 3)
    conv.scale, conv.zero_point = 1.0, 0
    x, image = torch.randn(10, 64), torch.quantize_per_tensor(torch.randn(2, 3, 16), 0.1, 0, torch.quint8)
    pyprof.init()
    try:
        with pyprof.profile(str(tmp_path / "net.json")):
            net(x), wide(x), conv(image)
    finally:
        pyprof.deinit()
    table = parsed(tmp_path / "net.json")
    rows = zip(table.coded("aten").texts(), annotate(table).flops.tolist(), strict=True)
    found = [(op, flop) for op, flop in rows if op.startswith("quantized::")]
    linear = "quantized::linear_dynamic"
    assert found == [(linear, 40_960), (linear, 122_880), ("quantized::conv1d", 4032)]
