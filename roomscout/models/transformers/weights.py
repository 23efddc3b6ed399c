"""The one check of a checkpoint, of all that is known without its weights, and the loading of what has passed it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoModelForImageTextToText, BitsAndBytesConfig, PreTrainedConfig
from transformers.modeling_utils import PreTrainedModel, load_state_dict
from transformers.processing_utils import ProcessorMixin
from transformers.quantizers.auto import get_hf_quantizer
from transformers.utils import logging

from roomscout.base.text import counted, json_in
from roomscout.base.waiting import step
from roomscout.models import ModelError
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers import loading
from roomscout.models.transformers.encoding import ConversationEncoder
from roomscout.models.transformers.families import family_of
from roomscout.models.transformers.loading import in_one_sentence
from roomscout.models.transformers.source import ADAPTER_FILE, file_here

INDEX = ".index.json"  # the end of the name of a file that says which file has which weights
WEIGHTS = ("model.safetensors", "model.safetensors" + INDEX, "pytorch_model.bin", "pytorch_model.bin" + INDEX)
"""The files with a checkpoint's weights, or with their names; the first that is there is loaded."""


@dataclass(frozen=True)
class Checked:
    """What was looked at of a checkpoint that has no fault."""

    files: int  # of weights; 0 if they are not on this machine yet
    weights: int  # how many weights fit the model by name and shape; 0 if that is not known before they are loaded
    stored_bytes: int  # of their files


def check_checkpoint(
    model: str, config: PreTrainedConfig, processor: ProcessorMixin, device: torch.device, loads_here: bool = True
) -> Checked:
    """Find what is wrong with a checkpoint, a folder or a hub id, before its weights are loaded on this device, or by
    another engine unless it `loads_here`. Reads small files, and of weights what their files say of names and shapes;
    those of a hub id that are not on this machine are not looked at. Raises ModelError."""
    loading.generation_settings(model)
    width, height = family_of(config).default_view
    view = np.zeros((height, width, 3), np.uint8)
    with in_one_sentence(model, "its processor does not encode a view: "):
        loading.require_processor(processor, config)
        ConversationEncoder(processor, config).encode(Conversation("of one view", [Message.of_views("", view)]))
    quantizer = getattr(config, "quantization_config", None)
    if quantizer is not None and loads_here:
        with in_one_sentence(model):  # of a package that is missing
            quantizer, *_ = get_hf_quantizer(deepcopy(config), None, {"": device}, True, {})
    files = _weight_files(model, config)
    weights: dict[str, torch.Tensor] = {}
    for file in files:
        with in_one_sentence(model, f"{file.name} is truncated or damaged: "):
            if quantizer is None:
                stored = load_state_dict(str(file), map_location="meta")
                others = [name for name, weight in stored.items() if not isinstance(weight, torch.Tensor)]
                if others:
                    raise TypeError(f"{others[0]} in it is no weight")
                weights |= stored
            elif file.suffix == ".safetensors":  # in data types that torch may not have
                safe_open(str(file), "pt")
    stored_bytes = sum(file.stat().st_size for file in files)
    if quantizer is not None or not files:
        return Checked(len(files), 0, stored_bytes)
    misfits = _misfits(model, config, weights)
    empty = sorted(name for name, weight in weights.items() if not weight.numel())
    if misfits and empty:
        raise ModelError(
            f"{model} is broken: {len(empty)} of its weights are empty, such as {empty[0]}: gather them before saving "
            "(DeepSpeed's ZeRO-3 divides them among processes)"
        )
    if misfits:
        first = min(weights, default="")
        left = dict[str, int]()
        for prefix in [first[: end + 1] for end, letter in enumerate(first) if letter == "."]:
            if not all(name.startswith(prefix) for name in weights):
                break
            bare = {name.removeprefix(prefix): weight for name, weight in weights.items()}
            left[prefix] = len(_misfits(model, config, bare) or ())
        prefix = min(left, key=lambda each: left[each], default="")
        if left.get(prefix, len(misfits)) < len(misfits):
            raise ModelError(
                f"{model} is broken: the names of its weights begin with {prefix}, those of the model do not: save the "
                "model itself, without the wrapper that trained it"
            )
        _require_fitting(model, misfits)
    fitting = 0 if misfits is None else len(weights)
    return Checked(len(files), fitting, stored_bytes)


