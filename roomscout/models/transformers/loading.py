"""Loads checkpoints from the hub or a folder; every failure is a one-sentence ModelError."""

import ctypes
import json
from importlib import import_module
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor, BitsAndBytesConfig, GenerationConfig
from transformers.utils import logging

from roomscout.base.files import LFS_POINTER
from roomscout.base.wording import named
from roomscout.models import EMBEDDED, ModelError
from roomscout.models.transformers.families import family_of
from roomscout.models.transformers.source import existing_source, id_and_revision

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

_LOADING_ERRORS = (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError, json.JSONDecodeError)
# The CPU allocator raises plain RuntimeErrors, as do cuBLAS and cuDNN if they cannot allocate a handle or a workspace.
_OUT_OF_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",  # from cublasCreate() when out of memory
    "CUDNN_STATUS_ALLOC_FAILED",
)
# The error of huggingface_hub's HTTP client without a response: of httpx before version 2, of httpx2 since.
_TransportError: type[Exception] = import_module(HfHubHTTPError.__mro__[1].__module__.partition(".")[0]).TransportError
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
KEPT_BYTES = 2**30
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def resolve_device(name: str) -> torch.device:
    """The device for a value of `--device`; "auto" is the first CUDA device, else the CPU. Raises ModelError."""
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelError(
            f"{named('device')} {name!r} is not one device: use auto, cpu, cuda or cuda:<number>; a model is never "
            "split across several"
        ) from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ModelError(
            f"{named(device=name)} is not available: torch sees {torch.cuda.device_count()} CUDA devices; use "
            f"{named(device='cpu')}"
        )
    if device.type not in ("cpu", "cuda"):
        raise ModelError(f"{named('device')} {name!r} is not supported: use auto, cpu, cuda or cuda:<number>")
    if device == torch.device("cuda"):
        return torch.device("cuda", 0)  # some functions of torch.cuda need an index
    return device


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype for a value of `--dtype`; "auto" is bfloat16 on CUDA and float32 elsewhere. Raises ModelError."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name not in _DTYPES:
        raise ModelError(f"{named('dtype')} {name!r} is unknown: use auto, {', '.join(_DTYPES)}")
    return _DTYPES[name]


