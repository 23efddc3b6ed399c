"""Reads a checkpoint's small files, and checks loaded models; every failure is a one-sentence ModelError."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from logging import getLogger
from pathlib import Path
from pickle import PickleError
from typing import Any

import torch
from huggingface_hub import errors as hub
from huggingface_hub import get_hf_file_metadata, hf_hub_url
from jinja2 import TemplateError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoProcessor, GenerationConfig, PreTrainedConfig
from transformers.modeling_utils import PreTrainedModel
from transformers.processing_utils import ProcessorMixin
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from roomscout.base.files import LFS_POINTER
from roomscout.base.text import first_line
from roomscout.models import NO_EFFECT, ModelError
from roomscout.models.transformers.families import family_of
from roomscout.models.transformers.source import existing_source, file_here, id_and_revision

# huggingface_hub's HTTP client, httpx before version 2, httpx2 since, and its error without a response.
_client = import_module(hub.HfHubHTTPError.__mro__[1].__module__.partition(".")[0])
_TransportError: type[Exception] = _client.TransportError

PUBLISHED: dict[str, tuple[type, float, float]] = {
    "do_sample": (bool, 0, 1), "temperature": (float, 0, 1e9), "top_k": (int, -1, 1e9), "top_p": (float, 0, 1),
    "min_p": (float, 0, 1), "presence_penalty": (float, -2, 2), "frequency_penalty": (float, -2, 2),
    "repetition_penalty": (float, 1e-9, 1e9), "eos_token_id": (int, -1, 1e9),
}  # fmt: skip
"""What is read of generation settings, by name: the type, the least and the largest value."""
DTYPES_OF_CONFIGS = ("float32", "bfloat16", "float16", "float64", "float", "half", "double")
LOADING_ERRORS = (
    OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, RuntimeError,
    EOFError, PickleError, SafetensorError, TemplateError, hub.StrictDataclassError,
)  # fmt: skip
"""What the libraries raise of files that are damaged, or that do not go together."""


def checkpoint_config(model: str) -> Any:
    """The configuration of a checkpoint; raises ModelError if it is not available or its family is not supported."""
    source, revision = located(model)
    with in_one_sentence(model):
        written, _ = PreTrainedConfig.get_config_dict(source, **revision)
        _require_dtypes(model, written)
        config = AutoConfig.from_pretrained(source, **revision, trust_remote_code=False)
    family_of(config)
    return config


def _require_dtypes(model: str, written: Any) -> None:
    """Raise ModelError for a data type in a configuration, or in a part of it, in which no model can be built."""
    for part in [written, *(value for name, value in written.items() if name != "quantization_config")]:
        for key in ("dtype", "torch_dtype") if isinstance(part, dict) else ():
            name = part.get(key)
            if name is not None and name not in DTYPES_OF_CONFIGS:
                bare = str(name).removeprefix("torch.")
                fix = bare if bare in DTYPES_OF_CONFIGS else "the one of its weights, such as bfloat16"
                raise ModelError(
                    f"{model}: its config.json has the {key} {name!r}, in which no model can be built: write {fix}"
                )


def checkpoint_processor(model: str) -> ProcessorMixin:
    """A checkpoint's processor with one chat template, its own or its tokenizer's; raises ModelError like
    `checkpoint_part`, without files that it needs, and without a template."""
    _require_files(model)
    processor = checkpoint_part(AutoProcessor, model)
    texts = getattr(processor, "tokenizer", processor)
    templates = getattr(processor, "chat_template", None) or getattr(texts, "chat_template", None)
    template = templates.get("default") if isinstance(templates, dict) else templates
    if not template:
        others = f", but those named {', '.join(templates)}" if templates else ""
        raise ModelError(
            f"{model} has no chat template (chat_template.jinja){others}: copy the file from the model it was made from"
        )
    processor.chat_template = template
    return processor


def checkpoint_part(kind: Any, model: str, what: str = "") -> Any:
    """A checkpoint's configuration, tokenizer or processor of class `kind`; raises ModelError without one."""
    source, revision = located(model)
    safe = {} if kind is GenerationConfig else {"trust_remote_code": False}  # which it would keep as a setting
    with in_one_sentence(model, what):
        return kind.from_pretrained(source, **revision, **safe)


def located(model: str) -> tuple[str, dict[str, str]]:
    """Where `from_pretrained` finds a checkpoint: a folder, or a hub id and its revision; ModelError for none."""
    source, revision = id_and_revision(existing_source(model))
    if not file_here(model, "config.json"):
        try:  # once: the hub's client would retry for a minute
            get_hf_file_metadata(hf_hub_url(source, "config.json", revision=revision))
        except (_TransportError, OSError, ValueError) as error:
            raise _failure(model, error) from error
    return source, {} if revision is None else {"revision": revision}


