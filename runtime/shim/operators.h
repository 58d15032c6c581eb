/*
 * shim/operators: whole operators of PyTorch that kernel libraries call because AOTInductor generates no code for them,
 * declared for C. Matrix multiplications that write to an existing tensor are declared in torch_abi.h.
 *
 * Source: torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h, c_shim_aten.h and c/shim.h of PyTorch 2.13. A pointer
 * to a handle, a number or a text is an optional argument, NULL if it is not given. Results are new tensors that the
 * caller deletes.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_OPERATORS_H
#define AOTICACHE_RUNTIME_SHIM_OPERATORS_H

#include "runtime/shim/torch_abi.h"

/* ---- views/views.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_permute(AtenTensorHandle self, const int64_t *dims, int64_t num_dims,
                                                  AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_squeeze_dim(AtenTensorHandle self, int64_t dim, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_slice_Tensor(AtenTensorHandle self, int64_t dim, int64_t *start, int64_t *end,
                                                       int64_t step, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_narrow(AtenTensorHandle self, int64_t dim, int64_t start, int64_t length,
                                                 AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_reshape(AtenTensorHandle self, const int64_t *shape, int64_t num_shape,
                                                  AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_view_as_complex(AtenTensorHandle self, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_view_as_real(AtenTensorHandle self, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_resize_(AtenTensorHandle self, const int64_t *size, int64_t num_size,
                                                  int32_t *memory_format);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_resize_as_(AtenTensorHandle self, AtenTensorHandle the_template,
                                                     int32_t *memory_format);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_set__source_Tensor(AtenTensorHandle self, AtenTensorHandle source);
SHIM_EXPORT AOTITorchError aoti_torch_aten_narrow(AtenTensorHandle self, int64_t dim, int64_t start, int64_t length,
                                                  AtenTensorHandle *ret_0);

/* ---- indexing/scan.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_cumsum(AtenTensorHandle self, int64_t dim, int32_t *dtype,
                                                 AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_cumprod(AtenTensorHandle self, int64_t dim, int32_t *dtype,
                                                  AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_cummax(AtenTensorHandle self, int64_t dim, AtenTensorHandle *ret_0,
                                                 AtenTensorHandle *ret_1);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_cummin(AtenTensorHandle self, int64_t dim, AtenTensorHandle *ret_0,
                                                 AtenTensorHandle *ret_1);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_logcumsumexp(AtenTensorHandle self, int64_t dim, AtenTensorHandle *ret_0);

/* ---- indexing/sort.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_sort(AtenTensorHandle self, int64_t dim, int32_t descending,
                                               AtenTensorHandle *ret_0, AtenTensorHandle *ret_1);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_sort_stable(AtenTensorHandle self, int32_t *stable, int64_t dim,
                                                      int32_t descending, AtenTensorHandle *ret_0,
                                                      AtenTensorHandle *ret_1);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_topk(AtenTensorHandle self, int64_t k, int64_t dim, int32_t largest,
                                               int32_t sorted, AtenTensorHandle *ret_0, AtenTensorHandle *ret_1);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_kthvalue(AtenTensorHandle self, int64_t k, int64_t dim, int32_t keepdim,
                                                   AtenTensorHandle *ret_0, AtenTensorHandle *ret_1);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_median(AtenTensorHandle self, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_nanmedian(AtenTensorHandle self, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_mode(AtenTensorHandle self, int64_t dim, int32_t keepdim,
                                               AtenTensorHandle *ret_0, AtenTensorHandle *ret_1);

/* ---- indexing/select.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_masked_select(AtenTensorHandle self, AtenTensorHandle mask,
                                                        AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_nonzero(AtenTensorHandle self, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_nonzero_static(AtenTensorHandle self, int64_t size, int64_t fill_value,
                                                         AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_masked_scatter(AtenTensorHandle self, AtenTensorHandle mask,
                                                         AtenTensorHandle source, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_repeat_interleave_Tensor(AtenTensorHandle repeats, int64_t *output_size,
                                                                   AtenTensorHandle *ret_0);

/* ---- indexing/index.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_index_Tensor(AtenTensorHandle self, const AtenTensorHandle **indices,
                                                       int64_t num_indices, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_index_put(AtenTensorHandle self, const AtenTensorHandle **indices,
                                                    int64_t num_indices, AtenTensorHandle values, int32_t accumulate,
                                                    AtenTensorHandle *ret_0);

/* ---- indexing/scatter.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_scatter_src_out(AtenTensorHandle out, AtenTensorHandle self, int64_t dim,
                                                          AtenTensorHandle index, AtenTensorHandle src);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_scatter_value_out(AtenTensorHandle out, AtenTensorHandle self, int64_t dim,
                                                            AtenTensorHandle index, double value);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_scatter_reduce_two_out(AtenTensorHandle out, AtenTensorHandle self,
                                                                 int64_t dim, AtenTensorHandle index,
                                                                 AtenTensorHandle src, const char *reduce,
                                                                 int32_t include_self);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_index_reduce(AtenTensorHandle self, int64_t dim, AtenTensorHandle index,
                                                       AtenTensorHandle source, const char *reduce,
                                                       int32_t include_self, AtenTensorHandle *ret_0);

/* ---- indexing/search.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_searchsorted_Tensor(AtenTensorHandle sorted_sequence, AtenTensorHandle self,
                                                              int32_t out_int32, int32_t right, const char **side,
                                                              AtenTensorHandle *sorter, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_searchsorted_Scalar(AtenTensorHandle sorted_sequence, double self,
                                                              int32_t out_int32, int32_t right, const char **side,
                                                              AtenTensorHandle *sorter, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_bucketize_Tensor(AtenTensorHandle self, AtenTensorHandle boundaries,
                                                           int32_t out_int32, int32_t right, AtenTensorHandle *ret_0);

/* ---- math/fft.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu__fft_r2c(AtenTensorHandle self, const int64_t *dim, int64_t num_dim,
                                                   int64_t normalization, int32_t onesided, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu__fft_c2c(AtenTensorHandle self, const int64_t *dim, int64_t num_dim,
                                                   int64_t normalization, int32_t forward, AtenTensorHandle *ret_0);

/* ---- random/random.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_rand(const int64_t *size, int64_t num_size, int32_t *dtype, int32_t *layout,
                                               int32_t *device, int32_t device_index_, int32_t *pin_memory,
                                               AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_rand_generator(const int64_t *size, int64_t num_size,
                                                         AtenGeneratorHandle *generator, int32_t *dtype,
                                                         int32_t *layout, int32_t *device, int32_t device_index_,
                                                         int32_t *pin_memory, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_rand_like(AtenTensorHandle self, int32_t *dtype, int32_t *layout,
                                                    int32_t *device, int32_t device_index_, int32_t *pin_memory,
                                                    int32_t *memory_format, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_rand_like_generator(AtenTensorHandle self, AtenGeneratorHandle *generator,
                                                              int32_t *dtype, int32_t *layout, int32_t *device,
                                                              int32_t device_index_, int32_t *pin_memory,
                                                              int32_t *memory_format, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_randn(const int64_t *size, int64_t num_size, int32_t *dtype, int32_t *layout,
                                                int32_t *device, int32_t device_index_, int32_t *pin_memory,
                                                AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_randn_generator(const int64_t *size, int64_t num_size,
                                                          AtenGeneratorHandle *generator, int32_t *dtype,
                                                          int32_t *layout, int32_t *device, int32_t device_index_,
                                                          int32_t *pin_memory, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_randn_like(AtenTensorHandle self, int32_t *dtype, int32_t *layout,
                                                     int32_t *device, int32_t device_index_, int32_t *pin_memory,
                                                     int32_t *memory_format, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_randn_like_generator(AtenTensorHandle self, AtenGeneratorHandle *generator,
                                                               int32_t *dtype, int32_t *layout, int32_t *device,
                                                               int32_t device_index_, int32_t *pin_memory,
                                                               int32_t *memory_format, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_randint(int64_t high, const int64_t *size, int64_t num_size, int32_t *dtype,
                                                  int32_t *layout, int32_t *device, int32_t device_index_,
                                                  int32_t *pin_memory, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_randint_generator(int64_t high, const int64_t *size, int64_t num_size,
                                                            AtenGeneratorHandle *generator, int32_t *dtype,
                                                            int32_t *layout, int32_t *device, int32_t device_index_,
                                                            int32_t *pin_memory, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_randint_low(int64_t low, int64_t high, const int64_t *size, int64_t num_size,
                                                      int32_t *dtype, int32_t *layout, int32_t *device,
                                                      int32_t device_index_, int32_t *pin_memory,
                                                      AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_randint_low_out(AtenTensorHandle out, int64_t low, int64_t high,
                                                          const int64_t *size, int64_t num_size);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_randint_like(AtenTensorHandle self, int64_t high, int32_t *dtype,
                                                       int32_t *layout, int32_t *device, int32_t device_index_,
                                                       int32_t *pin_memory, int32_t *memory_format,
                                                       AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_randint_like_low_dtype(AtenTensorHandle self, int64_t low, int64_t high,
                                                                 int32_t *dtype, int32_t *layout, int32_t *device,
                                                                 int32_t device_index_, int32_t *pin_memory,
                                                                 int32_t *memory_format, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_randperm(int64_t n, int32_t *dtype, int32_t *layout, int32_t *device,
                                                   int32_t device_index_, int32_t *pin_memory, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_uniform(AtenTensorHandle self, double from, double to,
                                                  AtenGeneratorHandle *generator, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_normal_functional(AtenTensorHandle self, double mean, double std,
                                                            AtenGeneratorHandle *generator, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_exponential(AtenTensorHandle self, double lambd,
                                                      AtenGeneratorHandle *generator, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_bernoulli__Tensor(AtenTensorHandle self, AtenTensorHandle p,
                                                            AtenGeneratorHandle *generator);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_bernoulli__float(AtenTensorHandle self, double p,
                                                           AtenGeneratorHandle *generator);

/* ---- indexing/segment.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_segment_reduce(AtenTensorHandle data, const char *reduce,
                                                         AtenTensorHandle *lengths, AtenTensorHandle *indices,
                                                         AtenTensorHandle *offsets, int64_t axis, int32_t unsafe,
                                                         double *initial, AtenTensorHandle *ret_0);

/* ---- math/distance.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu__pdist_forward(AtenTensorHandle self, double p, AtenTensorHandle *ret_0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu__cdist_forward(AtenTensorHandle x1, AtenTensorHandle x2, double p,
                                                         int64_t *compute_mode, AtenTensorHandle *ret_0);

/* ---- math/grid.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_grid_sampler_3d(AtenTensorHandle input, AtenTensorHandle grid,
                                                          int64_t interpolation_mode, int64_t padding_mode,
                                                          int32_t align_corners, AtenTensorHandle *ret_0);

/* ---- math/embedding_bag.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu__embedding_bag(AtenTensorHandle weight, AtenTensorHandle indices,
                                                         AtenTensorHandle offsets, int32_t scale_grad_by_freq,
                                                         int64_t mode, int32_t sparse,
                                                         AtenTensorHandle *per_sample_weights,
                                                         int32_t include_last_offset, int64_t padding_idx,
                                                         AtenTensorHandle *ret_0, AtenTensorHandle *ret_1,
                                                         AtenTensorHandle *ret_2, AtenTensorHandle *ret_3);
SHIM_EXPORT AOTITorchError aoti_torch_cpu__embedding_bag_forward_only(
    AtenTensorHandle weight, AtenTensorHandle indices, AtenTensorHandle offsets, int32_t scale_grad_by_freq,
    int64_t mode, int32_t sparse, AtenTensorHandle *per_sample_weights, int32_t include_last_offset,
    int64_t padding_idx, AtenTensorHandle *ret_0, AtenTensorHandle *ret_1, AtenTensorHandle *ret_2,
    AtenTensorHandle *ret_3);

/* ---- math/integer.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_gcd(AtenTensorHandle self, AtenTensorHandle other, AtenTensorHandle *ret_0);

/* ---- older names, without the device (c/shim.h) ---- */
SHIM_EXPORT AOTITorchError aoti_torch_scatter_out(AtenTensorHandle out, AtenTensorHandle self, int64_t dim,
                                                  AtenTensorHandle index, AtenTensorHandle src);