def usable_bytes(device: torch.device, memory_fraction: float) -> int:
    """Memory that this process may still take: what is free on the device, for the CPU in the machine, within this
    fraction of all that it has."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        taken = torch.cuda.memory_allocated(device)
        free += torch.cuda.memory_reserved(device) - taken  # unused in PyTorch's allocator
        return max(0, min(free, int(memory_fraction * total) - taken))
    import psutil  # GPU machines may lack it

    memory, taken = psutil.virtual_memory(), psutil.Process().memory_info().rss
    return max(0, min(memory.available, int(memory_fraction * memory.total) - taken))


def keep_freed_memory() -> None:
    """Let the whole process reuse memory that it frees, up to KEPT_BYTES. Does nothing without glibc.

    By default glibc returns large tensors to the system and gets new pages for the next ones, which was a tenth of the
    CPU time of a run on a CPU.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        if not library.mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES):
            library.mallopt(_M_MMAP_THRESHOLD, 2**25)  # the most that older versions take


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that a device is out of memory, or was raised while such an error was handled.

    The end of a CUDA graph's capture raises an error of its own, with the one that interrupted the capture as context.
    """
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(words in str(error) for words in _OUT_OF_MEMORY):
        return True
    return error.__context__ is not None and is_out_of_memory(error.__context__)


def load_checkpoint(
    model: str, dtype: torch.dtype, device: torch.device, attention: str, quantize: str | None = None
) -> tuple["PreTrainedModel", "ProcessorMixin"]:
    """The model in eval mode and the processor of a checkpoint (hub id or folder).

    `attention` and `quantize` are values of these settings. Raises ModelError for a checkpoint that is missing, gated,
    unreachable, broken or unsupported.
    """
    source, revision = _located(model)
    config = checkpoint_config(model)
    _require_complete(model)
    if attention == "flash_attention_2" and (device.type != "cuda" or dtype == torch.float32):
        raise ModelError(f"{named(attention=attention)} works only on CUDA, in bfloat16 or float16: use sdpa")
    if quantize is not None and getattr(config, "quantization_config", None):
        raise ModelError(f"{model} has quantized weights already: leave out {named(quantize=quantize)}")
    logging.disable_progress_bar()
    processor = checkpoint_processor(model)
    try:
        loaded, info = AutoModelForImageTextToText.from_pretrained(
            source,
            **revision,
            dtype=dtype,
            device_map={"": device},
            attn_implementation=attention_implementations(attention),
            **quantization(quantize, dtype),
            output_loading_info=True,
        )
    except ImportError as error:
        if quantize is not None:
            raise ModelError(f"{named(quantize=quantize)} cannot be used here ({_first_line(error)})") from error
        if getattr(config, "quantization_config", None):
            raise ModelError(f"{model} is quantized, which needs another package ({_first_line(error)})") from error
        raise ModelError(
            f"{named(attention=attention)} cannot be used here ({_first_line(error)}): use sdpa"
        ) from error
    except _LOADING_ERRORS as error:
        raise ModelError(_reason(model, error)) from error
    if info["missing_keys"] or info["mismatched_keys"]:
        count = len(info["missing_keys"]) + len(info["mismatched_keys"])
        raise ModelError(f"{model} is broken: {count} of its weights are missing or misshapen; download it again")
    for module in loaded.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            # Packing fails for shapes such as those of Qwen3-VL's image encoder, and makes CPUs compute in bfloat16.
            module.support_avx512bf16_for_cpu = False
    return loaded.eval(), processor


def quantization(quantize: str | None, dtype: torch.dtype) -> dict[str, BitsAndBytesConfig]:
    """The argument with which bitsandbytes quantizes linear layers but the head for a value of `--quantize`: "8bit" as
    LLM.int8() (T. Dettmers et al., 2022), "4bit" as NF4 (QLoRA, 2023), computed in `dtype`. Empty for None, since
    an argument of None would hide that the checkpoint itself is quantized."""
    if quantize is None:
        return {}
    getLogger("bitsandbytes.autograd._functions").setLevel("ERROR")  # warns at each call that 8bit computes in float16
    getLogger("bitsandbytes.backends.cpu.ops").setLevel("ERROR")  # warns of a kernel that is not used here
    if quantize == "8bit":
        return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True)}
    four_bit = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    return {"quantization_config": four_bit}


def attention_implementations(attention: str) -> str | dict[str, str] | None:
    """transformers' `attn_implementation` for a value of `--attention`; None is transformers' default.

    flash_attention_2 is for the image encoder only. For text, it would unpad and re-pad all keys and values in each
    layer of each decoding step.
    """
    if attention == "flash_attention_2":
        return {"text_config": "sdpa", "vision_config": attention}
    return None if attention == "auto" else attention


def checkpoint_config(model: str) -> Any:
    """The configuration of a checkpoint; raises ModelError if it is not available or its family is not supported."""
    config = checkpoint_part(AutoConfig, model)
    family_of(config)
    return config


def checkpoint_processor(model: str) -> "ProcessorMixin":
    """A checkpoint's processor; raises ModelError like `checkpoint_part`, and if it has no chat template."""
    processor = checkpoint_part(AutoProcessor, model)
    if not processor.chat_template:
        raise ModelError(
            f"{model} has no chat template (chat_template.jinja): copy the file from the model it was made from"
        )
    return processor


def checkpoint_part(kind: Any, model: str) -> Any:
    """A checkpoint's configuration, tokenizer or processor, loaded by the transformers class `kind`.

    Raises ModelError for a checkpoint that is missing, gated, unreachable or broken.
    """
    source, revision = _located(model)
    try:
        return kind.from_pretrained(source, **revision)
    except _LOADING_ERRORS as error:
        raise ModelError(_reason(model, error)) from error


