"""The callbacks for the Trainer of Hugging Face and for Lightning, in their real loops."""

import pytest

import pyprof

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]  # the trainers' own, which vary by release

STEPS = 9


class Regression(torch.nn.Module):
    """A model as the Trainer calls it."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels):
        loss = torch.nn.functional.mse_loss(self.layer(x), labels)
        return {"loss": loss}


def rows(count):
    return [{"x": torch.full((4,), float(number)), "labels": torch.ones(1)} for number in range(count)]


def huggingface(folder, callback, accumulate=1):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate, which the Trainer needs, is not installed")
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=accumulate,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    return transformers.Trainer(model=Regression(), args=arguments, train_dataset=rows(40), callbacks=[callback])


def steps_of(file):
    """The steps of a capture, and how many calls of mse_loss each has."""
    kernels = pyprof.load(file).kernels
    return {step: int((kernels[kernels.step == step].op == "mse_loss").sum() > 0) for step in sorted(set(kernels.step))}


def test_the_trainers_steps_are_sampled(tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    from pyprof.integrations.huggingface import PyprofCallback

    samples = []
    trainer = huggingface(tmp_path, PyprofCallback(every=4, to=samples.append), accumulate=2)
    trainer.train()
    # steps 4 and 8 of the optimizer, of two batches each; 8 may fall while 4 is still being read
    assert [sample.iteration for sample in samples] in ([4], [4, 8])
    assert "mse_loss" in {op.op for op in samples[0].ops}
    trainer.train()  # and again, with the same callback
    assert len(samples) in (2, 3, 4)


def test_the_trainers_steps_are_collected_into_a_file(tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    from pyprof.integrations.huggingface import PyprofCallback

    file = tmp_path / "net.json.gz"
    huggingface(tmp_path, PyprofCallback(file, warmup=3, steps=2)).train()
    assert steps_of(file) == {3: 1, 4: 1}


def lightning():
    return pytest.importorskip("lightning.pytorch", reason="lightning is not installed")


def fit(pytorch, folder, callback, fails_at=None, accumulate=1):
    class Module(pytorch.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Regression()

        def training_step(self, batch, number):
            if number == fails_at:
                raise ZeroDivisionError
            return self.model(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    trainer = pytorch.Trainer(
        max_steps=STEPS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=[callback],
        accumulate_grad_batches=accumulate,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(rows(40), batch_size=2))


def test_lightnings_steps_are_sampled(tmp_path):
    pytorch = lightning()
    from pyprof.integrations.lightning import PyprofCallback

    samples = []
    fit(pytorch, tmp_path, PyprofCallback(every=4, to=samples.append), accumulate=2)
    assert [sample.iteration for sample in samples] in ([4], [4, 8])
    assert "mse_loss" in {op.op for op in samples[0].ops}


def test_a_fit_that_fails_leaves_the_block(tmp_path):
    pytorch = lightning()
    from pyprof.integrations.lightning import PyprofCallback

    with pytest.raises(ZeroDivisionError):
        fit(pytorch, tmp_path, PyprofCallback(every=2, to=lambda _: None), fails_at=5)
    with pyprof.profile(every=2, to=lambda _: None):  # nothing else is being collected
        pass