SHIM_EXPORT AOTITorchError aoti_torch_scatter_reduce_out(AtenTensorHandle out, AtenTensorHandle self, int64_t dim,
                                                         AtenTensorHandle index, AtenTensorHandle src,
                                                         const char *reduce, int32_t include_self);
SHIM_EXPORT AOTITorchError aoti_torch_index_put_out(AtenTensorHandle out, AtenTensorHandle self,
                                                    const AtenTensorHandle *indices, uint32_t num_indices,
                                                    AtenTensorHandle values, bool accumulate);
/* PyTorch 2.13 calls it through its proxy executor; the result has `last_size` elements along the last of `dim`. */
SHIM_EXPORT AOTITorchError aoti_torch_cpu__fft_c2r(AtenTensorHandle self, const int64_t *dim, int64_t num_dim,
                                                   int64_t normalization, int64_t last_size, AtenTensorHandle *ret_0);

/*
 * Not in PyTorch: seeds the generator of all random functions, as torch.manual_seed() does. A process that does not
 * call it begins with PyTorch's own default seed, 67280421310721, so its numbers are the same in every run. Any thread
 * may call it.
 */
SHIM_EXPORT void torch_aoticache_manual_seed(uint64_t seed);

/*
 * Not in PyTorch: loads the library that multiplies large matrices of floats and lets it generate its code, which takes
 * oneDNN 25 milliseconds. Otherwise the first multiplication would do it; a loader calls this on a separate thread
 * while weights are copied.
 */
