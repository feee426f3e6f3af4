"""The example of every op declaration parses, verifies, and is canonical text."""

import pytest

from tileir.frontend import parse
from tileir.frontend.examples import example_kernel
from tileir.ir import registry
from tileir.ir.printer import print_module
from tileir.ir.verifier import verify


@pytest.mark.parametrize("name", list(registry.all_ops()))
def test_example(name: str) -> None:
    definition = registry.get(name)
    module = parse(example_kernel(definition))
    kernel = module.kernels[0]
    verify(kernel)
    assert any(op.name == name for op in kernel.walk())
    text = print_module(module)
    assert parse(text) == module
    if not definition.regions and name not in ("yield", "assert"):  # the example of assert nests a comparison
        assert definition.example.split(" : ")[0].split("(axis = 0)")[0] in text
