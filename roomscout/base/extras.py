"""Packages that not every use needs: the extra of ours that installs each, and the sentence for a missing one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

EXTRA_OF = {  # the extra of pyproject.toml that installs a module
    **dict.fromkeys(("torch", "torchvision", "transformers", "accelerate", "psutil", "pynvml"), "models"),
    **dict.fromkeys(("datasets", "pyarrow"), "hub"),
    "av": "video",
    "bitsandbytes": "quantize",
    "ray": "ray",
    **dict.fromkeys(("peft", "trl", "gymnasium", "tensorboard"), "train"),
    "rerun": "report",
    "matplotlib": "paper",
    "inspect_ai": "inspect",
}
INCLUDED = {"train": {"models", "paper"}, "quantize": {"models"}}  # the extras that an extra installs as well
PACKAGE_OF = {"pynvml": "nvidia-ml-py", "rerun": "rerun-sdk", "inspect_ai": "inspect-ai"}
"""What pip calls modules of another name."""
FROM = {"gsplat": "gsplat on a machine with CUDA"}  # what pip takes for modules of no extra, if not their name


def how_to_install(*modules: str) -> str:
    """The command that installs modules: those of extras, or others."""
    extras = {EXTRA_OF[module] for module in modules if module in EXTRA_OF}
    if not extras:
        return f"pip install {' '.join(FROM.get(module, module) for module in modules)}"
    for extra in extras & INCLUDED.keys():
        extras = extras - INCLUDED[extra]
    names = ",".join(sorted(extras))
    return f'pip install "roomscout[{names}]", or in a checkout pip install -e ".[{names}]"'


def needs(what: str, *modules: str) -> str:
    """The sentence that `what` needs modules, and how to install them."""
    names = ", ".join(PACKAGE_OF.get(module, module) for module in modules)
    return f"{what} needs the package{'s' * (len(modules) > 1)} {names}: {how_to_install(*modules)}"


def is_installed(module: str) -> bool:
    """Whether a top-level module can be found, without importing it."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # of a finder that forbids it, or of a module in memory without a spec
        return False


def require(what: str, *modules: str, error: Callable[[str], Exception]) -> None:
    """Raise `error` with the modules that `what` needs and that are not installed, if any. Imports none of them."""
    if lacking := [module for module in modules if not is_installed(module)]:
        raise error(needs(what, *lacking))


@contextmanager
def importing(module: str, what: str, error: Callable[[str], BaseException]) -> Iterator[None]:
    """Raise `error` if the block cannot import a module that `what` needs, or what that module needs."""
    try:
        yield
    except ImportError as missing:
        why = f" ({missing})" if is_installed(module) else ""
        raise error(f"{needs(what, module)}{why}") from missing
