"""Loads checkpoints from the hub or a folder, and checks loaded models; every failure is a one-sentence ModelError."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from logging import getLogger
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import errors as hub
from huggingface_hub import get_hf_file_metadata, hf_hub_url
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor, BitsAndBytesConfig, GenerationConfig
from transformers.modeling_utils import PreTrainedModel
from transformers.processing_utils import ProcessorMixin
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.utils import logging

from roomscout.base.files import LFS_POINTER
from roomscout.base.text import first_line
from roomscout.models import NO_EFFECT, ModelError
from roomscout.models.transformers.families import family_of
from roomscout.models.transformers.source import existing_source, file_here, id_and_revision

# huggingface_hub's HTTP client, httpx before version 2, httpx2 since, and its error without a response.
_client = import_module(hub.HfHubHTTPError.__mro__[1].__module__.partition(".")[0])
_TransportError: type[Exception] = _client.TransportError


def load_checkpoint(
    model: str, dtype: torch.dtype, device: torch.device, quantize: str | None = None
) -> tuple[PreTrainedModel, ProcessorMixin]:
    """The model in eval mode and the processor of a checkpoint (hub id or folder), with its weights as `quantize` says;
    raises ModelError for one that is missing, gated, unreachable, broken or unsupported."""
    source, revision = _located(model)
    config = checkpoint_config(model)
    _require_complete(model)
    if quantize is not None and getattr(config, "quantization_config", None):
        raise ModelError(f"{model} has quantized weights already: leave it out", setting="quantize")
    logging.disable_progress_bar()
    processor = checkpoint_processor(model)
    with _in_one_sentence(model):
        loaded, info = AutoModelForImageTextToText.from_pretrained(
            source,
            **revision,
            dtype=dtype,
            device_map={"": device},
            **quantization(quantize, dtype),
            output_loading_info=True,
            trust_remote_code=False,
        )
    if info["missing_keys"] or info["mismatched_keys"]:
        count = len(info["missing_keys"]) + len(info["mismatched_keys"])
        raise ModelError(f"{model} is broken: {count} of its weights are missing or misshapen; download it again")
    for module in loaded.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            # Packing fails for shapes such as those of Qwen3-VL's image encoder, and makes CPUs compute in bfloat16.
            module.support_avx512bf16_for_cpu = False
    return loaded.eval(), processor


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


def checkpoint_config(model: str) -> Any:
    """The configuration of a checkpoint; raises ModelError if it is not available or its family is not supported."""
    config = checkpoint_part(AutoConfig, model)
    family_of(config)
    return config


def checkpoint_processor(model: str) -> ProcessorMixin:
    """A checkpoint's processor; raises ModelError like `checkpoint_part`, and if it has no chat template."""
    processor = checkpoint_part(AutoProcessor, model)
    if not processor.chat_template:
        raise ModelError(
            f"{model} has no chat template (chat_template.jinja): copy the file from the model it was made from"
        )
    return processor


def checkpoint_part(kind: Any, model: str) -> Any:
    """A checkpoint's configuration, tokenizer or processor of class `kind`; raises ModelError without one."""
    source, revision = _located(model)
    safe = {} if kind is GenerationConfig else {"trust_remote_code": False}  # which it would keep as a setting
    with _in_one_sentence(model):
        return kind.from_pretrained(source, **revision, **safe)


def _located(model: str) -> tuple[str, dict[str, str]]:
    """Where `from_pretrained` finds a checkpoint: a folder, or a hub id and its revision; ModelError for none."""
    source, revision = id_and_revision(existing_source(model))
    if not file_here(model, "config.json"):
        try:  # once: the hub's client would retry for a minute
            get_hf_file_metadata(hf_hub_url(source, "config.json", revision=revision))
        except (_TransportError, OSError, ValueError) as error:
            raise _failure(model, error) from error
    return source, {} if revision is None else {"revision": revision}


@contextmanager
def _in_one_sentence(model: str) -> Iterator[None]:
    """Turns what the libraries raise inside this block, of which all load this checkpoint, into ModelErrors."""
    try:
        yield
    except ImportError as error:  # of a package that quantized weights or a processor need
        raise ModelError(f"{model} cannot be loaded here ({first_line(error)})") from error
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise _failure(model, error) from error


def _failure(model: str, error: BaseException) -> ModelError:
    causes = [error]
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
    for kinds, sentence, setting in (
        (torch.OutOfMemoryError, "does not fit on the device: use a smaller checkpoint or the CPU", "device"),
        (hub.GatedRepoError, "is gated: accept its terms on huggingface.co, then run `hf auth login`", None),
        (hub.RevisionNotFoundError, "does not exist on huggingface.co: check the revision", "revision"),
        (hub.RepositoryNotFoundError, "does not exist on huggingface.co (or is private): check its name", "model"),
        (
            (hub.OfflineModeIsEnabled, hub.LocalEntryNotFoundError, _TransportError),
            "is not on this machine, and huggingface.co cannot be reached: download it while online, or name a "
            "checkpoint folder or embedded",
            "model",
        ),
    ):
        if any(isinstance(cause, kinds) for cause in causes):
            return ModelError(f"{model} {sentence}", setting=setting)
    if any("trust_remote_code" in str(cause) for cause in causes):
        converted = f", such as {model}-HF" if "internvl" in model.lower() else ""
        return ModelError(
            f"{model} needs code of its own repository, which is never run here: use a checkpoint that is converted to "
            f"transformers' own classes{converted}"
        )
    why = f"{model} cannot be loaded ({first_line(error)}): copy or download it again, or check its name"
    return ModelError(why, setting="model")


