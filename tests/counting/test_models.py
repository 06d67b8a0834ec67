"""Whole models: the products of each forward pass against FlopCounterMode's published number of the same
model.

torchvision's, which count convolutions and products alone; the numbers are those of truth/models.csv (torch
2.13).
"""

import pytest

torch = pytest.importorskip("torch")
try:
    from torchvision import models
except (ImportError, RuntimeError) as error:  # RuntimeError: built for another torch
    pytest.skip(f"no torchvision that fits this torch: {error}", allow_module_level=True)

import pyprof  # noqa: E402

PUBLISHED = [  # model, side of the image, 2 * multiply-adds
    ("alexnet", 224, 1428376960),
    ("vgg16", 224, 30940528640),
    ("resnet18", 224, 3628146688),
    ("resnet50", 224, 8178368512),
    ("mobilenet_v2", 224, 601548544),
    ("mobilenet_v3_large", 224, 433179520),
    ("efficientnet_b0", 224, 771629504),
    ("densenet121", 224, 5668323328),
    ("inception_v3", 299, 11426432192),
    ("resnext50_32x4d", 224, 8460959744),
    ("shufflenet_v2_x1_0", 224, 289815984),
]


@pytest.mark.parametrize(("name", "side", "flop"), PUBLISHED)
def test_products(name: str, side: int, flop: int) -> None:
    more = {"init_weights": False} if name == "inception_v3" else {}
    with torch.device("meta"):
        net = getattr(models, name)(**more).eval()
        work = pyprof.count(net, torch.empty(1, 3, side, side))
    assert work.products.flop == flop
    assert not work.uncounted
