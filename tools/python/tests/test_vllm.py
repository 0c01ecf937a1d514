"""vLLM's interface of plug-ins for load formats; its own where it is installed, else a stand-in.

The stand-in has what vLLM 0.33.0 has at that place (commit 4ba787ec9): the entry point group, the
registry, `BaseModelLoader` and the group of tensor parallelism.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import PROJECT, Origin, require

torch = require("torch")

import inrush  # noqa: E402
from test_models import of_files  # noqa: E402
from test_ranks import RANKS, digest, ranks  # noqa: E402
from test_safetensors import alike  # noqa: E402

Serve = Callable[..., Origin]
#: The modules of the stand-in, and what they have.
NAMES = ("vllm", "vllm.distributed", "vllm.model_executor", "vllm.model_executor.model_loader",
         "vllm.model_executor.model_loader.base_loader")


class Config:
    """What a loader sees of a `LoadConfig` or a `ModelConfig`."""

    def __init__(self, **values: Any) -> None:
        self.load_format, self.model_loader_extra_config = "inrush", {}
        self.model, self.model_weights, self.revision = "/local/model", "", None
        self.__dict__.update(values)


class BaseModelLoader(ABC):
    """As vLLM's: what a loader must have."""

    def __init__(self, load_config: Any) -> None:
        self.load_config = load_config

    @abstractmethod
    def download_model(self, model_config: Any) -> None: ...

    @abstractmethod
    def load_weights(self, model: Any, model_config: Any) -> None: ...


def stand_in(group: Any = None) -> dict[str, types.ModuleType]:
    """The modules of vLLM that a plug-in needs."""
    made = {name: types.ModuleType(name) for name in NAMES}
    formats: dict[str, type[BaseModelLoader]] = {}

    def register_model_loader(load_format: str) -> Callable[[type], type]:
        def register(loader: type) -> type:
            if not issubclass(loader, BaseModelLoader):
                raise ValueError("no subclass of BaseModelLoader")
            formats[load_format] = loader
            return loader
        return register

    def get_model_loader(load_config: Any) -> BaseModelLoader:
        return formats[load_config.load_format](load_config)

    loaders: Any = made["vllm.model_executor.model_loader"]
    loaders.register_model_loader = register_model_loader
    loaders.get_model_loader = get_model_loader
    base: Any = made["vllm.model_executor.model_loader.base_loader"]
    base.BaseModelLoader = BaseModelLoader
    distributed: Any = made["vllm.distributed"]
    alone = types.SimpleNamespace(world_size=1, cpu_group=None, device_group=None)
    distributed.get_tp_group = lambda: group or alone
    return made


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Makes a loader as vLLM does, by its entry point."""
    for name, module in stand_in().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "inrush.vllm", raising=False)
    value = entry_point()
    getattr(importlib.import_module(value.partition(":")[0]), value.partition(":")[2])()

    def make(**extra: Any) -> Any:
        made: Any = sys.modules["vllm.model_executor.model_loader"]
        return made.get_model_loader(Config(model_loader_extra_config=extra))

    yield make
    sys.modules.pop("inrush.vllm", None)


def entry_point() -> str:
    """Where vLLM finds the plug-in."""
    text = (PROJECT / "tools/python/pyproject.toml").read_text()
    section = text.split('[project.entry-points."vllm.general_plugins"]\n')[1].split("\n\n")[0]
    found, = (line.split(" = ")[1].strip('"') for line in section.splitlines())
    return found


class Model(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """A model of vLLM: it takes its weights by name, and says which it has."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: dict[str, Any] = {}

    def load_weights(self, weights: Any) -> set[str]:
        self.weights = {name: tensor.clone() for name, tensor in weights}
        return set(self.weights)


MADE = {f"layer.{at}": torch.full((at, 300), float(at)) for at in range(9)}


def test_the_package_has_the_entry_point() -> None:
    assert entry_point() == "inrush.vllm:register"
    found = {one.value for one in importlib.metadata.entry_points(group="vllm.general_plugins")}
    assert entry_point() in found


