"""The operators that PyTorch's compositions call, to explain why a composition is not served.

Only the common ones: the only way to find out what a composition calls is to call it, and not every operator accepts made-up
arguments. tests/python/binding/test_torch_modes.py calls these and compares.
"""

from __future__ import annotations

_TABLE = """
absolute                       abs
arctan                         atan
bilinear                       _trilinear
concat                         cat
conv1d                         convolution
conv2d                         convolution
conv3d                         convolution
cosine_similarity              linalg_vector_norm div.Tensor mul.Tensor sum.dim_IntList
cross_entropy_loss             _log_softmax nll_loss_forward
divide.Tensor                  div.Tensor
einsum                         bmm mul.Tensor
fix                            trunc
greater.Tensor                 gt.Tensor
group_norm                     native_group_norm
hstack                         cat
inner                          mm
kl_div                         mul.Tensor xlogy.Tensor sub.Tensor mean
l1_loss                        sub.Tensor abs mean
layer_norm                     native_layer_norm
less.Tensor                    lt.Tensor
linear                         addmm mm
log_sigmoid                    log_sigmoid_forward
log_softmax.int                _log_softmax
matmul                         mm bmm mv dot
max.other                      maximum
max_pool2d                     max_pool2d_with_indices
min.other                      minimum
multiply.Tensor                mul.Tensor
negative                       neg
outer                          mul.Tensor
pairwise_distance              sub.Tensor add.Scalar norm.ScalarOpt_dim
prelu                          _prelu_kernel
relu6                          hardtanh
rms_norm                       pow.Tensor_Scalar mean.dim rsqrt mul.Tensor
selu                           elu
softmax.int                    _softmax
special_erf                    erf
special_expit                  sigmoid
special_softmax                _softmax
square                         pow.Tensor_Scalar
std                            std.correction
subtract.Tensor                sub.Tensor
tensordot                      mm
true_divide.Tensor             div.Tensor
var                            var.correction
vstack                         cat
"""

#: "aten::layer_norm" to ("aten::native_layer_norm",)
PARTS: dict[str, tuple[str, ...]] = {
    f"aten::{words[0]}": tuple(f"aten::{word}" for word in words[1:])
    for words in (line.split() for line in _TABLE.strip().splitlines())
}
