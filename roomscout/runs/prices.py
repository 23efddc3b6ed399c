"""Prices of a model's tokens, from a file of the user: none are built in."""

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from roomscout.base.wording import named

TOKENS_PRICED = 1_000_000
"""The tokens that a price is for."""
EXAMPLE = "{input: 1.0, output: 4.0, cached_input: 0.1}"
Amount = Annotated[float, Field(ge=0, le=1e12)]


@dataclass(frozen=True)
class Price:
    """What a million tokens of a model cost, in the currency of the file.

    `cached_input` is for tokens that the model, or a cache of its server, did not compute again.
    """

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


def name_of_model(model: str) -> str:
    """The name of a model as people know it: a folder by its last part, so that no path of a machine is in it."""
    return Path(model).name if Path(model).is_absolute() else model


RATES = tuple(each.name for each in fields(Price) if each.name != "model")


def read_price(path: Path, model: str) -> Price:
    """The price of a model, called as the run calls it or, if that is a folder, by the folder's name.

    Without `cached_input`, cached tokens cost what others do. Checks all models of the file. Raises ValueError with a
    sentence that names the file.
    """
    prices = {name: _price(path, name, values) for name, values in _models(path).items()}
    name = name_of_model(model)
    if name not in prices:
        raise ValueError(
            f"{named(prices=path)} has no price of {name}, as the run calls its model, only of {', '.join(prices)}: "
            f'add "{name}: {EXAMPLE}", with its prices per million tokens'
        )
    return prices[name]


def _models(path: Path) -> dict[str, Any]:
    """What the file has of each model."""
    from roomscout.base.plain_yaml import read_yaml

    try:
        found = read_yaml(path)
    except OSError as error:
        raise ValueError(f"{named(prices=path)} cannot be read ({error.strerror or error}): name a YAML file") from None
    except ValueError as error:
        raise ValueError(f"{named(prices=path)} cannot be read as YAML: {error}") from None
    if not found or not isinstance(found, dict):
        raise ValueError(f'{named(prices=path)} has no prices: write lines such as "MODEL: {EXAMPLE}"')
    return {str(name): values for name, values in found.items()}


def _price(path: Path, model: str, values: Any) -> Price:
    where = f"{named(prices=path)}, {model}"
    if not isinstance(values, dict):
        raise ValueError(f"{where}: write its prices as {EXAMPLE}")
    if unknown := [name for name in values if name not in RATES]:
        raise ValueError(f"{where}: there is no price called {unknown[0]}, only {', '.join(RATES)}")
    if missing := [name for name in ("input", "output") if name not in values]:
        raise ValueError(f"{where}: {' and '.join(missing)} missing: write its prices as {EXAMPLE}")
    amounts = {name: _amount(where, name, text) for name, text in values.items()}
    return Price(model, **({"cached_input": amounts["input"]} | amounts))


def _amount(where: str, name: str, text: Any) -> float:
    try:
        amount = float(text)
    except (TypeError, ValueError):
        amount = math.nan
    if not 0 <= amount <= 1e12:
        raise ValueError(f"{where}: {name} takes a number that is not negative, such as 1.0, got {text}")
    return amount


def in_money(amount: float) -> str:
    """An amount with two decimals, a smaller one with three digits."""
    return f"{amount:,.2f}" if amount >= 1 or not amount else f"{amount:.3g}"
