"""docs/how-to/notebook.md: its code runs, in its order, on a real capture."""

import gzip
import re
import shutil

from tests.paths import ROOT

CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_pages_code_runs(tmp_path, monkeypatch, capsys):
    golden = ROOT / "tests" / "golden"
    (tmp_path / "net.sqlite").write_bytes(gzip.decompress((golden / "h200_gpt2_init.sqlite.gz").read_bytes()))
    for rank in (0, 1):
        shutil.copy(golden / "h200_lenet_fp32.json.gz", tmp_path / f"rank{rank}.json.gz")
    (tmp_path / "peaks.json").write_text('{"format": "pyprof peaks", "byte_per_s": 4.25e12}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")  # of pandas' own plot
    blocks = CODE.findall((ROOT / "docs" / "how-to" / "notebook.md").read_text())
    assert len(blocks) == 6
    names = {}
    for block in blocks:
        exec(block, names)  # noqa: S102 - the page's own code
    assert names["slow"].kernels["bound"].unique().tolist() == ["memory"]
    assert "The GPU limits the step" in capsys.readouterr().out
    assert (tmp_path / "phases.pdf").read_bytes().startswith(b"%PDF-")
    assert "<title>net.sqlite</title>" in (tmp_path / "report.html").read_text()
