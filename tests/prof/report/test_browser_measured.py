"""The roofline of a page with counters of Nsight Compute: measured points beside those of the algorithm."""

import numpy as np

from pyprof.prof.report import cli
from tests.paths import GOLDEN
from tests.prof.report.test_browser import READY

CAPTURE, REPORT = str(GOLDEN / "ncu" / "h200_gpt2_block.sqlite.gz"), str(GOLDEN / "ncu" / "h200_gpt2_block.base.csv.gz")


def test_the_roofline_draws_measured_points_with_a_legend(chromium, tmp_path):
    path = tmp_path / "report.html"
    assert cli.main(["-q", "--ncu", REPORT, CAPTURE, "-o", str(path)]) == 0
    chromium.open(path)
    assert chromium.run_async(READY)
    assert chromium.log() == []
    measured = chromium.run("return pyprof.roofline.shown().map(({ measured }) => measured)")
    assert len(measured) > 8
    assert all(each["count"] for each in measured)
    drawn = chromium.run(
        "const { series } = pyprof.roofline.instance.getOption();"
        "return series.filter((each) => each.name === 'measured')[0].data.map((each) => each.value)"
    )
    wanted = [[each["flops"] / each["bytes"], 1e9 * each["flops"] / each["ns"]] for each in measured]
    np.testing.assert_allclose(drawn, wanted)
    legend = chromium.run("return document.getElementById('roofline-legend').textContent")
    assert "the algorithm's FLOPs and bytes" in legend
    assert "measured by Nsight Compute" in legend
    assert chromium.run("return document.querySelectorAll('#roofline-legend i.hollow').length") == 1