def is_here(model: str, file: str) -> bool:
    """Whether a checkpoint's file is in its folder or in the local hub cache."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        return (folder / file).is_file()
    source, revision = id_and_revision(model)
    return isinstance(try_to_load_from_cache(source, file, revision=revision), str)


def _located(model: str) -> tuple[str, dict[str, str]]:
    """Where `from_pretrained` finds a checkpoint: a folder's expanded path, or a hub id and, if given, its revision.

    Raises ModelError if there is no such checkpoint.
    """
    source, revision = id_and_revision(existing_source(model))
    if not is_here(model, "config.json"):
        _require_on_hub(model)
    return source, {} if revision is None else {"revision": revision}


def _require_on_hub(model: str) -> None:
    """Raise ModelError unless the hub serves this checkpoint. Asks once; the hub's client would retry for a minute."""
    source, revision = id_and_revision(model)
    try:
        get_hf_file_metadata(hf_hub_url(source, "config.json", revision=revision))
    except (_TransportError, OSError, ValueError) as error:
        raise ModelError(_reason(model, error)) from error


def _reason(model: str, error: BaseException) -> str:
    """Why a checkpoint could not be loaded, and how to fix it, in one sentence."""
    causes = []
    cause: BaseException | None = error
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    for kinds, sentence in (
        (torch.OutOfMemoryError, f"does not fit on the device: use a smaller checkpoint or {named(device='cpu')}"),
        (GatedRepoError, "is gated: accept its terms on huggingface.co, then run `hf auth login`"),
        (RevisionNotFoundError, f"does not exist on huggingface.co: check {named('revision')}"),
        (RepositoryNotFoundError, f"does not exist on huggingface.co (or is private): check {named('model')}"),
        (
            HFValidationError,
            f"is neither a folder nor a hub id such as Qwen/Qwen3-VL-8B-Instruct: check {named('model')}",
        ),
        (
            (OfflineModeIsEnabled, LocalEntryNotFoundError, _TransportError),
            "is not on this machine, and huggingface.co cannot be reached: download it while online, or pass "
            f"{named('model')} a checkpoint folder or {EMBEDDED}",
        ),
    ):
        if any(isinstance(each, kinds) for each in causes):
            return f"{model} {sentence}"
    return f"{model} cannot be loaded ({_first_line(error)}): copy or download it again, or check {named('model')}"


def _require_complete(model: str) -> None:
    """Raise ModelError if a checkpoint folder lacks files, of which the libraries would say something else."""
    folder = Path(model).expanduser()
    needed = {
        "tokenizer (tokenizer.json)": ("tokenizer*", "vocab.*", "*.model", "tekken*"),
        "image processor (processor_config.json)": ("*processor_config.json",),
        "weights (model.safetensors)": ("*.safetensors", "*.bin"),
    }
    lacking = [name for name, patterns in needed.items() if not any(any(folder.glob(each)) for each in patterns)]
    if lacking and folder.is_dir():
        raise ModelError(f"{model} has no {' and no '.join(lacking)}: copy the files from the model it was made from")
    pointers = [path.name for path in sorted(folder.glob("*")) if path.is_file() and _is_lfs_pointer(path)]
    if pointers:
        names = pointers[0] if len(pointers) == 1 else f"{pointers[0]} and {len(pointers) - 1} more"
        raise ModelError(f"{model} holds Git LFS pointers instead of files ({names}): run `git lfs pull` in it")


def _is_lfs_pointer(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(LFS_POINTER)) == LFS_POINTER


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def end_tokens(settings: GenerationConfig, tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """The ids that end a reply: those of the tokenizer and of the checkpoint's generation settings."""
    named = settings.eos_token_id
    return sorted({tokenizer.eos_token_id, *(named if isinstance(named, list) else [named])} - {None})


def generation_settings(model: str) -> GenerationConfig:
    """A checkpoint's generation settings, or those implied by its configuration; raises ModelError."""
    if is_here(model, "generation_config.json"):
        return checkpoint_part(GenerationConfig, model)
    return GenerationConfig.from_model_config(checkpoint_config(model))
