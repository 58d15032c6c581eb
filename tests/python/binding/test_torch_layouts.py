"""Tests that results of compiled kernels have PyTorch's memory layout, whatever the layout of the inputs: strides,
dtypes, values.

Environment: BUILD; CACHE.
"""
import pytest

from torch_scenarios import Together

BEGIN = """
import torch, aoticache
torch.manual_seed(5)
def agree(names, calls):
    wanted = {what: call() for what, call in calls.items()}
    aoticache.enable(*names, mode="wait", judge=False)
    for _ in range(2):
        got = {what: call() for what, call in calls.items()}
    aoticache.disable()
    found = aoticache.stats().operators
    assert all(found[name].hits >= len(calls) for name in names), (names, found)
    for what, results in wanted.items():
        for one, right in zip(got[what], results, strict=True):
            looks = [(each.dtype, tuple(each.shape), each.stride()) for each in (one, right)]
            assert looks[0] == looks[1], (what, *looks)
            torch.testing.assert_close(one, right, equal_nan=True, msg=lambda words: f"{what}: {words}")
"""

SCENARIOS = {
    "batch_norm": """
        def inputs(dtype, is_short=False):
            x = torch.randn(2, 7, 5, 6, dtype=dtype)
            yield "channels last", x.contiguous(memory_format=torch.channels_last)
            yield "3 dimensions, transposed", torch.randn(3, 5, 7, dtype=dtype).transpose(1, 2)
            if is_short:
                return
            yield "contiguous", x
            yield "one image, channels last", x[:1].contiguous(memory_format=torch.channels_last)
            yield "some channels of more", torch.randn(2, 9, 5, 6, dtype=dtype).to(memory_format=torch.channels_last)[:, 1:8]
            yield "1x1", x[:, :, :1, :1].contiguous(memory_format=torch.channels_last)
            yield "2 dimensions, transposed", torch.randn(7, 6, dtype=dtype).t()
            yield "permuted", torch.randn(6, 7, 5, 2, dtype=dtype).permute(3, 1, 2, 0)
            yield "every second row", torch.randn(2, 7, 10, 6, dtype=dtype)[:, :, ::2]
            yield "volumes", torch.randn(2, 7, 3, 4, 2, dtype=dtype).to(memory_format=torch.channels_last_3d)
        weight, bias, mean, variance = torch.randn(7), torch.randn(7), torch.randn(7), torch.rand(7) + 0.1
        kinds = {"float32": (torch.float32, torch.float32), "float64": (torch.float64, torch.float64),
                 "bfloat16 with parameters of float32": (torch.bfloat16, torch.float32)}
        def normalize(x, is_training, dtype, has_weights):
            weights = (weight.to(dtype), bias.to(dtype)) if has_weights else (None, None)
            running = mean.to(dtype, copy=True), variance.to(dtype, copy=True)
            return *torch.native_batch_norm(x, *weights, *running, is_training, 0.1, 1e-5), *running
        with torch.no_grad():
            agree(["aten::native_batch_norm"], {
                f"{name}, {kind}, training {is_training}, weights {has_weights}":
                    lambda x=x, is_training=is_training, dtype=dtype, has_weights=has_weights:
                        normalize(x, is_training, dtype, has_weights)
                for kind, (of_x, dtype) in kinds.items() for name, x in inputs(of_x, of_x != torch.float32)
                for is_training, has_weights in ((False, True), (False, False), (True, True))})
    """,
    "operators_of_several_tensors": """
        a, b = torch.randn(2, 5, 3), torch.randn(2, 5, 3)
        layouts = {
            "transposed": lambda x: x.permute(2, 1, 0).contiguous().permute(2, 1, 0),
            "channels last": lambda x: x.movedim(1, -1).contiguous().movedim(-1, 1),
            "every second": lambda x: x.repeat_interleave(2, 2)[:, :, ::2],
            "as it is": lambda x: x,
            "one element for all": lambda x: x[0, 0, 0],
            "one row for all": lambda x: x[0, 0],
        }
        names = {"aten::fmax": torch.fmax, "aten::copysign.Tensor": torch.copysign, "aten::xlogy.Tensor": torch.xlogy,
                 "aten::native_dropout_backward":
                     lambda x, y: torch.ops.aten.native_dropout_backward(x, (y > 0).expand(2, 5, 3), 2.0)}
        same = [(one, one) for one in list(layouts)[:3]]
        for name, call in names.items():
            agree([name], {f"{name}, {one}, {other}": lambda x=x(a), y=y(b), call=call: [call(x, y)]
                           for one, x in layouts.items() for other, y in layouts.items()
                           if (one, other) in same or ((one == "transposed") != (other == "transposed")
                           and (x(a).dim() == 3 or "dropout" not in name))})
    """,
}


together = Together(BEGIN)


@pytest.mark.parametrize("name", SCENARIOS)
def test_together(name):
    together.play(name, SCENARIOS[name])
