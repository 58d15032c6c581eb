/*
 * runtime/abi: the two C interfaces of a kernel library, to its host and to PyTorch's functions, declared for C.
 *
 * Exported by a library: the AOTInductor interface (torch/csrc/inductor/aoti_runtime/interface.h, PyTorch 2.13; 2.6 has
 * the functions of the BASE list). Imported from the process: the aoti_torch_* functions
 * (torch/csrc/inductor/aoti_torch/c/shim.h). Names, types and meanings come from PyTorch, the texts of comments do not.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_RUNTIME_ABI_H
#define AOTICACHE_RUNTIME_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AOTICACHE_ABI_EXPORT __attribute__((visibility("default")))

/* 0 is success, everything else failure. */
typedef int32_t AOTIRuntimeError;
typedef int32_t AOTITorchError;

typedef struct AtenTensorOpaque *AtenTensorHandle;
typedef struct AtenGeneratorOpaque *AtenGeneratorHandle;
typedef struct AOTIProxyExecutorOpaque *AOTIProxyExecutorHandle;
typedef struct AOTInductorModelOpaque *AOTInductorModelHandle;
typedef struct AOTInductorModelContainerOpaque *AOTInductorModelContainerHandle;
typedef struct AOTInductorStreamOpaque *AOTInductorStreamHandle;
/* In fact a std::unordered_map<std::string, AtenTensorHandle>. */
typedef struct AOTInductorConstantMap *AOTInductorConstantMapHandle;

typedef struct AOTInductorConstantMapEntry {
    const char *name;
    AtenTensorHandle handle;
} AOTInductorConstantMapEntry;

#define AOTI_ARRAYREF_TENSOR_MAX_DIMS 8

/* A tensor without a handle: the caller owns all memory. */
typedef struct AOTInductorArrayRefTensor {
    void *data;
    int64_t numel;
    int64_t sizes[AOTI_ARRAYREF_TENSOR_MAX_DIMS]; /* only the first ndim are used */
    int64_t strides[AOTI_ARRAYREF_TENSOR_MAX_DIMS];
    int32_t ndim;
    int32_t dtype;
    int32_t device_type;
    int32_t device_idx;
    int64_t reserved[4]; /* zero */
} AOTInductorArrayRefTensor;

/*
 * The exported interface, as X(name, (parameters)): every function returns AOTIRuntimeError. Libraries of 2.6 have
 * those of BASE; newer ones add those of NEWER. The loader knows which library must have which functions.
 */
#define AOTICACHE_ABI_BASE_LIST(X)                                                                                     \
    X(AOTInductorModelContainerCreate,                                                                                 \
      (AOTInductorModelContainerHandle * ret_container, size_t num_models, bool is_cpu, const char *cubin_dir))        \
    X(AOTInductorModelContainerCreateWithDevice,                                                                       \
      (AOTInductorModelContainerHandle * ret_container, size_t num_models, const char *device, const char *cubin_dir)) \
    X(AOTInductorModelContainerDelete, (AOTInductorModelContainerHandle container))                                    \
    X(AOTInductorModelContainerRun, (AOTInductorModelContainerHandle container, AtenTensorHandle * inputs,             \
                                     size_t num_inputs, AtenTensorHandle *outputs, size_t num_outputs,                 \
                                     AOTInductorStreamHandle stream, AOTIProxyExecutorHandle proxy_executor))          \
    X(AOTInductorModelContainerGetNumConstants,                                                                        \
      (AOTInductorModelContainerHandle container, size_t *ret_num_constants))                                          \
    X(AOTInductorModelContainerGetConstantName,                                                                        \
      (AOTInductorModelContainerHandle container, size_t position, const char **ret_name))                             \
    X(AOTInductorModelContainerGetConstantOriginalFQN,                                                                 \
      (AOTInductorModelContainerHandle container, size_t position, const char **ret_original_fqn))                     \
    X(AOTInductorModelContainerGetConstantFromFolded,                                                                  \
      (AOTInductorModelContainerHandle container, size_t position, bool *ret_from_folded))                             \
    X(AOTInductorModelContainerGetConstantType,                                                                        \
      (AOTInductorModelContainerHandle container, size_t position, int32_t *ret_type))                                 \
    X(AOTInductorModelContainerGetConstantDtype,                                                                       \
      (AOTInductorModelContainerHandle container, size_t position, int32_t *ret_dtype))                                \
    X(AOTInductorModelContainerUpdateConstantBuffer,                                                                   \
      (AOTInductorModelContainerHandle container, AOTInductorConstantMapHandle constants, bool use_inactive,           \
       bool validate_full_update))                                                                                     \
    X(AOTInductorModelContainerUpdateInactiveConstantBuffer,                                                           \
      (AOTInductorModelContainerHandle container, AOTInductorConstantMapHandle constants))                             \
    X(AOTInductorModelContainerRunConstantFolding,                                                                     \
      (AOTInductorModelContainerHandle container, bool use_inactive, AOTInductorStreamHandle stream,                   \
       AOTIProxyExecutorHandle proxy_executor))                                                                        \
    X(AOTInductorModelContainerSwapConstantBuffer, (AOTInductorModelContainerHandle container))                        \
    X(AOTInductorModelContainerGetNumInputs, (AOTInductorModelContainerHandle container, size_t *ret_num_inputs))      \
    X(AOTInductorModelContainerGetInputName,                                                                           \
      (AOTInductorModelContainerHandle container, size_t position, const char **ret_name))                             \
    X(AOTInductorModelContainerGetNumOutputs, (AOTInductorModelContainerHandle container, size_t *ret_num_outputs))    \
    X(AOTInductorModelContainerGetOutputName,                                                                          \
      (AOTInductorModelContainerHandle container, size_t position, const char **ret_name))                             \
    X(AOTInductorModelContainerGetCallSpec,                                                                            \
      (AOTInductorModelContainerHandle container, const char **ret_in_spec, const char **ret_out_spec))                \
    X(AOTInductorModelCreate, (AOTInductorModelHandle * ret_model, AOTInductorConstantMapHandle constants))            \
    X(AOTInductorModelRun, (AOTInductorModelHandle model, AtenTensorHandle * inputs, AtenTensorHandle * outputs))      \
    X(AOTInductorModelDelete, (AOTInductorModelHandle model))                                                          \
    X(AOTInductorModelGetNumOutputs, (AOTInductorModelHandle model, size_t *ret_num_outputs))                          \
    X(AOTInductorModelUpdateConstantsMap, (AOTInductorModelHandle model, AOTInductorConstantMapHandle constants))

