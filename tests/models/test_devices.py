"""Products of large layers on a CPU."""

from contextlib import suppress

import torch

from roomscout.models.transformers.devices import onednn_products


class _OwnLinear(torch.nn.Linear):
    pass


def test_products_are_of_the_weights_as_they_are():
    layer = torch.nn.Linear(512, 1024)
    inputs = torch.randn(2, 3, 512)
    with torch.inference_mode(), onednn_products(layer):
        assert "forward" in vars(layer)
        for _ in range(2):
            expected = torch.nn.functional.linear(inputs, layer.weight, layer.bias)
            torch.testing.assert_close(layer(inputs), expected, atol=1e-5, rtol=1e-5)
            layer.weight.mul_(2)


def test_layers_are_as_they_were():
    hooked = torch.nn.Linear(512, 512)
    hooked.forward = own = torch.nn.functional.relu
    others = [torch.nn.Linear(4, 4), _OwnLinear(512, 512), torch.nn.Linear(512, 512, dtype=torch.float64)]
    large = torch.nn.Linear(512, 512)
    with suppress(KeyboardInterrupt), onednn_products(torch.nn.ModuleList([large, hooked, *others])):
        assert "forward" in vars(large)
        assert not any("forward" in vars(other) for other in others)
        assert hooked.forward is own
        raise KeyboardInterrupt
    assert "forward" not in vars(large)
    assert hooked.forward is own