SHIM_EXPORT void torch_aoticache_prepare_products(void);

/* ---- math/matmul.c: functions that make their result ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_addmv(AtenTensorHandle self, AtenTensorHandle mat, AtenTensorHandle vec,
                                                double beta, double alpha, AtenTensorHandle *ret_tensor);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_addbmm(AtenTensorHandle self, AtenTensorHandle batch1,
                                                 AtenTensorHandle batch2, double beta, double alpha,
                                                 AtenTensorHandle *ret_tensor);

/* ---- math/attention.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(
    AtenTensorHandle query, AtenTensorHandle key, AtenTensorHandle value, double dropout_p, int32_t is_causal,
    AtenTensorHandle *attn_mask, double *scale, AtenTensorHandle *ret_0, AtenTensorHandle *ret_1);

/* ---- math/lstm.c ---- */
/* weight2 and weight3 are the biases. ret3 is empty: only a gradient reads it. */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_mkldnn_rnn_layer(
    AtenTensorHandle input, AtenTensorHandle weight0, AtenTensorHandle weight1, AtenTensorHandle weight2,
    AtenTensorHandle weight3, AtenTensorHandle hx_, AtenTensorHandle cx_, int32_t reverse, const int64_t *batch_sizes,
    int64_t batch_sizes_len_, int64_t mode, int64_t hidden_size, int64_t num_layers, int32_t has_biases,
    int32_t bidirectional, int32_t batch_first, int32_t train, AtenTensorHandle *ret0, AtenTensorHandle *ret1,
    AtenTensorHandle *ret2, AtenTensorHandle *ret3);

