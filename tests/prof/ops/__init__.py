import pytest

pytest.register_assert_rewrite("tests.prof.ops.op_cases")