#define AOTICACHE_ABI_NEWER_LIST(X)                                                                                    \
    X(AOTInductorModelContainerRunSingleThreaded,                                                                      \
      (AOTInductorModelContainerHandle container, AtenTensorHandle * inputs, size_t num_inputs,                        \
       AtenTensorHandle *outputs, size_t num_outputs, AOTInductorStreamHandle stream,                                  \
       AOTIProxyExecutorHandle proxy_executor))                                                                        \
    X(AOTInductorModelContainerGetConstantDataSize,                                                                    \
      (AOTInductorModelContainerHandle container, size_t position, size_t *ret_bytes))                                 \
    X(AOTInductorModelContainerExtractConstantsMap,                                                                    \
      (AOTInductorModelContainerHandle container, AOTInductorConstantMapHandle constants, bool use_inactive))          \
    X(AOTInductorModelContainerExtractConstantsMapEntries,                                                             \
      (AOTInductorModelContainerHandle container, const AOTInductorConstantMapEntry **ret_entries,                     \
       size_t *ret_num_entries, bool use_inactive))                                                                    \
    X(AOTInductorModelContainerUpdateUserManagedConstantBuffer,                                                        \
      (AOTInductorModelContainerHandle container, AOTInductorConstantMapHandle constants, bool use_inactive,           \
       bool validate_full_update))                                                                                     \
    X(AOTInductorModelContainerUpdateUserManagedConstantBufferPairs,                                                   \
      (AOTInductorModelContainerHandle container, const AOTInductorConstantMapEntry *pairs, size_t num_pairs,          \
       bool use_inactive, bool validate_full_update))                                                                  \
    X(AOTInductorModelContainerUpdateConstantBufferPairs,                                                              \
      (AOTInductorModelContainerHandle container, const AOTInductorConstantMapEntry *pairs, size_t num_pairs,          \
       bool use_inactive, bool validate_full_update))                                                                  \
    X(AOTInductorModelContainerUpdateConstantBufferFromCpu,                                                            \
      (AOTInductorModelContainerHandle container, AOTInductorConstantMapHandle constants, bool use_inactive,           \
       bool validate_full_update))                                                                                     \
    X(AOTInductorModelContainerUpdateConstantBufferFromCpuPairs,                                                       \
      (AOTInductorModelContainerHandle container, const AOTInductorConstantMapEntry *pairs, size_t num_pairs,          \
       bool use_inactive, bool validate_full_update))                                                                  \
    X(AOTInductorModelContainerUpdateInactiveConstantBufferPairs,                                                      \
      (AOTInductorModelContainerHandle container, const AOTInductorConstantMapEntry *pairs, size_t num_pairs))         \
    X(AOTInductorModelContainerFreeInactiveConstantBuffer, (AOTInductorModelContainerHandle container))                \
    X(AOTInductorModelContainerGetConstantsBlobSize, (AOTInductorModelContainerHandle container, uint64_t *ret_bytes)) \
    X(AOTInductorModelUpdateConstantsFromBlob, (AOTInductorModelContainerHandle container, const uint8_t *weights))    \
    X(AOTInductorModelCreateV2,                                                                                        \
      (AOTInductorModelHandle * ret_model, const AOTInductorConstantMapEntry *pairs, size_t num_pairs))                \
    X(AOTInductorModelUpdateConstantsMapV2,                                                                            \
      (AOTInductorModelHandle model, const AOTInductorConstantMapEntry *pairs, int32_t num_pairs))                     \
    X(AOTInductorGetLastError, (const char **ret_message))