/* ---- math/fused.c ---- */
/* B: NULL, or a pointer to the handle. algorithm, unary_attr: NULL, or a pointer to the name. */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise(
    AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle *B, const int64_t *padding, int64_t padding_len_,
    const int64_t *stride, int64_t stride_len_, const int64_t *dilation, int64_t dilation_len_, int64_t groups,
    const char *attr, const double **scalars, int64_t scalars_len_, const char **algorithm, AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise_binary(
    AtenTensorHandle X, AtenTensorHandle other, AtenTensorHandle W, AtenTensorHandle *B, const int64_t *padding,
    int64_t padding_len_, const int64_t *stride, int64_t stride_len_, const int64_t *dilation, int64_t dilation_len_,
    int64_t groups, const char *binary_attr, double *alpha, const char **unary_attr, const double **unary_scalars,
    int64_t unary_scalars_len_, const char **unary_algorithm, AtenTensorHandle *ret0);
/* The result is `other`. */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise_binary_(
    AtenTensorHandle other, AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle *B, const int64_t *padding,
    int64_t padding_len_, const int64_t *stride, int64_t stride_len_, const int64_t *dilation, int64_t dilation_len_,
    int64_t groups, const char *binary_attr, double *alpha, const char **unary_attr, const double **unary_scalars,
    int64_t unary_scalars_len_, const char **unary_algorithm, AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_mkldnn__convolution_transpose_pointwise(
    AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle *B, const int64_t *padding, int64_t padding_len_,
    const int64_t *output_padding, int64_t output_padding_len_, const int64_t *stride, int64_t stride_len_,
    const int64_t *dilation, int64_t dilation_len_, int64_t groups, const char *attr, const double **scalars,
    int64_t scalars_len_, const char **algorithm, AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu__linear_pointwise(AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle *B,
                                                            const char *attr, const double **scalars,
                                                            int64_t scalars_len_, const char **algorithm,
                                                            AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu__linear_pointwise_binary(AtenTensorHandle X, AtenTensorHandle other,
                                                                   AtenTensorHandle W, AtenTensorHandle *B,
                                                                   const char *attr, AtenTensorHandle *ret0);

/* ---- math/convolution.c ---- */
/* bias: NULL, or a pointer to the handle. */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_convolution(AtenTensorHandle input, AtenTensorHandle weight,
                                                      AtenTensorHandle *bias, const int64_t *stride,
                                                      int64_t stride_count, const int64_t *padding,
                                                      int64_t padding_count, const int64_t *dilation,
                                                      int64_t dilation_count, int32_t transposed,
                                                      const int64_t *output_padding, int64_t output_padding_count,
                                                      int64_t groups, AtenTensorHandle *ret_tensor);

/* ---- math/quantized_products.c ---- */
/* out: int32; self: int8 or uint8; mat2: int8. */
SHIM_EXPORT AOTITorchError aoti_torch_cpu__int_mm_out(AtenTensorHandle out, AtenTensorHandle self,
                                                      AtenTensorHandle mat2);
SHIM_EXPORT AOTITorchError aoti_torch_cpu__weight_int8pack_mm(AtenTensorHandle self, AtenTensorHandle mat2,
                                                              AtenTensorHandle scales, AtenTensorHandle *ret0);
/* w is laid out for the processor's vectors by aten::_convert_weight_to_int4pack_for_cpu. */
SHIM_EXPORT AOTITorchError aoti_torch_cpu__weight_int4pack_mm_cpu_tensor(AtenTensorHandle X, AtenTensorHandle w,
                                                                         AtenTensorHandle qGroupSize,
                                                                         AtenTensorHandle qScaleAndZeros,
                                                                         AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu__scaled_mm(AtenTensorHandle self, AtenTensorHandle mat2,
                                                     AtenTensorHandle scale_a, AtenTensorHandle scale_b,
                                                     AtenTensorHandle *bias, AtenTensorHandle *scale_result,
                                                     int32_t *out_dtype, int32_t use_fast_accum,
                                                     AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu__scaled_mm_out(AtenTensorHandle out, AtenTensorHandle self,
                                                         AtenTensorHandle mat2, AtenTensorHandle scale_a,
                                                         AtenTensorHandle scale_b, AtenTensorHandle *bias,
                                                         AtenTensorHandle *scale_result, int32_t *out_dtype,
                                                         int32_t use_fast_accum);

/* ---- math/quantized_linear.c, math/quantized_convolution.c ---- */
/* onednn::qlinear_pointwise.tensor: act_scale and act_zero_point have one element, weight_scales one or one per result. */
SHIM_EXPORT AOTITorchError aoti_torch_cpu__qlinear_pointwise_tensor(
    AtenTensorHandle X, AtenTensorHandle act_scale, AtenTensorHandle act_zero_point, AtenTensorHandle onednn_weight,
    AtenTensorHandle weight_scales, AtenTensorHandle weight_zero_points, AtenTensorHandle *B, double output_scale,
    int64_t output_zero_point, const int32_t *output_dtype, const char *post_op_name, const double **post_op_args,
    int64_t post_op_args_len_, const char *post_op_algorithm, AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu__qlinear_pointwise_binary_tensor(
    AtenTensorHandle X, AtenTensorHandle act_scale, AtenTensorHandle act_zero_point, AtenTensorHandle onednn_weight,
    AtenTensorHandle weight_scales, AtenTensorHandle weight_zero_points, AtenTensorHandle *other, AtenTensorHandle *B,
    double output_scale, int64_t output_zero_point, const int32_t *output_dtype, double other_scale,
    int64_t other_zero_point, const char *binary_post_op, double binary_alpha, const char *unary_post_op,
    const double **unary_post_op_args, int64_t unary_post_op_args_len_, const char *unary_post_op_algorithm,
    AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu__qconv_pointwise_tensor(
    AtenTensorHandle X, AtenTensorHandle act_scale, AtenTensorHandle act_zero_point, AtenTensorHandle onednn_weight,
    AtenTensorHandle weight_scales, AtenTensorHandle weight_zero_points, AtenTensorHandle *B, const int64_t *stride,
    int64_t stride_len_, const int64_t *padding, int64_t padding_len_, const int64_t *dilation, int64_t dilation_len_,
    int64_t groups, double output_scale, int64_t output_zero_point, const int32_t *output_dtype, const char *attr,
    const double **post_op_args, int64_t post_op_args_len_, const char **algorithm, AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu__qconv2d_pointwise_binary_tensor(
    AtenTensorHandle X, AtenTensorHandle act_scale, AtenTensorHandle act_zero_point, AtenTensorHandle onednn_weight,
    AtenTensorHandle weight_scales, AtenTensorHandle weight_zero_points, AtenTensorHandle accum, AtenTensorHandle *B,
    const int64_t *stride_args, int64_t stride_len_, const int64_t *padding_args, int64_t padding_len_,
    const int64_t *dilation_args, int64_t dilation_len_, int64_t groups, double output_scale, int64_t output_zero_point,
    const int32_t *output_dtype, double accum_scale, int64_t accum_zero_point, const char *binary_attr, double *alpha,
    const char **unary_attr, const double **unary_scalars, int64_t unary_scalars_len_, const char **unary_algorithm,
    AtenTensorHandle *ret0);

/* ---- indexing/histogram.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_histc(AtenTensorHandle self, int64_t bins, double min, double max,
                                                AtenTensorHandle *ret_0);
/*
 * range: NULL, or a pointer to two numbers; weight: NULL, or a pointer to the handle. Results: counts, and the edges of
 * the bins.
 */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_histogram_bin_ct(AtenTensorHandle self, int64_t bins, const double **range,
                                                           int64_t range_len_, AtenTensorHandle *weight,
                                                           int32_t density, AtenTensorHandle *ret0,
                                                           AtenTensorHandle *ret1);
/* The same for points, whose numbers are along the last dimension; only counts are returned. */
SHIM_EXPORT AOTITorchError aoti_torch_cpu__histogramdd_from_bin_cts(AtenTensorHandle self, const int64_t *bins,
                                                                    int64_t bins_len_, const double **range,
                                                                    int64_t range_len_, AtenTensorHandle *weight,
                                                                    int32_t density, AtenTensorHandle *ret0);

/* ---- math/complex.c: for complex numbers; compiled code computes real ones itself ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_add_Tensor(AtenTensorHandle self, AtenTensorHandle other, double alpha,
                                                     AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_add_Scalar(AtenTensorHandle self, double other, double alpha,
                                                     AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_mul_Tensor(AtenTensorHandle self, AtenTensorHandle other,
                                                     AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_mul_Scalar(AtenTensorHandle self, double other, AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_pow_Tensor_Tensor(AtenTensorHandle self, AtenTensorHandle exponent,
                                                            AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_pow_Tensor_Scalar(AtenTensorHandle self, double exponent,
                                                            AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_pow_Scalar(double self, AtenTensorHandle exponent, AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_abs(AtenTensorHandle self, AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_angle(AtenTensorHandle self, AtenTensorHandle *ret0);

/* ---- math/trilinear.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu__trilinear(AtenTensorHandle i1, AtenTensorHandle i2, AtenTensorHandle i3,
                                                     const int64_t *expand1, int64_t expand1_len_,
                                                     const int64_t *expand2, int64_t expand2_len_,
                                                     const int64_t *expand3, int64_t expand3_len_,
                                                     const int64_t *sumdim, int64_t sumdim_len_, int64_t unroll_dim,
                                                     AtenTensorHandle *ret0);

/* ---- named_operators.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_polar(AtenTensorHandle abs, AtenTensorHandle angle, AtenTensorHandle *ret0);

/* ---- math/linear_systems.c, math/decompositions.c: with LAPACK ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_lu_unpack(AtenTensorHandle LU_data, AtenTensorHandle LU_pivots,
                                                    int32_t unpack_data, int32_t unpack_order, AtenTensorHandle *ret0,
                                                    AtenTensorHandle *ret1, AtenTensorHandle *ret2);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_cholesky_solve(AtenTensorHandle self, AtenTensorHandle input2, int32_t upper,
                                                         AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_cholesky_inverse(AtenTensorHandle self, int32_t upper,
                                                           AtenTensorHandle *ret0);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_triangular_solve(AtenTensorHandle self, AtenTensorHandle A, int32_t upper,
                                                           int32_t transpose, int32_t unitriangular,
                                                           AtenTensorHandle *ret0, AtenTensorHandle *ret1);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_geqrf(AtenTensorHandle self, AtenTensorHandle *ret0, AtenTensorHandle *ret1);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_ormqr(AtenTensorHandle self, AtenTensorHandle input2, AtenTensorHandle input3,
                                                int32_t left, int32_t transpose, AtenTensorHandle *ret0);

/* ---- math/pooling.c ---- */
/* An empty stride is the kernel's size; divisor_override may be NULL. */
#define SHIM_DECLARE_POOLING(axes)                                                                                   \
    SHIM_EXPORT AOTITorchError aoti_torch_cpu_max_pool##axes##d_with_indices(                                        \
        AtenTensorHandle self, const int64_t *kernel_size, int64_t kernel_count, const int64_t *stride,              \
        int64_t stride_count, const int64_t *padding, int64_t padding_count, const int64_t *dilation,                \
        int64_t dilation_count, int32_t ceil_mode, AtenTensorHandle *ret_output, AtenTensorHandle *ret_indices);     \
    SHIM_EXPORT AOTITorchError aoti_torch_cpu_avg_pool##axes##d(                                                     \
        AtenTensorHandle self, const int64_t *kernel_size, int64_t kernel_count, const int64_t *stride,              \
        int64_t stride_count, const int64_t *padding, int64_t padding_count, int32_t ceil_mode,                      \
        int32_t count_include_pad, int64_t *divisor_override, AtenTensorHandle *ret_output);                         \
    SHIM_EXPORT AOTITorchError aoti_torch_cpu__adaptive_avg_pool##axes##d(                                           \
        AtenTensorHandle self, const int64_t *output_size, int64_t output_size_count, AtenTensorHandle *ret_output); \
    SHIM_EXPORT AOTITorchError aoti_torch_cpu_adaptive_max_pool##axes##d(                                            \
        AtenTensorHandle self, const int64_t *output_size, int64_t output_size_count, AtenTensorHandle *ret_output,  \
        AtenTensorHandle *ret_indices);                                                                              \
    SHIM_EXPORT AOTITorchError aoti_torch_cpu_fractional_max_pool##axes##d(                                          \
        AtenTensorHandle self, const int64_t *kernel_size, int64_t kernel_count, const int64_t *output_size,         \
        int64_t output_size_count, AtenTensorHandle random_samples, AtenTensorHandle *ret_output,                    \
        AtenTensorHandle *ret_indices);
SHIM_DECLARE_POOLING(2)
SHIM_DECLARE_POOLING(3)
#undef SHIM_DECLARE_POOLING

#endif
