"""What optimizers do without kernels is not marked, and costs nothing; what starts kernels is marked as before."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from .conftest import Recorder, record  # noqa: E402

pytestmark = pytest.mark.torch


def trained(optimizer_class: Any, **options: Any) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    return model, optimizer_class(model.parameters(), lr=0.1, **options)


def step(model: Any, optimizer: Any, **how: Any) -> None:
    optimizer.zero_grad(**how)
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()


def test_bookkeeping_is_unseen_after_the_first_step(monkeypatch: pytest.MonkeyPatch, recorder: Recorder) -> None:
    from pyprof.capture import session

    model, optimizer = trained(torch.optim.AdamW, foreach=True)
    step(model, optimizer)
    assert recorder.ops.count("torch.zeros_like") == 4  # the state, made in the first step: two of each parameter
    mode = session.current().mode  # type: ignore[union-attr]
    seen: list[Any] = []
    real = type(mode).__torch_function__

    def spy(self: Any, func: Any, *rest: Any) -> Any:
        seen.append(func)
        return real(self, func, *rest)

    monkeypatch.setattr(type(mode), "__torch_function__", spy)
    step(model, optimizer)
    assert seen
    assert torch.Tensor.grad.__get__ not in seen and torch.is_complex not in seen


def test_foreach_ops_are_marked(recorder: Recorder) -> None:
    model, optimizer = trained(torch.optim.AdamW, foreach=True)
    step(model, optimizer)
    recorder.clear()
    step(model, optimizer)
    assert "torch._foreach_addcdiv_" in recorder.ops


def test_gradients_filled_with_zeros_are_marked(recorder: Recorder) -> None:
    model, optimizer = trained(torch.optim.SGD, foreach=True)
    step(model, optimizer)
    recorder.clear()
    step(model, optimizer, set_to_none=False)
    assert "torch._foreach_zero_" in recorder.ops


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "NAdam"])
def test_parameters_are_the_same(name: str) -> None:
    def parameters() -> list[Any]:
        model, optimizer = trained(getattr(torch.optim, name))
        for _ in range(3):
            step(model, optimizer)
        return [p.tolist() for p in model.parameters()]

    plain = parameters()
    record(trace=True)
    assert parameters() == plain


def test_an_error_in_the_bookkeeping_leaves_the_mode_on(recorder: Recorder) -> None:
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    optimizer = torch.optim.Adam(embedding.parameters())
    optimizer.state[embedding.weight]["step"] = torch.tensor(0.0)
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse"):
        optimizer.step()
    recorder.clear()
    torch.relu(torch.ones(2))
    assert "torch.relu" in recorder.ops


def test_deinit_puts_them_back() -> None:
    import pyprof

    base = torch.optim.Optimizer
    before = base.zero_grad, torch.optim.AdamW._init_group
    pyprof.init(sink="nvtx")
    assert base.zero_grad is not before[0]
    pyprof.deinit()
    assert (base.zero_grad, torch.optim.AdamW._init_group) == before


def test_lists_of_odd_tensors_are_told_apart(recorder: Recorder) -> None:
    sparse = torch.eye(2).to_sparse()
    for items in ([torch.ones(2, 2)], [torch.ones(1, 1).expand(2, 2)], [sparse.coalesce()]):
        torch.stack(items)
    texts = [text for text in recorder.texts if '"stack"' in text]
    assert len(set(texts)) == 3