def load_checkpoint(
    model: str, dtype: torch.dtype, device: torch.device, quantize: str | None = None
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """The model in eval mode and the processor of a checkpoint (hub id or folder), with its weights as `quantize` says;
    raises ModelError for one that is missing, gated, unreachable, broken or unsupported."""
    name = Path(model).name
    with step("Loading", name) as say:
        config = loading.checkpoint_config(model)
        if quantize is not None and getattr(config, "quantization_config", None):
            raise ModelError(f"{model} has quantized weights already: leave it out", setting="quantize")
        logging.disable_progress_bar()
        processor = loading.checkpoint_processor(model)
        files = check_checkpoint(model, config, processor, device).files
        source, revision = loading.located(model)
        with in_one_sentence(model), _files_counted(files, lambda how_far: say(f"{name}: {how_far}")):
            loaded, info = AutoModelForImageTextToText.from_pretrained(
                source,
                **revision,
                dtype=dtype,
                device_map={"": device},
                **quantization(quantize, dtype),
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                trust_remote_code=False,
            )
    _require_fitting(model, _misfits_in(info))  # of a download
    for module in loaded.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            # Packing fails for shapes such as those of Qwen3-VL's image encoder, and makes CPUs compute in bfloat16.
            module.support_avx512bf16_for_cpu = False
    return loaded.eval(), processor


@contextmanager
def _files_counted(files: int, say: Callable[[str], None]) -> Iterator[None]:
    """Say in this block how many of the files with weights are loaded, by the share of the weights that are."""

    def counted_over(weights: list[Any]) -> Iterator[Any]:
        for place, weight in enumerate(weights):
            say(f"{1 + files * place // len(weights)} of {counted(files, 'file')}")
            yield weight

    def bar_of(make_bar: Callable[..., Any], values: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if files and options.get("desc") == "Loading weights":
            return counted_over(list(values[0]))
        return make_bar(*values, **options)

    before = logging.set_tqdm_hook(bar_of)
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)


def quantization(quantize: str | None, dtype: torch.dtype) -> dict[str, BitsAndBytesConfig]:
    """The argument with which bitsandbytes quantizes linear layers but the head: "8bit" as LLM.int8() (T. Dettmers et
    al., 2022), "4bit" as NF4 (QLoRA, 2023), computed in `dtype`. Passing None would hide a checkpoint's own."""
    if quantize is None:
        return {}
    getLogger("bitsandbytes.autograd._functions").setLevel("ERROR")  # warns at each call that 8bit computes in float16
    getLogger("bitsandbytes.backends.cpu.ops").setLevel("ERROR")  # warns of a kernel that is not used here
    if quantize == "8bit":
        return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True)}
    four_bit = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    return {"quantization_config": four_bit}


def _weight_files(model: str, config: PreTrainedConfig) -> list[Path]:
    """The files with a checkpoint's weights, none if a download is not complete; raises ModelError for a folder that
    lacks one."""
    folder = Path(model).expanduser()
    is_folder = folder.is_dir()
    named = getattr(config, "transformers_weights", None)
    found = [path for name in ([named] if named else WEIGHTS) if (path := file_here(model, name))]
    if not found and is_folder:
        raise ModelError(_why_no_weights(model, folder))
    if not found or not found[0].name.endswith(INDEX):
        return found[:1]
    index = found[0]
    with in_one_sentence(model, f"{index.name} is damaged: "):
        names = sorted(set(json_in(index.read_bytes())["weight_map"].values()))
        paths = [index.parent / name for name in names]
    if not paths and is_folder:
        raise ModelError(_why_no_weights(model, folder))
    missing = [path for path in paths if not path.is_file()]
    if missing and is_folder:
        raise ModelError(
            f"{model} lacks {counted(len(missing), 'file')} of the {len(paths)} with its weights, such as "
            f"{missing[0].name}{_begun(folder, missing[0].name)}: copy or download it again"
        )
    return [] if missing else paths


def _why_no_weights(model: str, folder: Path) -> str:
    parts = [path.name for path in sorted(folder.glob("*-of-*")) if path.suffix in (".safetensors", ".bin")]
    if parts:
        stem = "model.safetensors" if parts[0].endswith(".safetensors") else "pytorch_model.bin"
        return (
            f"{model} has its weights in parts, such as {parts[0]}, but no {stem}{INDEX}, which says what is in each: "
            "copy or download it"
        )
    if (folder / ADAPTER_FILE).is_file():
        return f"{model} has no weights but an adapter's: name its base model, and this folder as the adapter"
    begun = "".join(_begun(folder, name) for name in WEIGHTS)
    return f"{model} has no weights ({WEIGHTS[0]}{begun}): copy the files from the model it was made from"


def _begun(folder: Path, name: str) -> str:
    """What a download has left of a file, in brackets."""
    begun = [
        path.name for path in sorted(folder.iterdir()) if path.name.startswith(f"{name}.") and path.suffix != ".json"
    ]
    return f" (only {begun[0]} is there)" if begun else ""


def _misfits(model: str, config: PreTrainedConfig, weights: Mapping[str, torch.Tensor]) -> list[str] | None:
    """The model's weights that these, on the meta device, lack or have in other shapes: as transformers finds them when
    it loads, with its renamings and tied weights. None for a model whose weights it converts on the CPU."""
    report = getLogger("transformers.modeling_utils")  # of what is missing, in a table
    report.disabled = True
    logging.disable_progress_bar()
    with in_one_sentence(model, "the names or shapes of its weights are wrong: "):
        try:
            with torch.device("meta"):
                kind = type(AutoModelForImageTextToText.from_config(config))
            _, info = kind.from_pretrained(
                None, config=config, state_dict=dict(weights), device_map={"": "meta"}, dtype=torch.float32,
                ignore_mismatched_sizes=True, output_loading_info=True,
            )  # fmt: skip
        except NotImplementedError:
            return None
        finally:
            report.disabled = False
    return _misfits_in(info)


def _misfits_in(info: Mapping[str, Any]) -> list[str]:
    return sorted({*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])})


def _require_fitting(model: str, misfits: list[str]) -> None:
    if misfits:
        raise ModelError(
            f"{model} is broken: {len(misfits)} of its weights are missing or misshapen, such as {misfits[0]}: "
            "download it again"
        )