#define AOTICACHE_ABI_DECLARE(name, parameters) AOTICACHE_ABI_EXPORT AOTIRuntimeError name parameters;
AOTICACHE_ABI_BASE_LIST(AOTICACHE_ABI_DECLARE)
AOTICACHE_ABI_NEWER_LIST(AOTICACHE_ABI_DECLARE)
#undef AOTICACHE_ABI_DECLARE

/* Exported only if the kernel's author provides it; not in the lists, which the loader resolves. */
AOTICACHE_ABI_EXPORT AOTIRuntimeError AOTInductorModelRunMinimalArrayrefInterfaceV2(
    AOTInductorModelHandle model, int32_t num_inputs, const AOTInductorArrayRefTensor *inputs, int32_t num_outputs,
    AOTInductorArrayRefTensor *outputs);

/*
 * The aoti_torch_* functions that a host uses to make, read and free tensors, as X(result, name, (parameters)). The
 * loader binds these from libtorch or from the shim, which has more (runtime/shim/).
 */
#define AOTICACHE_ABI_TORCH_LIST(X)                                                                                   \
    X(uint64_t, aoti_torch_abi_version, (void))                                                                       \
    X(AOTITorchError, aoti_torch_create_tensor_from_blob,                                                             \
      (void *data, int64_t ndim, const int64_t *sizes, const int64_t *strides, int64_t storage_offset, int32_t dtype, \
       int32_t device_type, int32_t device_index, AtenTensorHandle *ret_tensor))                                      \
    X(AOTITorchError, aoti_torch_empty_strided,                                                                       \
      (int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype, int32_t device_type,                \
       int32_t device_index, AtenTensorHandle *ret_tensor))                                                           \
    X(AOTITorchError, aoti_torch_new_tensor_handle, (AtenTensorHandle tensor, AtenTensorHandle * ret_tensor))         \
    X(AOTITorchError, aoti_torch_delete_tensor_object, (AtenTensorHandle tensor))                                     \
    X(AOTITorchError, aoti_torch_get_data_ptr, (AtenTensorHandle tensor, void **ret_data))                            \
    X(AOTITorchError, aoti_torch_get_dim, (AtenTensorHandle tensor, int64_t *ret_ndim))                               \
    X(AOTITorchError, aoti_torch_get_sizes, (AtenTensorHandle tensor, int64_t **ret_sizes))                           \
    X(AOTITorchError, aoti_torch_get_strides, (AtenTensorHandle tensor, int64_t **ret_strides))                       \
    X(AOTITorchError, aoti_torch_get_dtype, (AtenTensorHandle tensor, int32_t *ret_dtype))                            \
    X(AOTITorchError, aoti_torch_get_numel, (AtenTensorHandle tensor, int64_t *ret_numel))                            \
    X(AOTITorchError, aoti_torch_get_storage_offset, (AtenTensorHandle tensor, int64_t *ret_offset))                  \
    X(AOTITorchError, aoti_torch_get_device_type, (AtenTensorHandle tensor, int32_t *ret_device_type))                \
    X(AOTITorchError, aoti_torch_get_device_index, (AtenTensorHandle tensor, int32_t *ret_device_index))

#define AOTICACHE_ABI_TORCH_DECLARE(result, name, parameters) AOTICACHE_ABI_EXPORT result name parameters;
AOTICACHE_ABI_TORCH_LIST(AOTICACHE_ABI_TORCH_DECLARE)
#undef AOTICACHE_ABI_TORCH_DECLARE

#ifdef __cplusplus
}
#endif
#endif
