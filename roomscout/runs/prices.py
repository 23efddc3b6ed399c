"""Prices of a model's tokens, from a file of the user: none are built in."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Required

from pydantic import ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from roomscout.base.errors import SettingError
from roomscout.base.record import adapter_of, reasons

TOKENS_PRICED = 1_000_000  # the tokens that a price is for
EXAMPLE = "{input: 1.0, output: 4.0, cached_input: 0.1}"
Amount = Annotated[float, Field(ge=0, le=1e12)]


class _Prices(TypedDict, total=False):
    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    input: Required[Amount]
    output: Required[Amount]
    cached_input: Amount


_PRICES = Annotated[dict[str, _Prices], Field(min_length=1)]


@dataclass(frozen=True)
class Price:
    """The cost of a million tokens in the file's currency; `cached_input` is for those not computed again."""

    model: str
    input: Amount
    output: Amount
    cached_input: Amount

    def of(self, computed: float, reused: float, generated: float) -> float:
        """The price of tokens: of a prompt, computed or reused, and of a reply."""
        return (self.input * computed + self.cached_input * reused + self.output * generated) / TOKENS_PRICED

    def __str__(self) -> str:
        return (
            f"{self.input:g} for a million tokens read, {self.cached_input:g} if cached, and {self.output:g} for a "
            "million written"
        )


def read_price(path: Path, model: str) -> Price:
    """The price of a model, by its name or folder's name. Checks all models of the file; raises SettingError."""
    from roomscout.base.plain_yaml import read_yaml

    try:
        prices = adapter_of(_PRICES).validate_python(read_yaml(path))
    except OSError as error:
        why = f"cannot be read ({error.strerror or error}): name a YAML file"
    except ValidationError as error:
        why = f"has other keys or values: {reasons(error)}; write each model as MODEL: {EXAMPLE}"
    except ValueError as error:
        why = f"cannot be read as YAML: {error}"
    else:
        name = Path(model).name if Path(model).is_absolute() else model
        if name in prices:
            price = prices[name]
            return Price(name, price["input"], price["output"], price.get("cached_input", price["input"]))
        why = f"has no price of {name}, as the run calls its model, only of {', '.join(prices)}: add "
        why += f'"{name}: {EXAMPLE}", with its prices per million tokens'
    raise SettingError(f"{path} {why}", setting="prices")


def in_money(amount: float) -> str:
    """An amount with two decimals, a smaller one with three digits."""
    return f"{amount:,.2f}" if amount >= 1 or not amount else f"{amount:.3g}"