def _require_complete(model: str) -> None:
    """Raise ModelError if a checkpoint folder lacks files, of which the libraries would say something else."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return
    needed = {
        "tokenizer (tokenizer.json)": ("tokenizer*", "vocab.*", "*.model", "tekken*"),
        "image processor (processor_config.json)": ("*processor_config.json",),
        "weights (model.safetensors)": ("*.safetensors", "*.bin"),
    }
    lacking = [name for name, patterns in needed.items() if not any(any(folder.glob(glob)) for glob in patterns)]
    if lacking:
        raise ModelError(f"{model} has no {' and no '.join(lacking)}: copy the files from the model it was made from")
    for path in filter(Path.is_file, sorted(folder.iterdir())):
        with path.open("rb") as file:
            if file.read(len(LFS_POINTER)) == LFS_POINTER:
                raise ModelError(f"{path} is a Git LFS pointer instead of a file: run `git lfs pull` in {model}")


def end_tokens(settings: GenerationConfig, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The ids that end a reply: those of the tokenizer and of the checkpoint's generation settings."""
    named = settings.eos_token_id
    return sorted({tokenizer.eos_token_id, *(named if isinstance(named, list) else [named])} - {None})


def generation_settings(model: str) -> GenerationConfig:
    """A checkpoint's generation settings, or those implied by its configuration; raises ModelError."""
    if file_here(model, "generation_config.json"):
        return checkpoint_part(GenerationConfig, model)
    return GenerationConfig.from_model_config(checkpoint_config(model))


def published_sampling(model: str | PreTrainedModel) -> tuple[float, dict[str, float]]:
    """The temperature of a checkpoint or loaded model by its generation settings, 0 if they decode greedily, and what
    else of sampling they change; logs both. Raises ModelError for a checkpoint without generation_config.json."""
    if not isinstance(model, str):
        require_model(model)
        settings = model.generation_config
    elif Path(model).expanduser().is_dir() and not file_here(model, "generation_config.json"):
        why = f"{model} has no generation_config.json, and so no published sampling: name the parameters yourself"
        raise ModelError(why, setting="generation")
    else:
        settings = checkpoint_part(GenerationConfig, model)
    temperature = (1.0 if settings.temperature is None else settings.temperature) if settings.do_sample else 0.0
    named = {name: getattr(settings, name, None) for name in NO_EFFECT}
    sampling = {name: value for name, value in named.items() if value not in (None, NO_EFFECT[name])}
    for name in ("top_k", "top_p"):
        if sampling.get(name, 1) <= 0:  # off in vLLM
            del sampling[name]
    getLogger(__name__).info("Sampling as published: %s", {"temperature": temperature, **sampling})
    return temperature, sampling


def require_model(model: Any) -> None:
    """Raise ModelError unless this is an image-text-to-text model with a language-model head, loaded on one device."""
    kind = type(model).__name__
    if not isinstance(model, PreTrainedModel):
        raise ModelError(
            f"{kind} is not a model of transformers: pass the model that AutoModelForImageTextToText loads, without "
            "wrappers (of a PEFT model, its get_base_model())"
        )
    family_of(model.config)
    if model.get_output_embeddings() is None:
        raise ModelError(f"{kind} has no language-model head: load the checkpoint with AutoModelForImageTextToText")
    devices = {str(parameter.device) for parameter in model.parameters()}
    if len(devices) > 1:
        raise ModelError(f"{kind} is split across {', '.join(sorted(devices))}: load it on one device")
    if "meta" in devices:
        raise ModelError(f"{kind} has no weights yet, since it is on the device 'meta': load its checkpoint")


def require_processor(processor: Any, model: PreTrainedModel) -> None:
    """Raise ModelError unless the processor's images, placeholders and vocabulary are this model's."""
    kind = type(processor).__name__
    config = model.config
    if not hasattr(processor, "tokenizer") or not hasattr(processor, "image_processor"):
        raise ModelError(f"{kind} does not process both text and images: pass what AutoProcessor loads for the model")
    if family_of(config).by_processor:
        return
    tokens = len(processor.tokenizer)
    outputs = config.get_text_config().vocab_size
    image = processor.image_processor
    vision = config.vision_config
    patches = getattr(image, "patch_size", None), getattr(image, "merge_size", None)
    wanted = getattr(vision, "patch_size", None), getattr(vision, "spatial_merge_size", None)
    if tokens > outputs:
        differs = f"its tokenizer has {tokens} tokens, the model {outputs}"
    elif processor.image_token_id != config.image_token_id:
        differs = f"its image token is {processor.image_token_id}, the model's {config.image_token_id}"
    elif None not in patches and patches != wanted:
        differs = f"its patches and merges are {patches}, the model's {wanted}"
    else:
        return
    raise ModelError(f"{kind} is the processor of another model ({differs}): load both from the same checkpoint")
