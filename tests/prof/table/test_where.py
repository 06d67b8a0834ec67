"""--where: what it selects on a small table, and what it refuses, with the place."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.prof.table.columns import COLUMN, Column
from pyprof.prof.table.condition import ConditionError
from pyprof.prof.table.where import parse_where, rows_where
from pyprof.table.columns import NULL, Coded

COLUMNS = {
    column.name: column
    for column in (
        Column("op", "Op", "", "", lambda *_: DATA["op"], empty="na"),
        Column("tc", "TC", "", "", lambda *_: DATA["tc"]),
        Column("sil", "Sil", "ns", "", lambda *_: DATA["sil"], kind="int"),
        Column("flops", "FLOPs", "", "", lambda *_: DATA["flops"], kind="int"),
        Column("sol", "SOL", "%", "", lambda *_: DATA["sol"], kind="float"),
    )
}
DATA = {
    "op": Coded.of(["linear", "relu", "", "Linear[2]"]),
    "tc": Coded.of(["1", "-", "-", "?"]),
    "sil": np.array([10, 20, 30, 40]),
    "flops": np.array([200, 0, NULL, 30]),
    "sol": np.array([50.0, 12.5, np.nan, np.nan]),
}


def chosen(text: str) -> list[int]:
    """The numbers of the rows, from 0."""
    return np.flatnonzero(rows_where(parse_where(text, COLUMNS), DATA)).tolist()


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("op == 'linear'", [0]),
        ("op != 'linear'", [1, 2, 3]),
        ("op in ('relu', 'linear')", [0, 1]),
        ("op not in ['relu']", [0, 2, 3]),
        ("op == ''", [2]),
        ("op == 'na'", [2]),  # as it is printed
        ("op is None", [2]),
        ("op is not None and not op == 'relu'", [0, 3]),
        ("op like 'lin*'", [0]),
        ("op like '?inear*'", [0, 3]),
        ("op like '*[[]2]'", [3]),
        ("op not like '*e*'", [2]),
        ("op  not   like '*lin*' or sil == 10", [0, 1, 2, 3]),
        ("'inea' in op", [0, 3]),
        ("'inea' not in op", [1, 2]),
        ("op == ' like ' or op == 'not like'", []),
        ("tc == 1", [0]),
        ("tc in (1, '?')", [0, 3]),
        ("sil > 20", [2, 3]),
        ("20 < sil", [2, 3]),
        ("10 < sil <= 30", [1, 2]),
        ("sil >= 2e1 and sil != 40", [1, 2]),
        ("sil in (10, 40)", [0, 3]),
        ("sil > -1", [0, 1, 2, 3]),
        ("flops > sil", [0]),
        ("flops <= sil", [1, 3]),
        ("flops == None", [2]),
        ("flops != None", [0, 1, 3]),
        ("flops == 0", [1]),
        ("flops in (0, None)", [1, 2]),
        ("flops < 1000", [0, 1, 3]),  # unknown is not less
        ("not flops < 1000", [2]),
        ("sol < 13", [1]),
        ("sol == None", [2, 3]),
        ("sil < 1000000000000000000000000", [0, 1, 2, 3]),
        ("sil > -99999999999999999999999 and sil < 1e999", [0, 1, 2, 3]),
        ("\n  sil == 10\n  or sil == 20\n", [0, 1]),
    ],
)
def test_rows_that_are_chosen(text, rows):
    assert chosen(text) == rows


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "an empty condition"),
        ("op", "character 3: the end: expected one of == != < <= > >= in like"),
        ("1", "character 2: the end: expected one of =="),
        ("sil > 1 and oops == 2", "character 13: 'oops': no column; there are: op, tc, sil, flops, sol"),
        ("op = 'linear'", "character"),
        ("op == 'linear", 'character 7: "\'linear": a quote that is not closed'),
        ("sil >", "character 6: the end: expected a name, a number or a text in quotes"),
        ("op.upper == 'x'", "character 3: \".upper == 'x'\": expected one of =="),
        ("sil == ().__class__", "character 10: '.__class__': expected and, or, or the end"),
        ("__import__('os').system('true')", "character 11: \"('os').system('true')\": expected one of =="),
        ("sil == exit()", "character 12: '()': expected and, or, or the end"),
        ("op == f'{sil}'", "character 8: \"'{sil}'\": expected and, or, or the end"),
        ("[x for x in op]", "character 4: 'for x in op]': expected a comma or ]"),
        ("(lambda: 1)() == sil", "character 8: ': 1)() == sil': expected one of =="),
        ("(sil := 5) > 1", "character 6: ':= 5) > 1': expected one of =="),
        ("sil + 1 > 2", "character 5: '+ 1 > 2': expected one of =="),
        ("sil % 2", "character 5: '% 2': expected one of =="),
        ("op @ 'x'", "character 4: \"@ 'x'\": expected one of =="),
        ("sil == 2**64**9999999", "character 9: '**64**9999999': expected and, or, or the end"),
        ("op[0] == 'l'", "character 3: \"[0] == 'l'\": expected one of =="),
        ("sil == 'ten'", "character 8: \"'ten'\": a text, where sil holds numbers"),
        ("op > 'a'", "character 6: \"'a'\": > where op holds texts"),
        ("op == tc", "character 7: 'tc': a column beside one that holds texts"),
        ("sil like '1*'", "character 10: \"'1*'\": like compares texts; sil holds numbers"),
        ("op in 'linear'", "character 7: \"'linear'\": no list"),
        ("sil < None", "character 7: 'None': None is unknown"),
        ("sil == True", "character 8: 'True': no column"),
        ("sil == 1j", "character 9: 'j': expected and, or, or the end"),
        ("sil == b'1'", "character 9: \"'1'\": expected and, or, or the end"),
        ("sil in (1, (2, 3))", "character 12: '(': a list within a list"),
        ("sil == 1; op == 'x'", "character 9: \"; op == 'x'\": expected and, or, or the end"),
        ("sil == 1) or (sil == 2", "character 9: ') or (sil == 2': expected and, or, or the end"),
        ("é.x == 1 or sil.y == 1", "character 2: '.x == 1"),
        ("op == 'é' and sil.y == 1", "character 18: '.y == 1'"),
        ("sil == \x00", "character 8: '?': expected a name"),
        ("(" * 150 + "sil" + ")" * 150 + " > ", "character"),
        ("not " * 900 + "sil == 1", ""),
        ("(" * 1500 + "sil == 1" + ")" * 1500, ""),
        ("sil == " + "-" * 3000 + "1", ""),
        ("sil == " + "9" * 3990, ""),
        (" or ".join(["sil == 1"] * 1000), "at most 4000"),
    ],
)
def test_what_is_refused_in_one_line_with_the_place(text, said):
    began = time.perf_counter()
    with pytest.raises(ConditionError) as error:
        if chosen(text) is not None:  # a great number is read, and nothing has it
            raise ConditionError("")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    assert time.perf_counter() - began < 2


def test_a_pattern_takes_no_longer_than_its_length_allows():
    data = {"op": Coded.of(["a" * 5000 + "b"])}
    began = time.perf_counter()
    assert not rows_where(parse_where("op like '" + "*a" * 30 + "*c'", COLUMNS), data).any()
    assert time.perf_counter() - began < 2


WORDS = "op sil tc == < in not like and or ( ) , 'x' 1 - None . @ % [".split()


@given(st.text(max_size=60) | st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_any_text_is_a_condition_or_is_refused(text):
    try:
        mask = rows_where(parse_where(text, COLUMNS), DATA)
    except ConditionError:
        return
    assert mask.dtype == bool
    assert len(mask) == 4


def test_the_columns_it_reads_are_named_once():
    where = parse_where("op == 'a' and (sil > 3 or sil < flops)", COLUMNS)
    assert [column.name for column in where.columns] == ["flops", "op", "sil"]
    assert [c.name for c in parse_where("bound == 'memory' and sol < 50", COLUMN).columns] == ["bound", "sol"]
