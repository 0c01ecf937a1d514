"""Weights of models for vLLM, straight from objects: ``vllm serve ... --load-format inrush``.

vLLM finds `register` by the entry point of this package, in each of its processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from vllm.distributed import get_tp_group
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from . import safetensors

if TYPE_CHECKING:
    from ._parts import Named

__all__ = ["Loader", "register"]

#: The name of the format.
FORMAT = "inrush"


def register() -> None:
    """Makes ``--load-format inrush`` known to vLLM."""
    register_model_loader(FORMAT)(Loader)


class Loader(BaseModelLoader):  # type: ignore[misc,unused-ignore]
    """Loads safetensors of a folder, an index or a file.

    The address is `uri` of ``--model-loader-extra-config``, or that of the model. The ranks of a
    tensor-parallel group read each byte once, unless `distributed` is false there.
    """

    def __init__(self, load_config: Any) -> None:
        """
        :raises ValueError: there is an option in the extra config that is none.
        """
        super().__init__(load_config)
        extra = dict(load_config.model_loader_extra_config or {})
        self._uri = extra.pop("uri", None)
        self._distributed = extra.pop("distributed", True)
        if extra:
            raise ValueError(f"the load format {FORMAT} has no option {sorted(extra)[0]!r} in "
                             "model_loader_extra_config: it has 'uri' and 'distributed'")
        if not isinstance(self._uri, (str, type(None))) or type(self._distributed) is not bool:
            raise ValueError("'uri' in model_loader_extra_config is a str, 'distributed' a bool")

    def download_model(self, model_config: Any) -> None:
        """Looks whether the weights are there; none is downloaded."""
        safetensors.open(self._address(model_config)).close()

    def load_weights(self, model: torch.nn.Module, model_config: Any) -> None:
        """Hands all weights to the model.

        :raises ValueError: the address is none, or the model needs those of others, too.
        :raises inrush.Error: an object cannot be read.
        """
        if getattr(model, "secondary_weights", ()):
            raise ValueError(f"the load format {FORMAT} cannot load a model whose weights are at "
                             "several addresses (secondary_weights)")
        group, device = None, "cpu"
        if self._distributed and (ranks := get_tp_group()).world_size > 1:
            group = ranks.cpu_group
            if torch.cuda.is_available():
                group, device = ranks.device_group, f"cuda:{torch.cuda.current_device()}"
        with safetensors.open(self._address(model_config), device, process_group=group) as found:
            is_unused = getattr(model, "is_unused_checkpoint_weight", None)
            wanted = None if is_unused is None else \
                [name for name in found.keys() if not is_unused(name)]
            weights: Iterator[Named] = found.tensors(wanted)
            load: Any = model.load_weights
            load(weights)
            if group is not None:
                # All ranks go on to the end.
                for _ in weights:
                    pass

    def _address(self, model_config: Any) -> str:
        """Where the weights are; a folder has a slash at its end."""
        # Of a model at an address of S3 vLLM has `model` in a folder of its own.
        uri = self._uri or getattr(model_config, "model_weights", "") or model_config.model
        if not uri.startswith("s3://"):
            raise ValueError(f"{uri} is no address s3://bucket/folder/: the load format {FORMAT} "
                             "takes it from 'uri' in model_loader_extra_config, or from the model")
        return str(uri if uri.endswith(("/", ".json", ".safetensors")) else f"{uri}/")