def test_weights_come_from_wherever_they_are_said_to_be(serve: Serve, loader: Callable[..., Any]
                                                       ) -> None:
    serve(of_files(MADE, 2))
    index = "s3://data/m/model.safetensors.index.json"
    for made, config in [(loader(uri="s3://data/m/"), Config()), (loader(uri=index), Config()),
                         (loader(), Config(model_weights="s3://data/m")),
                         (loader(), Config(model="s3://data/m")),
                         (loader(distributed=False), Config(model="s3://data/m/"))]:
        made.download_model(config)
        model = Model()
        made.load_weights(model, config)
        alike(model.weights, MADE)


def test_weights_that_a_model_does_not_use_are_not_read(serve: Serve, loader: Callable[..., Any]
                                                       ) -> None:
    serve(of_files(MADE, 2))
    model: Any = Model()
    model.is_unused_checkpoint_weight = lambda name: name != "layer.3"
    loader(uri="s3://data/m/").load_weights(model, Config())
    alike(model.weights, {"layer.3": MADE["layer.3"]})


def test_what_is_refused(serve: Serve, loader: Callable[..., Any]) -> None:
    serve({"data/x": b""})
    with pytest.raises(ValueError, match="has no option 'concurrency'"):
        loader(concurrency=3)
    with pytest.raises(ValueError, match="'distributed' a bool"):
        loader(distributed=1)
    with pytest.raises(ValueError, match="/local/model is no address s3://"):
        loader().download_model(Config())
    model: Any = Model()
    model.secondary_weights = [object()]
    with pytest.raises(ValueError, match="secondary_weights"):
        loader(uri="s3://data/m/").load_weights(model, Config())
    with pytest.raises(inrush.NotFound):
        loader(uri="s3://data/m/").load_weights(Model(), Config())


#: As the workers of vLLM.
WORKER = """
import types, torch
from test_vllm import Config, Model, stand_in
coordinator = types.SimpleNamespace(world_size=size, cpu_group=group, device_group=None)
sys.modules.update(stand_in(coordinator))
import inrush._shares, inrush.vllm
torch.cuda.is_available = lambda: False
read = [0]
original = inrush._shares.filled
def noted(client, fillings, *words):
    kept = list(fillings)
    read[0] = sum(length for filling in kept for _, length in filling.ranges)
    return original(client, kept, *words)
inrush._shares.filled = noted
model = Model()
inrush.vllm.Loader(Config(model_loader_extra_config={"uri": URI})).load_weights(model, Config())
result = [read[0], {name: digest(one) for name, one in model.weights.items()}]
"""


def test_the_ranks_of_a_group_read_each_byte_once(serve: Serve, tmp_path: Any) -> None:
    made = {f"layer.{at}": torch.full((1200, 900), float(at)) for at in range(4)}
    serve(of_files(made, 2))
    result = ranks(tmp_path, WORKER)
    assert sum(read for read, _ in result) == sum(one.nbytes for one in made.values())
    expected = {name: digest(one) for name, one in made.items()}
    assert [found for _, found in result] == [expected] * RANKS


def test_the_interface_is_that_of_vllm() -> None:
    require("vllm")
    base = importlib.import_module("vllm.model_executor.model_loader.base_loader").BaseModelLoader
    assert base.__abstractmethods__ == BaseModelLoader.__abstractmethods__
    for name in ("__init__", "download_model", "load_weights"):
        assert [*inspect.signature(getattr(base, name)).parameters] == \
            [*inspect.signature(getattr(BaseModelLoader, name)).parameters]
    loaders = importlib.import_module("vllm.model_executor.model_loader")
    assert [*inspect.signature(loaders.register_model_loader).parameters] == ["load_format"]
    importlib.import_module("inrush.vllm").register()
    config = importlib.import_module("vllm.config.load").LoadConfig(load_format="inrush")
    assert type(loaders.get_model_loader(config)).__module__ == "inrush.vllm"