@contextmanager
def in_one_sentence(model: str, what: str = "") -> Iterator[None]:
    """Turns what the libraries raise inside this block, where they read or use this checkpoint, into ModelErrors that
    say `what` is wrong; all name the checkpoint."""
    try:
        yield
    except ModelError as error:
        if model in str(error):
            raise
        raise ModelError(f"{model} cannot be used: {error}", setting=error.setting) from error
    except ImportError as error:  # of a package that quantized weights or a processor need
        raise ModelError(f"{model} cannot be loaded here ({first_line(error)})") from error
    except LOADING_ERRORS as error:
        raise _failure(model, error, what) from error


def _failure(model: str, error: BaseException, what: str = "") -> ModelError:
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
    why = f"{model} cannot be loaded ({what}{first_line(error)}): copy or download it again, or check its name"
    return ModelError(why, setting="model")


def _require_files(model: str) -> None:
    """Raise ModelError if a checkpoint folder lacks small files, of which the libraries would say something else."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return
    needed = {
        "tokenizer (tokenizer.json)": ("tokenizer.json", "vocab.*", "*.model", "*.tiktoken", "tekken*"),
        "image processor (processor_config.json)": ("processor_config.json", "preprocessor_config.json"),
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
    """A checkpoint's generation settings, or those implied by its configuration; raises ModelError, also for a value of
    another type or out of range."""
    if not file_here(model, "generation_config.json"):
        return GenerationConfig.from_model_config(checkpoint_config(model))
    return _published_settings(model)


def _published_settings(model: str) -> GenerationConfig:
    settings: GenerationConfig = checkpoint_part(GenerationConfig, model, "generation_config.json is damaged: ")
    _require_valid(settings, f"{model}: its generation_config.json")
    return settings


def _require_valid(settings: GenerationConfig, owner: str) -> None:
    """Raise ModelError if what is read of generation settings has a value of another type, or out of range."""
    for name, (kind, least, most) in PUBLISHED.items():
        value = getattr(settings, name, None)
        values = value if name == "eos_token_id" and isinstance(value, list) else [value]
        kinds = (int, float) if kind is float else (kind,)
        if not all(type(each) in kinds and least <= each <= most for each in values if each is not None):
            words = {bool: "true or false", int: f"a whole number from {least:g}"}
            takes = words.get(kind, f"a number from {least:g}" + (f" to {most:g}" if most < 1e9 else ""))
            raise ModelError(f"{owner} has {name} {value!r}, and takes {takes}: correct it")


def published_sampling(model: str | PreTrainedModel) -> tuple[float, dict[str, float]]:
    """The temperature of a checkpoint or loaded model by its generation settings, 0 if they decode greedily, and what
    else of sampling they change; logs both. Raises ModelError for a checkpoint without generation_config.json."""
    if not isinstance(model, str):
        require_model(model)
        settings = model.generation_config
        _require_valid(settings, f"{type(model).__name__}: its generation_config")
    elif Path(model).expanduser().is_dir() and not file_here(model, "generation_config.json"):
        why = f"{model} has no generation_config.json, and so no published sampling: name the parameters yourself"
        raise ModelError(why, setting="generation")
    else:
        settings = _published_settings(model)
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


def require_processor(processor: Any, config: Any) -> None:
    """Raise ModelError unless the processor's images, placeholders and vocabulary are those of a model's `config`."""
    kind = type(processor).__name__
    if not hasattr(processor, "tokenizer") or not hasattr(processor, "image_processor"):
        raise ModelError(f"{kind} does not process both text and images: pass what AutoProcessor loads for the model")
    tokens = len(processor.tokenizer)
    text = config.get_text_config()
    outputs = text.vocab_size + (getattr(text, "additional_vocab_size", None) or 0)
    image = processor.image_processor
    vision = getattr(config, "vision_config", None)
    patches = getattr(image, "patch_size", None), getattr(image, "merge_size", None)
    wanted = getattr(vision, "patch_size", None), getattr(vision, "spatial_merge_size", None)
    if tokens > outputs:
        differs = f"its tokenizer has {tokens} tokens, the model {outputs}"
    elif family_of(config).by_processor:
        return
    elif processor.image_token_id != config.image_token_id:
        differs = f"its image token is {processor.image_token_id}, the model's {config.image_token_id}"
    elif None not in patches and patches != wanted:
        differs = f"its patches and merges are {patches}, the model's {wanted}"
    else:
        return
    raise ModelError(f"{kind} is the processor of another model ({differs}): load both from the same checkpoint")
