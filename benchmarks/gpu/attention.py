"""Times the attention of a decoding step alone, one new token a row, in each way that PyTorch may offer."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from statistics import median

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.gpu.lab import Lab
from benchmarks.gpu.report import Results
from benchmarks.turns import SHAPES
from roomscout.base.text import first_line
from roomscout.models.transformers.attention import PAGE
from roomscout.models.transformers.kv_cache import buffer_columns
from roomscout.models.transformers.steps import captured

_ROWS = (8, 32, 64)
_COLUMNS = 2_172  # the mean of the rows; the shortest has a fifth less, the longest a fifth more
_BUFFERS = 4  # which layers take in turn, so that none is still in the GPU's own cache
_REPEATS = 20
_TOLERANCE = 0.005  # between outputs of two ways, which are below 0.3
_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]  # cuDNN plans each length

Way = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""From queries (rows, heads, head size), keys and values (slots, columns, key heads, head size) to (rows, heads, head
size)."""


def ways(used: torch.Tensor, columns: int) -> dict[str, Way]:
    """All ways by name, for rows that use so many of the `columns` of their slots; every PyTorch has the first.

    "Causal" changes nothing for one token a row, but then flash attention does not serve the query heads that share a
    key head together.
    """
    rows = len(used)
    first = torch.arange(rows + 1, dtype=torch.int32, device=used.device)
    starts = first * columns
    beyond = torch.arange(columns, device=used.device) >= used[:, None, None, None]
    mask = torch.zeros(beyond.shape, dtype=torch.bfloat16, device=used.device)
    mask.masked_fill_(beyond, torch.finfo(mask.dtype).min)

    def masked(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        grouped = query.unflatten(1, (keys.shape[2], -1))
        kept = keys.transpose(1, 2), values.transpose(1, 2)
        return scaled_dot_product_attention(grouped, *kept, attn_mask=mask).flatten(1, 2)

    def by_starts(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, right: int | None) -> torch.Tensor:
        flat = keys.flatten(0, 1), values.flatten(0, 1)
        return torch.ops.aten._flash_attention_forward(
            query, *flat, first, starts, 1, columns, 0.0, True, False, seqused_k=used,
            window_size_right=right,
        )[0]  # fmt: skip

    def paged(page: int, right: int, splits: int | None) -> Way:
        table = torch.arange(rows * columns // page, dtype=torch.int32, device=used.device).view(rows, -1)

        def attend(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
            pages = [states.view(-1, page, *states.shape[2:]) for states in (keys, values)]
            attended = varlen_attn(
                query, *pages, first, None, 1, columns, window_size=(-1, right), enable_gqa=True, seqused_k=used,
                block_table=table, num_splits=splits,
            )  # fmt: skip
            assert isinstance(attended, torch.Tensor), "nothing else was asked for"
            return attended

        return attend

    found: dict[str, Way] = {"a mask over all slots": masked}
    for causal, right in (("causal ", 0), ("", None)):
        found[f"{causal}starts and lengths"] = partial(by_starts, right=right)
    for page, (causal, right), splits in product((columns, PAGE), (("causal ", 0), ("", -1)), (1, None)):
        pages = "slots as pages" if page == columns else f"pages of {page}"
        found[f"{causal}{pages} in {'chosen splits' if splits is None else 'one split'}"] = paged(page, right, splits)
    return found


@dataclass
class _Found:
    """What is known of the ways, by their names."""

    ms: dict[str, dict[int, float]] = field(default_factory=dict)  # of all layers, by number of rows
    unable: dict[str, str] = field(default_factory=dict)  # why PyTorch cannot
    wrong: list[str] = field(default_factory=list)  # whose output is another than the first way's


def one_query_a_row(lab: Lab, results: Results) -> str:
    """Time all layers of the large shape in each way, as one CUDA graph, beside reading the rows' keys and values once.

    What PyTorch cannot do here is named. Fails if the outputs of two ways differ.
    """
    found = _Found()
    for rows in _ROWS:
        _time_ways(lab, rows, found)
        lab.free_memory()
    results.machine["attention"] = asdict(found)
    parts = [f"{' / '.join(map(str, _ROWS))} rows"]
    parts += [f"{name} {' / '.join(f'{ms:.2f}' for ms in by_rows.values())} ms" for name, by_rows in found.ms.items()]
    for why in dict.fromkeys(found.unable.values()):
        names = [name for name, reason in found.unable.items() if reason == why]
        parts.append(f"not here ({why}): {', '.join(names)}")
    assert not found.wrong, "; ".join([f"wrong: {', '.join(found.wrong)}", *parts])
    return "; ".join(parts)


def _time_ways(lab: Lab, rows: int, found: _Found) -> None:
    """Add what is found with so many rows."""
    shape = SHAPES[lab.sizes.large]
    used = torch.linspace(0.8 * _COLUMNS, 1.2 * _COLUMNS, rows, device=lab.device).int()
    columns = buffer_columns(int(used.max()))
    random = partial(torch.randn, device=lab.device, dtype=lab.dtype)
    query = random(rows, shape.heads, shape.head_dim)
    layers = [random(2, rows, columns, shape.kv_heads, shape.head_dim) for _ in range(_BUFFERS)]
    layers = [layers[layer % _BUFFERS] for layer in range(shape.layers)]
    column_bytes = shape.layers * 2 * shape.kv_heads * shape.head_dim * query.itemsize
    found.ms.setdefault("roofline", {})[rows] = 1000 * int(used.sum()) * column_bytes / lab.rates.bytes_per_s
    expected: torch.Tensor | None = None
    for name, way in ways(used, columns).items():
        attend = partial(_attend, way, query, layers)
        try:
            with torch.inference_mode(), sdpa_kernel(_KERNELS):
                attended = attend()  # loads kernels
                found.ms.setdefault(name, {})[rows] = _median_ms(captured(lab.device, attend))
        except (RuntimeError, TypeError, ValueError) as error:
            found.unable[name] = first_line(error)
            continue
        expected = attended if expected is None else expected
        if (attended - expected).abs().max() > _TOLERANCE:
            found.wrong.append(f"{name} of {rows} rows")


def _attend(way: Way, query: torch.Tensor, layers: Sequence[torch.Tensor]) -> torch.Tensor:
    """Attend in all layers; returns the first one's output."""
    first, *_ = [way(query, *states) for states in layers]
    return first


def _median_ms(replay: Callable[[], object]) -> float:
    """The median milliseconds of a graph."""
    taken = []
    for _ in range(_REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        replay()
        end.record()
        end.synchronize()
        taken.append(start.elapsed_time(end))
    return median(taken)
